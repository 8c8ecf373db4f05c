"""Answers of a cluster to the submission of an attempt."""

from koalapy.attempts.attempt_end import reason_details
from koalapy.core.core import Core
from koalapy.model.events import AttemptSubmitted, SubmissionFailed
from koalapy.model.facts import Ended
from koalapy.model.states import ComponentState
from koalapy.model.units import Instant


def on_submitted(core: Core, now: Instant, event: AttemptSubmitted) -> None:
    """Record that its batch job is in the queue."""
    component = core.records.attempt(event.attempt)
    if component is None or component.cleaned_up:
        return
    changes: dict[str, object] = {"batch_id": event.batch_id}
    if component.state is ComponentState.SUBMITTING:
        changes |= {"state": ComponentState.QUEUED, "queued_at": now}
    core.records.put_attempt(event.attempt, component.replace(**changes))
    core.records.note_attempt(now, event.attempt, component.cluster, "component_submitted", batch_id=event.batch_id)


def on_submission_failed(core: Core, now: Instant, event: SubmissionFailed) -> None:
    """End the attempt: nothing of it is there. One that is being cancelled ends when its cluster confirms that."""
    core.mark_dirty()
    component = core.records.attempt(event.attempt)
    if component is None or component.cleaned_up or component.cancelling:
        return
    ended = component.replace(state=ComponentState.FAILED, reason=event.reason, ended_at=now)
    core.records.put_attempt(event.attempt, ended.clean_up(now))
    details = reason_details(event.reason)
    core.records.note_attempt(now, event.attempt, component.cluster, "submission_failed", **details)
    core.facts.append(Ended(attempt=event.attempt, reason=event.reason, released=False, ended_at=now))
