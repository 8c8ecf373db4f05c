"""Launchers that their batch system suspends for others' jobs: a state, not a loss, and the sweep's story tells it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from koalapy.core.core import Core
from koalapy.core.launchers import place
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.states import ComponentState as _C
from koalapy.model.sweep import Glide
from koalapy.model.units import Instant

NOW, BEFORE = "now", "before"  # see Glide


def has_turned(launcher: Job) -> bool:
    """Whether it was suspended, or goes on, and its sweep's story does not tell that yet.

    One that is out of reach is neither; and one that is ended while it is suspended never ran again.
    """
    state, told = place(launcher).state, _glide(launcher).suspended == NOW
    return state is (_C.RUNNING if told else _C.SUSPENDED)


def tell(core: Core, now: Instant, turned: Iterable[JobId]) -> None:
    """`turned`: Launchers that may have; of several on a cluster one line."""
    counts = Counter[tuple[JobId, str, str]]()
    for identity in turned:
        launcher = core.records.jobs.get(identity)
        if launcher is None or launcher.state.final or not has_turned(launcher):
            continue
        stands = place(launcher).state is _C.SUSPENDED
        glide = replace(_glide(launcher), suspended=NOW if stands else BEFORE)
        core.records.put(launcher.but(glide=glide))
        counts[glide.sweep, place(launcher).cluster or "", "sweep_suspended" if stands else "sweep_resumed"] += 1
    for (sweep, cluster, kind), nodes in counts.items():
        core.records.note(now, sweep, kind, cluster=cluster, nodes=nodes)


def _glide(launcher: Job) -> Glide:
    assert launcher.glide is not None
    return launcher.glide
