"""Reaction to the batch status of an attempt, which shows what its wrapper cannot report."""

from typing import Any

from koalapy.attempts.attempt_end import end_attempt, look_at, update_attempt
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.events import BatchStatusSeen
from koalapy.model.facts import Refused
from koalapy.model.states import AttemptState, BatchState, ReportedEnding
from koalapy.model.units import Instant

_S = AttemptState


def on_seen(core: Core, now: Instant, event: BatchStatusSeen) -> None:
    """Record the attempt's batch status, or end the attempt if its batch job has ended."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state.ended:
        return None
    if event.state is BatchState.ENDED:
        return _end_without_report(core, now, attempt, event)
    changes: dict[str, Any] = {
        "batch_id": event.batch_id or attempt.batch_id,
        "unknown_since": None,
        "silent_since": event.silent_since,
    }
    changes |= _SEEN.get(event.state, _nothing)(now, attempt, event)
    if attempt.cancelling:
        changes.pop("state", None)
    update_attempt(core, now, attempt, changes)
    if event.stuck and not attempt.cancelling and not attempt.state.released:
        core.derive(Refused(attempt=attempt.id, owner=attempt.owner_kind, reason=_stuck(event)))


def _pending(now: Instant, attempt: Attempt, event: BatchStatusSeen) -> dict[str, Any]:
    return {"pending_reason": event.words}


def _running(now: Instant, attempt: Attempt, event: BatchStatusSeen) -> dict[str, Any]:
    changes: dict[str, Any] = {"allocated_at": attempt.allocated_at or now, "pending_reason": ""}
    if attempt.state in (_S.SUBMITTING, _S.QUEUED):
        changes["state"] = _S.ALLOCATED
    elif attempt.state is _S.UNKNOWN:
        changes["state"] = _S.RELEASED if attempt.started_at is None else _S.RUNNING
    elif attempt.state is _S.SUSPENDED:
        changes["state"] = _S.RUNNING
    return changes


def _suspended(now: Instant, attempt: Attempt, event: BatchStatusSeen) -> dict[str, Any]:
    return {"state": _S.SUSPENDED} if attempt.state.released else {}


def _missing(now: Instant, attempt: Attempt, event: BatchStatusSeen) -> dict[str, Any]:
    """Return the changes for a missing attempt, which is unknown if it was released."""
    silent_since = event.silent_since or attempt.silent_since or now
    changes: dict[str, Any] = {"unknown_since": attempt.unknown_since or now, "silent_since": silent_since}
    return changes | ({"state": _S.UNKNOWN} if attempt.state.released else {})


def _nothing(now: Instant, attempt: Attempt, event: BatchStatusSeen) -> dict[str, Any]:
    return {}


_B, _E = BatchState, ReportedEnding
_SEEN = {_B.QUEUED: _pending, _B.HELD: _pending, _B.RUNNING: _running, _B.SUSPENDED: _suspended, _B.MISSING: _missing}


def _stuck(event: BatchStatusSeen) -> Reason:
    return Reason(
        event.stuck,
        "request",
        f"The batch system will never start it: {event.words or event.stuck}.",
        "Change what the component asks for, or the cluster's queue or account in the grid file.",
        command="status",
        words=event.words,
    )


def _end_without_report(core: Core, now: Instant, attempt: Attempt, event: BatchStatusSeen) -> None:
    """End an attempt whose batch job ended without an exit record: by the accounting, or as lost without one.

    If the batch system could never start the batch job, that is the reason.
    """
    reasons = {
        _E.WALLTIME: Reason(
            "walltime_exceeded", "request", "The batch system ended it at its walltime.", "Ask for more `walltime`."
        ),
        _E.MEMORY: Reason(
            "memory_exceeded", "request", "It used more memory than it asked for.", "Ask for more memory."
        ),
        _E.KILLED: Reason("killed", "transient", "It was killed.", look_at(event.attempt)),
        _E.PREEMPTED: Reason("killed", "transient", "It was preempted in the batch system.", ""),
        _E.CANCELLED: Reason("killed", "transient", "It was cancelled in the batch system by somebody else.", ""),
    }
    lost = Reason("lost", "transient", "It was lost: its batch job ended and left no record.", "")
    reason = _stuck(event) if event.stuck else reasons.get(event.ending, lost)
    changes = {
        "ended_at": now,
        "exit_status": event.exit_status,
        "batch_id": event.batch_id or attempt.batch_id,
        "unknown_since": None,
        "silent_since": None,
    }
    end_attempt(core, now, attempt, changes, reason)
