"""Held components, which came through batch queues and wait at their barriers for those that are still in queues.

Such a component may start hours before the last one, so the barrier's time-out does not apply before all have started.
It waits for `barrier.wait`. Then only what is held is given back, and nothing is counted: the components in queues keep
their places, and what was given back is queued again after a pause, twice as long each time. KOALA claims processors
for a component step by step, too (DCS, section 3.3); its users cannot enter the local queues.

The processor time that components wait at barriers may have a bound for the whole job. When it is used up, the job
leaves the queues, uncounted: it could hold nothing of what it gets there. From then on it waits for idle processors.
"""

from collections.abc import Iterable, Sequence

from koalapy.attempts.cancel import cancel, detach
from koalapy.attempts.directories import remove_directory
from koalapy.attempts.submission import submit
from koalapy.broker.wait_deadlines import begins_at, left_to_hold, time_to_begin
from koalapy.coallocation.race import BETWEEN
from koalapy.coallocation.stop import account_barrier_time, barrier_time, stop_job
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.identity import MAX_ATTEMPTS, AttemptId
from koalapy.model.job import GivenBack, Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, Ending
from koalapy.model.units import HOUR, MINUTE, Duration, Instant

FIRST_PAUSE, LONGEST_PAUSE = Duration(15 * MINUTE), Duration(2 * HOUR)
_CLOSED = Reason(
    "cluster_closed", "cluster", "A cluster of its components is being drained, or has left.", "It is placed again."
)
_USED_UP = Reason(
    "hold_used_up",
    "request",
    "Its components have waited at barriers for all the processor time that they may.",
    "It waits for idle processors now, and enters no queue; `barrier.processor_hours` sets this bound.",
)


def longest_wait(
    core: Core, request: Request, placed: Iterable[tuple[ComponentRequest, str | None]], early: Duration
) -> Duration | None:
    """Return how long components that enter queues may wait at their barriers; None if the time-out applies to them.

    `early`: the time until the job's `begin`, which does not count.

    It is the job's own time or the grid file's, or as much of it as the clusters' limits of the walltime leave.
    """
    wait = core.settings.barrier_wait if request.barrier_wait is None else request.barrier_wait
    count = 0
    for component, cluster in placed:
        if cluster is None:
            continue
        count += 1
        limit = core.information.walltime_limit(cluster)
        if limit is not None and (needed := component.queue_walltime) is not None:
            wait = Duration(min(wait, limit - needed - early))
    return wait if count > 1 and wait > 0 else None


def is_awaited(job: Job) -> bool:
    """Return whether a component that the job needs is in a queue, or was given back."""
    needed = [each for each in job.present if not each.request.optional]
    return any(each.allocated_at is None or each.state.ended for each in needed)


def held_until(job: Job, settings: Settings) -> Instant | None:
    """Return when the held components are given back; None while none is held, or none is awaited.

    Their wait ends after `barrier_wait`, counted from the job's `begin` if they came before. It also ends when they
    have used up the processor time that the job may hold.
    """
    if job.barrier_wait is None:
        return None
    held = [(each.processors, each.at_barrier_at) for each in _held(job) if each.at_barrier_at is not None]
    if not held or not is_awaited(job):
        return None
    ends = max(min([came for _, came in held]), begins_at(job) or 0) + job.barrier_wait
    if (left := left_to_hold(job, settings)) is not None:
        total = left + sum([processors * came for processors, came in held])
        ends = min(ends, -(-total // sum([processors for processors, _ in held])))
    return Instant(ends)


def next_moment(job: Job, settings: Settings) -> Instant | None:
    """Return when components are given back or queued again, whichever comes first; None if nothing is due."""
    moments = []
    for each in job.given_back:
        attempt = job.attempt(each.component)
        if attempt is not None and attempt.state.ended and attempt.let_go:
            moments.append(Instant(max(each.again_at, _excluded_until(job, attempt.cluster))))
    if (until := held_until(job, settings)) is not None:
        moments.append(until)
    return min(moments, default=None)


def step(core: Core, now: Instant, job: Job) -> None:
    """Give back what has been held for too long, and queue again what was given back long enough ago."""
    if (until := held_until(job, core.settings)) is not None and now >= until:
        if (left := left_to_hold(job, core.settings)) is not None and barrier_time(job, now) >= left:
            return stop_job(core, now, job, Outcome.GIVE_BACK, _USED_UP)
        give_back(core, now, job, _held(job))
    holds = bool(_held(job))
    for each in job.given_back:
        attempt = job.attempt(each.component)
        if attempt is None or not attempt.state.ended:
            continue
        if attempt.stuck is not None and not attempt.let_go:
            detach(core, now, attempt)
        if (
            attempt.let_go
            and ((holds and each.at_once) or now >= each.again_at)
            and now >= _excluded_until(job, attempt.cluster)
        ):
            _queue_again(core, now, job, attempt)
            if not job.state.claiming:
                return


def give_back(core: Core, now: Instant, job: Job, held: Sequence[Attempt], deadlock: bool = False) -> None:
    """Give back these attempts, whose batch jobs have started. Their components are queued again after a pause.

    After a `deadlock` the pause is not cut short, or the job would take the processors from the older one again.
    """
    account_barrier_time(core, now, job)
    before = {each.component: each for each in job.given_back}
    for attempt in held:
        component = attempt.id.component
        pause = Duration(min(2 * before[component].pause, LONGEST_PAUSE)) if component in before else FIRST_PAUSE
        before[component] = GivenBack(component, pause, Instant(now + pause), at_once=not deadlock)
        cancel(core, attempt)
        core.records.change_attempt(attempt, state=AttemptState.ENDED, ending=Ending.CANCELLED, ended_at=now)
        core.records.note_attempt(
            now,
            attempt.id,
            attempt.cluster,
            HistoryKind.COMPONENT_GIVEN_BACK,
            again_at=Instant(now + pause),
            at_once=not deadlock,
        )
    core.records.change(job, given_back=tuple(before[each] for each in sorted(before)))


def _held(job: Job) -> list[Attempt]:
    return [each for each in job.present if each.state.at_barrier]


def _excluded_until(job: Job, cluster: str) -> Instant:
    """Return until when the cluster is left alone by the job: it may have refused a candidate meanwhile."""
    return dict(job.excluded).get(cluster, Instant(0))


def _queue_again(core: Core, now: Instant, job: Job, attempt: Attempt) -> None:
    """Submit the component to the queue of its cluster again, by a new attempt."""
    cluster, component = attempt.cluster, attempt.id.component
    last = job.number_of(component)
    known = core.information.clusters.get(cluster)
    if known is None or known.settings.draining:
        return stop_job(core, now, job, Outcome.GIVE_BACK, _CLOSED)
    if last + 1 >= MAX_ATTEMPTS:
        return stop_job(core, now, job, Outcome.GIVE_BACK)
    following = Attempt(
        id=AttemptId(job.id, component, last + 1),
        cluster=cluster,
        request=attempt.request,
        host_cluster=attempt.host_cluster,
    )
    if not attempt.is_pending_cancel:
        remove_directory(core, attempt)
    core.records.follow(job, attempt, following)
    core.run_list.races[job.id] = Instant(now + BETWEEN)
    core.records.note_attempt(now, following.id, cluster, HistoryKind.COMPONENT_QUEUED_AGAIN)
    wait = Duration((job.barrier_wait or 0) + time_to_begin(now, job))
    return submit(core, following, job.request, wait=wait)
