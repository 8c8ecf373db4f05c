"""The barrier: no component starts before all have reached it, and none waits without a limit (DCS, section 3.5)."""

from collections.abc import Sequence

from koalapy.attempts.submission import BARRIER_MARGIN
from koalapy.broker.wait_deadlines import begins_at, time_to_begin
from koalapy.coallocation import race, refusals
from koalapy.coallocation.hold import is_awaited
from koalapy.coallocation.retries import EXCLUSION, omit
from koalapy.coallocation.stop import account_barrier_time, stop_job
from koalapy.core.core import Core
from koalapy.core.due import PILOTS
from koalapy.core.remaining import is_filled
from koalapy.model.attempt import Attempt
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.errors import Reason
from koalapy.model.facts import CameToBarrier, Started
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import Duration, Instant, format_duration

_IN_DOUBT = Reason(
    "in_doubt",
    "transient",
    "The store was restored from a backup, and another attempt of it may have started since.",
    "It is placed again once every cluster has reported what it knows.",
)
_MOST_JITTER = BARRIER_MARGIN * 2 // 3
_LEAD = BARRIER_MARGIN - _MOST_JITTER  # between koalad's deadline and the first wrapper that leaves its barrier


def on_came_to_barrier(core: Core, now: Instant, event: CameToBarrier) -> None:
    """Note that the attempt is at its barrier in the present session, so that its job is examined for a release."""
    attempt = core.records.attempt(event.attempt)
    if attempt is not None and attempt.state.at_barrier:
        race.take_lead(core, now, core.records.jobs[attempt.id.job], attempt)
        core.at_barrier.add(attempt.id, attempt.cluster)
        core.run_list.mark_dirty(attempt.id.job)
        if core.records.sweeps:
            core.due.wake(PILOTS)  # they may use its processors while it is held


def on_started(core: Core, now: Instant, event: Started) -> None:
    """Note when the job has started, which is when its last component has started."""
    job = core.records.jobs.get(event.attempt.job)
    if job is None or job.started_at is not None or not job.state.running:
        return
    latest: Instant | None = None
    for attempt in job.present:
        if attempt.started_at is None:
            return
        if latest is None or attempt.started_at > latest:
            latest = attempt.started_at
    core.records.change(job, started_at=latest)


def end_session(core: Core, cluster: str) -> None:
    """Forget which attempts of the cluster are at their barriers: they have to report it again."""
    core.at_barrier.end_session(cluster)
    core.mark_cluster_dirty(cluster)


def release_if_whole(core: Core, now: Instant, job: Job) -> None:
    """Release the job if every component of this try is known to be at its barrier in the present session.

    One that is claimed before its `begin` is held until then. Sweeps that use its processors end before.
    """
    if not job.state.claiming or time_to_begin(now, job):
        return
    present = job.present
    for attempt in present:
        if not attempt.state.at_barrier or attempt.id not in core.at_barrier:
            return
    if not present or (job.candidates and job.id < core.records.counters.doubtful_below):
        return
    if race.may_have_won_elsewhere(core, job):
        return stop_job(core, now, job, Outcome.GIVE_BACK, _IN_DOUBT)
    if is_filled(core, job.id):
        core.due.wake(PILOTS)
    else:
        _release(core, now, job, present)


def _release(core: Core, now: Instant, job: Job, present: Sequence[Attempt]) -> None:
    hosts = tuple([(each.id.component, node.address, node.processes) for each in present for node in each.nodes])
    first_rank = 0
    account_barrier_time(core, now, job)
    for attempt in present:
        core.records.command(
            ReleaseAttempt(cluster=attempt.cluster, attempt=attempt.id, first_rank=first_rank, hosts=hosts)
        )
        first_rank += sum([node.processes for node in attempt.nodes])
        core.records.change_attempt(attempt, state=AttemptState.RELEASED, released_at=now)
    core.records.change(job, state=JobState.RUNNING, **({"preempted": False} if job.preempted else {}))
    core.records.note(now, job.id, HistoryKind.JOB_RELEASED, processes=first_rank)


def deadline(job: Job, settings: Settings) -> Instant | None:
    """Return when the job's claim or barrier times out, the earlier of both; None if neither timer runs."""
    if not job.state.claiming:
        return None
    claim_ends, barrier_ends = _claim_ends(job, settings), _barrier_ends(job, settings)
    if claim_ends is None or barrier_ends is None:
        return barrier_ends if claim_ends is None else claim_ends
    return claim_ends if claim_ends < barrier_ends else barrier_ends


