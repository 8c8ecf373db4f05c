"""Changes of one attempt, and its end."""

from typing import Any

from koalapy.attempts.cancel import cancel
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.facts import Ended, Started
from koalapy.model.identity import AttemptId
from koalapy.model.job import Component
from koalapy.model.states import ComponentState
from koalapy.model.units import Instant

_S = ComponentState
_INSTANTS = ("at_barrier_at", "released_at", "started_at", "ended_at")
_ON_REQUEST = ("cancelled", "void", "killed")


def update_attempt(
    core: Core, now: Instant, attempt: AttemptId, component: Component, changes: dict[str, Any]
) -> Component:
    """Change what differs, and note a change of state in the history."""
    different = {name: value for name, value in changes.items() if getattr(component, name) != value}
    if not different:
        return component
    before, component = component, core.records.put_attempt(attempt, component.replace(**different))
    if before.allocated_at is None and component.allocated_at is not None:
        core.records.note_attempt(now, attempt, component.cluster, "component_allocated", batch_id=component.batch_id)
    if "state" in different:
        instants = _known_instants(component)
        core.records.note_attempt(now, attempt, component.cluster, f"component_{component.state}", **instants)
    if before.started_at is None and component.started_at is not None:
        core.facts.append(Started(attempt=attempt))
    return component


def end_attempt(
    core: Core, now: Instant, attempt: AttemptId, component: Component, changes: dict[str, Any], reason: Reason | None
) -> None:
    """End the attempt, and cancel what may be left of its batch job. `reason` None: its program ended well."""
    before, state = component, _S.FAILED if reason else _S.DONE
    if component.cancelling and reason is not None and reason.code in _ON_REQUEST:
        state, reason = _S.CANCELLED, None
    component = core.records.put_attempt(attempt, component.replace(**changes | {"state": state, "reason": reason}))
    core.records.note_attempt(
        now, attempt, component.cluster, "component_ended",
        state=str(state), batch_id=component.batch_id, exit_status=component.exit_status,
        **_known_instants(component), **(reason_details(reason) if reason else {}),
    )  # fmt: skip
    cancel(core, attempt)
    if before.started_at is None and component.started_at is not None:
        core.facts.append(Started(attempt=attempt))
    held_since = before.at_barrier_at if before.state is _S.AT_BARRIER else None
    core.facts.append(
        Ended(
            attempt=attempt,
            reason=reason,
            released=before.is_released,
            ended_at=component.ended_at or now,
            held_since=held_since,
        )
    )


def reason_details(reason: Reason) -> dict[str, object]:
    """Return a reason as history keeps it."""
    return {"code": reason.code, "message": str(reason), "output": reason.words}


def look_at(attempt: AttemptId) -> str:
    """Return what to do about a program that ended badly."""
    return f"Look at its standard error with `koala logs {attempt.job} -c {attempt.component} -e`."


def _known_instants(component: Component) -> dict[str, Instant]:
    """Return the instants that are known, as history keeps them."""
    return {name: at for name in _INSTANTS if (at := getattr(component, name)) is not None}
