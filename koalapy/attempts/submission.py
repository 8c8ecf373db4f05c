"""Reactions to a cluster's answer to the submission of an attempt."""

from koalapy.attempts.attempt_end import reason_details
from koalapy.core.core import Core
from koalapy.model.events import AttemptSubmitted, SubmissionFailed
from koalapy.model.facts import Ended
from koalapy.model.states import AttemptState, Ending
from koalapy.model.units import Instant


def on_submitted(core: Core, now: Instant, event: AttemptSubmitted) -> None:
    """Record the batch job's id, and that the batch job is in the queue."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.let_go:
        return
    changes: dict[str, object] = {"batch_id": event.batch_id, "queued_at": attempt.queued_at or now}
    if attempt.state is AttemptState.SUBMITTING:
        changes["state"] = AttemptState.QUEUED
    core.records.change_attempt(attempt, **changes)
    core.records.note_attempt(now, attempt.id, attempt.cluster, "component_submitted", batch_id=event.batch_id)


def on_submission_failed(core: Core, now: Instant, event: SubmissionFailed) -> None:
    """End the attempt as failed and cleaned up. One that is being cancelled ends when its cluster confirms that."""
    core.mark_dirty()
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state.ended or attempt.cancelling:
        return
    core.records.change_attempt(
        attempt, state=AttemptState.ENDED, ending=Ending.FAILED, reason=event.reason, ended_at=now
    )
    core.records.clean_up(attempt, now)
    core.records.note_attempt(now, attempt.id, attempt.cluster, "submission_failed", **reason_details(event.reason))
    core.facts.append(Ended(attempt=attempt.id, reason=event.reason, released=False, ended_at=now))