def time_out(core: Core, now: Instant, job: Job) -> None:
    """End a claim or barrier that has timed out.

    If only optional components are late, the job goes on without them. Otherwise the job stops with a submission
    failure; uncounted if its batch jobs wait among those of other users, on clusters that it leaves alone for a while.
    """
    barrier_ends = _barrier_ends(job, core.settings)
    timed_out = barrier_ends is not None and now >= barrier_ends
    late = _not_come(core, job) if timed_out else _missing(job)
    in_time = barrier_ends is None or now < barrier_ends + _LEAD
    if in_time and late and len(late) < len(job.present) and all(each.request.optional for each in late):
        return _go_without(core, now, job, late)
    settings = core.settings
    code, limit = (
        ("barrier_timeout", settings.barrier_timeout) if timed_out else ("claim_timeout", settings.claim_timeout)
    )
    behind = not timed_out and _are_behind_others(core, late)
    if behind:
        for each in late:
            refusals.exclude(core, now, job, each, EXCLUSION)
    outcome = Outcome.GIVE_BACK if behind else Outcome.SUBMISSION_FAILURE
    stop_job(core, now, job, outcome, _too_late(code, late, limit, behind))


def _are_behind_others(core: Core, late: Sequence[Attempt]) -> bool:
    """Return whether all of these wait on clusters where jobs of other users wait too.

    Such a cluster may keep processors idle for one of those: a measurement does not show a batch system's reservations.
    """
    for attempt in late:
        known = core.information.clusters.get(attempt.cluster)
        if attempt.state is not AttemptState.QUEUED or known is None or known.state is None:
            return False
        if not known.state.waiting_local:
            return False
    return bool(late)


def _go_without(core: Core, now: Instant, job: Job, late: list[Attempt]) -> None:
    for attempt in late:
        reason = _too_late("omitted", [attempt], Duration(now - (job.claimed_at or now)))
        omit(core, now, attempt, reason, code=reason.code, message=str(reason))


def _claim_ends(job: Job, settings: Settings) -> Instant | None:
    """Return when the claim times out; None if its timer does not run.

    The timer runs until the last batch job has started.
    """
    if job.claimed_at is None or job.patient or not _missing(job):
        return None
    return Instant(job.claimed_at + settings.claim_timeout + _jitter(job, settings.claim_timeout))


def _barrier_ends(job: Job, settings: Settings) -> Instant | None:
    """Return when the barrier times out; None if its timer does not run.

    The timer starts with the first component at the barrier, or else with the start of the last batch job. With that
    start if components may wait for those in queues. It starts no sooner than the job is to begin.
    """
    came = started = None
    for each in job.present:
        if each.at_barrier_at is not None and (came is None or each.at_barrier_at < came):
            came = each.at_barrier_at
        if each.allocated_at is not None and (started is None or each.allocated_at > started):
            started = each.allocated_at
    if job.barrier_wait is not None:
        if is_awaited(job):
            return None
        came = started
    if came is None and (started is None or _missing(job)):
        return None
    since = came if came is not None else started
    assert since is not None
    since = max(since, begins_at(job) or since)
    return Instant(since + settings.barrier_timeout + _jitter(job, settings.barrier_timeout))


def _missing(job: Job) -> list[Attempt]:
    """Return the attempts that have not ended, and whose batch job has not started."""
    return [
        each for each in job.attempts if each is not None and each.allocated_at is None and not each.state.ended
    ]  # not one that the job goes without, since that has ended


def _not_come(core: Core, job: Job) -> list[Attempt]:
    """Return the attempts that have not reported from their barriers since their cluster was connected last."""
    return [attempt for attempt in job.present if not attempt.state.at_barrier or attempt.id not in core.at_barrier]


def _too_late(code: str, late: list[Attempt], limit: Duration, behind: bool = False) -> Reason:
    """Return why a claim or barrier has timed out. `behind`: see `_are_behind_others`."""
    absent = [attempt for attempt in late if not attempt.state.at_barrier]
    where = ", ".join(
        f"component {attempt.id.component} on {attempt.cluster}"
        + (f" ({attempt.pending_reason})" if attempt.pending_reason else "")
        for attempt in absent or late
    )
    what = "was not at its barrier" if code == "barrier_timeout" else "had not started"
    if not absent:
        where, what = where or "its clusters", "did not get its release"
    advice = "`claim` and `barrier` in the grid file set this time."
    if behind:
        what = f"{what}, and other users' jobs wait there"
        advice = f"It leaves that cluster alone for {format_duration(EXCLUSION)}; nothing is counted. {advice}"
    return Reason(code, "transient", f"After {format_duration(limit)} {where} {what}.", advice)


def _jitter(job: Job, limit: Duration) -> int:
    """Return at most a tenth of the limit: a different duration for every job and try, the same at every call.

    Without it, several koalads could claim and give back at the same instants again and again.
    """
    most = min(limit // 10, _MOST_JITTER)
    return (job.id * 2_654_435_761 + sum(job.numbers) * 40_503) % 1_000 * most // 1_000
