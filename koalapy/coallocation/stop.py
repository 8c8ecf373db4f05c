"""Stopping work. A job's attempts are cancelled; those that cannot be cancelled now may be detached."""

from koalapy.attempts.cancel import can_be_cancelled, cancel, detach, may_run
from koalapy.coallocation import choices
from koalapy.core.core import Core
from koalapy.model.commands import ChangeSentJob
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job
from koalapy.model.sent import SentChange, SentJob
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.work import Work


def stop_job(core: Core, now: Instant, job: Job, outcome: Outcome | None = None, reason: Reason | None = None) -> None:
    """Cancel all attempts of the job that are left.

    `outcome` and `reason` count only at the first call. A submission failure is none if the job has another choice. A
    user's cancel later replaces an outcome that does not make the job final.
    """
    if not job.state.stopping:
        if outcome is Outcome.SUBMISSION_FAILURE and choices.has_another(job):
            outcome = Outcome.NEXT_CHOICE
        account_barrier_time(core, now, job)
    _stop(core, now, job, outcome, reason)
    for attempt in job.live:
        cancel(core, attempt, job.forced)


def stop_sweep(core: Core, now: Instant, sweep: Sweep, outcome: Outcome, reason: Reason | None = None) -> None:
    """Stop a sweep; the next step of the scavenger stops its Launchers. `outcome` and `reason` count as for a job."""
    _stop(core, now, sweep, outcome, reason, sweep=True)


def _stop(
    core: Core, now: Instant, work: Work, outcome: Outcome | None, reason: Reason | None, **of_what: bool
) -> None:
    if not work.state.stopping:
        core.records.change_work(work, state=JobState.STOPPING, outcome=outcome, reason=reason)
        core.records.note(
            now, work.id, HistoryKind.WORK_STOPPING, outcome=str(outcome), **of_what, **code_and_message(reason)
        )
    elif outcome is Outcome.CANCELLED and not (work.outcome and work.outcome.ends):
        core.records.change_work(work, outcome=outcome, reason=reason)


def cancel_work(core: Core, now: Instant, work: Work, reason: Reason, force: bool = False) -> None:
    """Stop work that has begun; cancel any other at once. `force`: do not wait for clusters or sites out of reach."""
    core.mark_dirty()
    if not work.state.active:
        core.records.change_work(work, state=JobState.CANCELLED, finished_at=now, reason=reason)
        return core.records.note(now, work.id, HistoryKind.WORK_CANCELLED)
    core.records.change_work(work, forced=work.forced or force)
    core.records.note(now, work.id, HistoryKind.CANCEL_REQUESTED, force=force)
    match work:
        case Job():
            stop_job(core, now, work, Outcome.CANCELLED, reason)
        case Sweep():
            stop_sweep(core, now, work, Outcome.CANCELLED, reason)
        case SentJob():
            _cancel_sent(core, now, work, reason)
    return None


def _cancel_sent(core: Core, now: Instant, job: SentJob, reason: Reason) -> None:
    """Let the site that runs the job cancel it. Only that ends it, unless its user does not want to wait."""
    if job.state is not JobState.STOPPING:
        core.records.command(ChangeSentJob(neighbour=job.site, job=job.id, change=SentChange.CANCEL))
    _stop(core, now, job, Outcome.CANCELLED, reason)
    if job.forced:
        core.records.change_work(job, state=JobState.CANCELLED, finished_at=now)
        core.records.note(now, job.id, HistoryKind.WORK_CANCELLED, **code_and_message(job.reason))


def detach_what_cannot_be_cancelled(core: Core, now: Instant, job: Job) -> None:
    """Detach attempts that cannot be ended now, so that the job need not wait for their clusters.

    An attempt whose program may run is detached only if the outcome is FAILED, or if the user forced the cancel.
    """
    nobody_waits = job.outcome is Outcome.FAILED or job.forced
    for attempt in job.live:
        if can_be_cancelled(attempt, core.information.reachable):
            continue
        if not may_run(attempt) or nobody_waits:
            detach(core, now, attempt)


def account_barrier_time(core: Core, now: Instant, job: Job) -> None:
    """Add the processor time that the job's attempts held at their barriers until now.

    Each is accounted once: when it is released or ends, or when its job stops.
    """
    held = barrier_time(job, now)
    if held:
        core.records.change(job, held_processor_us=job.held_processor_us + held)


def barrier_time(job: Job, now: Instant) -> int:
    """Return the processor-microseconds that the attempts of a claiming job have held at their barriers until now."""
    if not job.state.claiming:
        return 0
    held = 0
    for each in job.attempts:
        if each is not None and each.state.at_barrier and each.at_barrier_at is not None:
            held += each.processors * max(0, now - each.at_barrier_at)
    return held


def code_and_message(reason: Reason | None) -> dict[str, str]:
    """Return code and message of a reason for the history; empty without a reason."""
    return {"code": reason.code, "message": str(reason)} if reason else {}
