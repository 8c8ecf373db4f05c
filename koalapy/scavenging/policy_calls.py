"""The reports of policies that fail: each sweep concerned has one."""

from koalapy.core.core import Core
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.units import Instant


def report_policy_error(core: Core, now: Instant, sweep: JobId, asked: str, wrong: str) -> None:
    """Record the error of a policy for the sweep, or clear it.

    `asked`: the task of the policy, for the message. `wrong`: the error in its answer, '' if there is none. The sweep's
    history has one entry for each task, since policies are called in every step.
    """
    key = sweep, asked
    if not wrong:
        core.sessions.policy_errors.pop(key, None)
        return
    core.sessions.policy_errors[key] = f"{asked[:1].upper()}{asked[1:]} failed: {wrong}."
    if key not in core.sessions.noted_errors:
        core.sessions.noted_errors[key] = None
        core.records.note(now, sweep, HistoryKind.POLICY_FAILED, message=core.sessions.policy_errors[key])


def policy_errors(core: Core, sweep: JobId) -> tuple[str, ...]:
    """Return the present errors of policies that concern the sweep, as sentences."""
    return tuple(message for (concerned, _), message in core.sessions.policy_errors.items() if concerned == sweep)
