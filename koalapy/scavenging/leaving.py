"""Which of a runner's Launchers go, and what its story tells of it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from koalapy.core.core import Core
from koalapy.core.launchers import place, staying
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.units import Instant
from koalapy.policies.preemption import Candidate, PreemptionPolicy, wrong_order
from koalapy.scavenging.asking import answer
from koalapy.scavenging.launch import send_away, starts_until

_NOTHING_LEFT = "Nothing is left for them to do."
_OTHERS = "Other sweeps have a right to them."


def first_to_go(core: Core, sweep: JobId, cluster: str, policy: PreemptionPolicy) -> tuple[Sequence[Job], str]:
    """Its Launchers there, in the order of the preemption policy; and what is wrong with its answer, or ''."""
    there = {each.id: each for each in staying(core.launchers.of(sweep)) if place(each).cluster == cluster}
    candidates: Sequence[Candidate] = [_candidate(core, each) for each in there.values()]
    order, wrong = answer(lambda: policy(candidates), lambda found: wrong_order(found, candidates), candidates)
    return [there[JobId(each.launcher)] for each in order], wrong


def _candidate(core: Core, launcher: Job) -> Candidate:
    component = place(launcher)
    running, pulled_at = core.sessions.doing.get(launcher.attempt_of(component), (0, None))
    return Candidate(launcher=launcher.id, running=running, pulled_at=pulled_at, started_at=component.allocated_at)


def shrink(core: Core, now: Instant, sweep: JobId, cluster: str, chosen: Iterable[Job], going: str) -> None:
    """`going`: preempted, or shrunk."""
    count = running = 0
    for launcher in chosen:
        count += 1
        running += core.sessions.doing.get(launcher.attempt_of(place(launcher)), (0, now))[0]
        send_away(core, now, launcher, going)
    if count and going == "preempted":
        core.records.note(now, sweep, "sweep_preempted", cluster=cluster, nodes=count, parameters=running)
    elif count:
        core.records.note(now, sweep, "sweep_shrunk", cluster=cluster, nodes=count, message=_OTHERS)


def stop_idlers(core: Core, now: Instant, sweep: Job, idle: Sequence[Job]) -> None:
    for launcher in idle:
        send_away(core, now, launcher, "idle")
    for cluster, nodes in Counter(place(each).cluster for each in idle).items():
        core.records.note(now, sweep.id, "sweep_shrunk", cluster=cluster, nodes=nodes, message=_NOTHING_LEFT)


def withdraw(core: Core, now: Instant) -> None:
    """Those that have not started in time; where others have started since there is no pause any more."""
    late: Counter[tuple[JobId, str]] = Counter()
    for launcher in list(core.launchers):
        cluster, until = place(launcher).cluster or "", starts_until(launcher, core.settings)
        if until is not None and now >= until and launcher.glide is not None:
            send_away(core, now, launcher, "withdrawn")
            late[launcher.glide.sweep, cluster] += 1
        elif (started_at := place(launcher).allocated_at) is not None:
            core.pauses.started(cluster, started_at)
    for (sweep, cluster), nodes in late.items():
        core.records.note(now, sweep, "launcher_withdrawn", cluster=cluster, nodes=nodes)
