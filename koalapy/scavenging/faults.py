"""What is wrong with the answers of policies, most of which koalapy does without: it is said of each sweep."""

from koalapy.core.core import Core
from koalapy.model.identity import JobId
from koalapy.model.units import Instant


def heed(core: Core, now: Instant, sweep: JobId, asked: str, wrong: str) -> None:
    """`asked`: what a policy was asked for; `wrong`: what is wrong with its answer, '' if nothing is.

    The sweep's story tells it once: policies are asked in every step.
    """
    key = sweep, asked
    if not wrong:
        core.sessions.faults.pop(key, None)
        return
    core.sessions.faults[key] = f"{asked[:1].upper()}{asked[1:]} failed: {wrong}."
    if key not in core.sessions.blamed:
        core.sessions.blamed[key] = None
        core.records.note(now, sweep, "policy_failed", message=core.sessions.faults[key])


def of(core: Core, sweep: JobId) -> tuple[str, ...]:
    """Those of the last answers, in sentences."""
    return tuple(message for (concerned, _), message in core.sessions.faults.items() if concerned == sweep)
