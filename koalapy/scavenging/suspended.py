"""Launchers that their batch system suspends for others' jobs: a state, not a loss, and the sweep's story tells it."""

from collections import Counter
from collections.abc import Iterable

from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.states import ComponentState
from koalapy.model.units import Instant
from koalapy.scavenging.launchers import place


def tell(records: Records, now: Instant, turned: Iterable[Job]) -> None:
    """`turned`: Launchers that were suspended, or go on; of several on a cluster one line."""
    counts = Counter[tuple[JobId, str, str]]()
    for launcher in turned:
        assert launcher.glide is not None
        kind = "sweep_suspended" if place(launcher).state is ComponentState.SUSPENDED else "sweep_resumed"
        counts[launcher.glide.sweep, place(launcher).cluster or "", kind] += 1
    for (sweep, cluster, kind), nodes in counts.items():
        records.note(now, sweep, kind, cluster=cluster, nodes=nodes)
