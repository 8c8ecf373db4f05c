"""Stopping a job: everything of it is cancelled first; what cannot be cancelled now need not be waited for."""

from koalapy.attempts.cancel import can_be_cancelled, cancel
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.job import Job, Outcome
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import Instant


def stop_job(core: Core, now: Instant, job: Job, outcome: Outcome | None = None, reason: Reason | None = None) -> None:
    """Cancel all that is left of the job.

    The first outcome counts, but a user's cancel overrides one that is no end.
    """
    if job.state is not JobState.STOPPING:
        account_held(core, now, job)
        core.records.change(job, state=JobState.STOPPING, outcome=outcome, reason=reason)
        of_what = {"sweep": True} if job.runner is not None else {}
        core.records.note(now, job.id, "job_stopping", outcome=str(outcome), **of_what, **code_and_message(reason))
    elif outcome is Outcome.CANCELLED and not (job.outcome and job.outcome.ends):
        core.records.change(job, outcome=outcome, reason=reason)
    for attempt in job.live:
        cancel(core, attempt, job.forced)


def detach_what_cannot_be_cancelled(core: Core, now: Instant, job: Job) -> None:
    """Detach attempts that cannot be ended now, so that the job need not wait for their clusters.

    Not where a program may run: then the next try waits (promises 1 and 2), unless there is none, or its user said so.
    """
    nobody_waits = job.outcome is Outcome.FAILED or job.forced
    for attempt in job.live:
        if can_be_cancelled(attempt, core.information.reachable):
            continue
        if _may_run(attempt) and not nobody_waits:
            continue
        why = attempt.stuck if attempt.cluster in core.information.reachable else None
        core.records.note_attempt(
            now, attempt.id, attempt.cluster, "cancel_pending", batch_id=attempt.batch_id, **code_and_message(why)
        )
        core.records.detach(attempt, now)


def _may_run(attempt: Attempt) -> bool:
    """Return whether its program may be running: one that is only taken for lost may live on."""
    taken_for_lost = attempt.released_at is not None and attempt.unknown_since is not None
    return attempt.state.released or taken_for_lost


def account_held(core: Core, now: Instant, job: Job) -> None:
    """Add what its attempts held at their barriers until now.

    Each is accounted once: when it is released or ends, or when its job stops.
    """
    held = held_at_barriers(job, now)
    if held:
        core.records.change(job, held=job.held + held)


def held_at_barriers(job: Job, now: Instant) -> int:
    """Return what the attempts of a claiming job have held at their barriers until now, in processor-microseconds."""
    if job.state is not JobState.CLAIMING:
        return 0
    since = [(each.processors, each.at_barrier_at) for each in job.present if each.state is AttemptState.AT_BARRIER]
    return sum([processors * max(0, now - at) for processors, at in since if at is not None])


def code_and_message(reason: Reason | None) -> dict[str, str]:
    """Return a job's reason as history keeps it; empty without one."""
    return {"code": reason.code, "message": str(reason)} if reason else {}
