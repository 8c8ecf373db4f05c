"""The run list's step: it releases, completes and stops jobs, applies their time-outs, and breaks deadlocks.

It examines only jobs that changed or whose timer expired; each job has one timer.
"""

from koalapy.attempts import missing
from koalapy.attempts.cancel import can_be_cancelled
from koalapy.broker.wait_deadlines import begins_at, enters_queue_at, expires_at, wait_deadlines
from koalapy.coallocation import barrier, completion, deadlock, hold, race
from koalapy.coallocation.flows.prerequisites import enter_queue, may_begin
from koalapy.coallocation.lowering import lower, lowered_from
from koalapy.coallocation.retries import apply_outcome
from koalapy.coallocation.stop import detach_what_cannot_be_cancelled, stop_job
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.units import Instant, format_duration


def wakeup(core: Core) -> Instant | None:
    """Return the instant at which time alone changes something for a job; None if there is no such instant."""
    return core.run_list.timers.next()


def fire_timers(core: Core, now: Instant) -> None:
    """Mark the jobs whose timers have expired. If one of them waits, the next pass examines the whole queue."""
    for identity in core.run_list.timers.expire(now):
        core.run_list.mark_dirty(identity)
        if core.records.jobs[identity].state.queued:
            core.queue.stale = True
            core.mark_dirty()


def step(core: Core, now: Instant) -> bool:
    """Process every job marked dirty since the previous call, also by that call. It is due in each batch."""
    run_list, jobs = core.run_list, core.records.jobs
    if not run_list.dirty and not core.information.commitments.dirty:
        return True
    dirty = sorted(run_list.dirty) if len(run_list.dirty) > 1 else list(run_list.dirty)
    run_list.dirty.clear()
    for identity in dirty:
        job = jobs[identity]
        if (expires := expires_at(job)) is not None and now >= expires:
            _expire(core, now, job)
        if job.state is JobState.BLOCKED and may_begin(core, now, job):
            enter_queue(core, now, job)
        if job.state.active:
            _examine(core, now, job)
        elif job.state.queued and (due := lowered_from(job, core.settings)) is not None and now >= due:
            lower(core, now, job, "wait")
    if len(run_list.split) > 1 and (core.information.commitments.dirty or not run_list.split.keys().isdisjoint(dirty)):
        _break_deadlocks(core, now)  # a deadlock results from a measurement, or from a change of a job in it
    return True


def set_timers(core: Core, now: Instant) -> None:
    """Set the timer of every job that changed since the previous call."""
    jobs, run_list = core.records.jobs, core.run_list
    if not run_list.timers_dirty:
        return
    for identity in run_list.timers_dirty:
        run_list.timers.set(identity, _next_moment(core, now, jobs[identity]))
    run_list.timers_dirty.clear()


def _examine(core: Core, now: Instant, job: Job) -> None:
    """Time out, release, complete or settle the job; each part may lead to the next one."""
    if job.candidates or job.patient:
        race.step(core, now, job)
    if job.state.claiming:
        if job.barrier_wait is not None:
            hold.step(core, now, job)
        deadline = barrier.deadline(job, core.settings)
        if deadline is not None and now >= deadline:
            barrier.time_out(core, now, job)
        barrier.release_if_whole(core, now, job)
    if job.state.running:
        completion.finish_if_ended(core, now, job)
    if job.state.stopping:
        _settle(core, now, job)


def _expire(core: Core, now: Instant, job: Job) -> None:
    """Fail a job that has waited for as long as its user allows."""
    expires = job.request.expires
    bound = "in time" if expires is None else f"within {format_duration(expires.after)}"
    if expires is not None and expires.instant is not None:
        bound = f"by {expires}"
    reason = Reason("expired", "request", f"It has not started {bound}.", "Set a later `expires`, or none.")
    if job.state.claiming:
        return stop_job(core, now, job, Outcome.FAILED, reason)
    core.mark_dirty()
    core.records.change(job, state=JobState.FAILED, reason=reason, finished_at=now)
    return core.records.note(now, job.id, HistoryKind.WORK_FAILED, code=reason.code, message=str(reason))


def _settle(core: Core, now: Instant, job: Job) -> None:
    """Apply the outcome of a stopping job once nothing of the job is left; then its processors are free."""
    live = job.live
    if live:
        reachable = core.information.reachable
        if all([can_be_cancelled(attempt, reachable) for attempt in live]):  # noqa: C419 — faster
            return None
        detach_what_cannot_be_cancelled(core, now, job)
        if job.live:
            return None
    race.drop_candidates(core, job)
    core.mark_dirty()
    if completion.ended_first(job):
        completion.complete(core, now, job)
        return _examine(core, now, job)
    return apply_outcome(core, now, job)


def _break_deadlocks(core: Core, now: Instant) -> None:
    while (younger := deadlock.job_to_give_back(core, core.run_list.split)) is not None:
        if younger.barrier_wait is not None:
            hold.give_back(core, now, younger, deadlock.holders_of(younger), deadlock=True)
            continue
        stop_job(core, now, younger, Outcome.GIVE_BACK, deadlock.GIVEN_BACK)
        _settle(core, now, younger)


def _next_moment(core: Core, now: Instant, job: Job) -> Instant | None:
    """Return the instant at which time alone changes something for the job; None if there is no such instant.

    For a job in the run list, the instant may have passed.
    """
    state = job.state
    expires = expires_at(job)
    if state is JobState.BLOCKED and (until := enters_queue_at(job)) is not None and until > now:
        return until if expires is None else min(until, expires)
    if not (state.claiming or state.queued or core.run_list.missing):
        return expires
    if expires is not None and expires <= now:
        return expires
    if state.queued:
        ends = wait_deadlines(job, core.settings)
        if expires is not None:
            ends = [*ends, expires]
        if (due := lowered_from(job, core.settings)) is not None:
            ends = [*ends, due]
        return min([moment for moment in ends if moment > now]) if ends and max(ends) > now else None
    earliest = barrier.deadline(job, core.settings) if state.claiming else None
    if state.claiming and (begins := begins_at(job)) is not None and begins > now:
        earliest = begins if earliest is None else min(earliest, begins)
    if job.barrier_wait is not None and state.claiming and (moment := hold.next_moment(job, core.settings)) is not None:
        earliest = moment if earliest is None else min(earliest, moment)
    if (moment := race.next_moment(core, job)) is not None:
        earliest = moment if earliest is None else min(earliest, moment)
    if expires is not None:
        earliest = expires if earliest is None else min(earliest, expires)
    if job.id in core.run_list.missing:
        for attempt in job.live:
            if attempt.unknown_since is not None and (lost_at := _lost_at(core, attempt)) is not None:
                earliest = lost_at if earliest is None else min(earliest, lost_at)
    return earliest


def _lost_at(core: Core, attempt: Attempt) -> Instant | None:
    return missing.lost_at(attempt, core.settings) if core.information.is_connected(attempt.cluster) else None
