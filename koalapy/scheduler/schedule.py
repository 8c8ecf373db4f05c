"""The scheduling pass (DCS, section 3.2): who of the wait queue is claimed for now, who fails, who was overtaken."""

from collections.abc import Sequence
from dataclasses import dataclass

from koalapy.broker.broker import Allocation, PolicyFailed, never_fits, place, shortest_queue, take
from koalapy.broker.fit import lacks
from koalapy.information.kis import View
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import Instant
from koalapy.policies.placement import PlacementPolicy
from koalapy.policies.queueing import Blocked, QueueingPolicy


@dataclass(frozen=True, slots=True)
class Policies:
    """The registered policies that the grid file chose."""

    placement: PlacementPolicy
    queueing: QueueingPolicy


@dataclass(frozen=True, slots=True)
class Claim:
    """Take these clusters for the job. `patient`: it goes into batch queues, not on idle processors."""

    job: JobId
    allocation: Allocation
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Reject:
    """No retry can mend it."""

    job: JobId
    reason: Reason


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The first waiting job was passed so many times in this pass."""

    job: JobId
    times: int


Decision = Claim | Reject | Overtaken


def schedule(
    now: Instant, waiting: Sequence[Job], views: Sequence[View], settings: Settings, policies: Policies
) -> list[Decision]:
    """Decisions over the wait queue, head first. A job that does not fit keeps its place and counts nothing.

    A job whose clusters are out of reach is passed freely under any policy that lets jobs pass: it does not wait for
    processors that a passing job would take.
    """
    decisions: list[Decision] = []
    blocked: list[Blocked] = []
    stalled = False
    passed = 0
    for job in waiting:
        if not policies.queueing([*blocked, *_wall(stalled, blocked)], settings.max_overtakes):
            break
        decision = _decide(now, job, views, settings, policies)
        if isinstance(decision, Claim):
            views = take(decision.allocation, job.request, views)
            if blocked:
                passed += 1
                blocked[0] = Blocked(blocked[0].job, blocked[0].overtaken + 1)
        if decision is not None:
            decisions.append(decision)
        elif _stalled(now, job, views):
            stalled = True
        else:
            blocked.append(Blocked(job.id, job.overtaken))
    if passed:
        decisions.append(Overtaken(JobId(blocked[0].job), passed))
    return decisions


def _wall(stalled: bool, blocked: Sequence[Blocked]) -> list[Blocked]:
    """A stalled job counts for a policy that lets nobody pass, not against a bound on passing."""
    return [Blocked(0, -1)] if stalled and not blocked else []


def _decide(now: Instant, job: Job, views: Sequence[View], settings: Settings, policies: Policies) -> Decision | None:
    without = excluded(now, job)
    allocation = place(job.request, views, policies.placement, without)
    if isinstance(allocation, PolicyFailed):
        return Reject(job.id, allocation.reason)
    if allocation is not None:
        return Claim(job.id, allocation)
    if never_fits(job.request, views, policies.placement):
        return Reject(job.id, _too_large(job, views))
    since = queues_since(job, settings)
    if since is not None and now >= since:
        allocation = shortest_queue(job.request, views, without)
        return Claim(job.id, allocation, patient=True) if allocation is not None else None
    return None


def queues_since(job: Job, settings: Settings) -> Instant | None:
    """From when on the job may go into a batch queue; None: it waits for idle processors."""
    if job.request.when_busy is not WhenBusy.QUEUE or job.waiting_since is None:
        return None
    return Instant(job.waiting_since + settings.queue_after)


def excluded(now: Instant, job: Job) -> frozenset[str]:
    """Clusters left out for this job."""
    return frozenset(cluster for cluster, until in job.excluded if now < until)


def _stalled(now: Instant, job: Job, views: Sequence[View]) -> bool:
    """Whether what it needs cannot be used now: a named cluster is in trouble or left out, or none is usable at all."""
    without = excluded(now, job)
    usable = {view.name for view in views if view.trouble is None and view.name not in without}
    named = {component.cluster for component in job.request.components if not component.optional}
    return not usable or any(cluster is not None and cluster not in usable for cluster in named)


def _too_large(job: Job, views: Sequence[View]) -> Reason:
    sizes = ", ".join(f"{view.name} has {view.total}" for view in views)
    found = [each for each in lacks(dict(enumerate(job.request.components)), views) if each.reason.code == "too_large"]
    asked = ", ".join(str(component.processors) for component in job.request.components)
    which = f"component {found[0].component}" if found else "the job"
    return Reason(
        "too_large",
        "request",
        f"{which[0].upper()}{which[1:]} never fits: processors asked are {asked}; {sizes}.",
        "Ask for fewer processors, or split it into more components.",
    )
