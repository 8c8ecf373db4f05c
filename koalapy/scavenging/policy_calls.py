"""How a policy is called: one that raises, or answers nonsense, changes nothing; each sweep concerned says so."""

from collections.abc import Callable
from typing import TypeVar

from koalapy.core.core import Core
from koalapy.model.identity import JobId
from koalapy.model.units import Instant

T = TypeVar("T")


def call_policy(ask: Callable[[], T], wrong: Callable[[T], str], fallback: T) -> tuple[T, str]:
    """The policy's answer and '', or what is done without one, and what is wrong with it."""
    try:
        found = ask()
        problem = wrong(found)
    except (Exception, SystemExit) as error:  # which would end koalad's thread, and nothing else of it
        return fallback, f"it raised {type(error).__name__}: {error}"
    return (fallback, problem) if problem else (found, "")


def report_policy_error(core: Core, now: Instant, sweep: JobId, asked: str, wrong: str) -> None:
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


def policy_errors(core: Core, sweep: JobId) -> tuple[str, ...]:
    """Return the errors of the last answers, in sentences."""
    return tuple(message for (concerned, _), message in core.sessions.faults.items() if concerned == sweep)
