"""Changes of one attempt, and its end."""

from typing import Any

from koalapy.attempts.cancel import order_cancel
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.facts import Ended, Started
from koalapy.model.history import HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId
from koalapy.model.states import AttemptState, Ending
from koalapy.model.units import Instant

_ON_REQUEST = ("cancelled", "void", "killed")
_NOTED_AS: dict[AttemptState, HistoryKind] = {
    state: HistoryKind(f"attempt_{state}") for state in AttemptState if state is not AttemptState.SUBMITTING
}


def update_attempt(core: Core, now: Instant, attempt: Attempt, changes: dict[str, Any]) -> None:
    """Change the fields whose values differ, and note a change of state in the history."""
    different = {name: value for name, value in changes.items() if getattr(attempt, name) != value}
    if not different:
        return
    starts = attempt.started_at is None
    core.records.change_attempt(attempt, **different)
    if "allocated_at" in different:
        core.records.note_attempt(
            now, attempt.id, attempt.cluster, HistoryKind.ATTEMPT_ALLOCATED, batch_id=attempt.batch_id
        )
    if "state" in different and attempt.state is not AttemptState.ALLOCATED:
        core.records.note_attempt(
            now, attempt.id, attempt.cluster, _NOTED_AS[attempt.state], **_known_instants(attempt)
        )
    if starts and attempt.started_at is not None:
        core.derive(Started(attempt=attempt.id, owner=attempt.owner_kind))


def end_attempt(core: Core, now: Instant, attempt: Attempt, changes: dict[str, Any], reason: Reason | None) -> None:
    """End the attempt, and cancel what may be left of its batch job.

    `changes`: further fields with their new values. `reason`: why it failed; None if its program ended well.
    """
    released, starts = attempt.state.released, attempt.started_at is None
    held_since = attempt.at_barrier_at if attempt.state.at_barrier else None
    ending = Ending.FAILED if reason else Ending.DONE
    if attempt.cancelling and reason is not None and reason.code in _ON_REQUEST:
        ending, reason = Ending.CANCELLED, None
    cancelled = attempt.cancelling
    changes |= {"state": AttemptState.ENDED, "ending": ending, "reason": reason, "cancelling": True}
    core.records.change_attempt(attempt, **changes)
    if not cancelled:
        order_cancel(core, attempt)
    core.records.note_attempt(
        now, attempt.id, attempt.cluster, HistoryKind.ATTEMPT_ENDED,
        state=str(ending), batch_id=attempt.batch_id, exit_status=attempt.exit_status,
        **_known_instants(attempt), **(reason_details(reason) if reason else {}),
    )  # fmt: skip
    if starts and attempt.started_at is not None:
        core.derive(Started(attempt=attempt.id, owner=attempt.owner_kind))
    ended_at = attempt.ended_at or now
    core.derive(
        Ended(
            attempt=attempt.id,
            owner=attempt.owner_kind,
            reason=reason,
            released=released,
            ended_at=ended_at,
            held_since=held_since,
        )
    )


def reason_details(reason: Reason) -> dict[str, object]:
    """Return code, message and output of a reason for the history."""
    return {"code": reason.code, "message": str(reason), "output": reason.words}


def look_at(attempt: AttemptId) -> str:
    """Return the advice for a program that failed."""
    which = str(attempt) if attempt.job >= FIRST_LAUNCHER else f"{attempt.job} -c {attempt.component}"
    return f"Look at its standard error with `koala logs {which} -e`."


def _known_instants(attempt: Attempt) -> dict[str, Instant]:
    """Return the known instants of the attempt for the history."""
    known: dict[str, Instant] = {}
    if attempt.at_barrier_at is not None:
        known["at_barrier_at"] = attempt.at_barrier_at
    if attempt.released_at is not None:
        known["released_at"] = attempt.released_at
    if attempt.started_at is not None:
        known["started_at"] = attempt.started_at
    if attempt.ended_at is not None:
        known["ended_at"] = attempt.ended_at
    return known
