"""How a policy is asked: one that raises, or answers what is no answer, changes nothing."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def answer(ask: Callable[[], T], wrong: Callable[[T], str], otherwise: T) -> tuple[T, str]:
    """The policy's answer and '', or what is done without one, and what is wrong with it."""
    try:
        found = ask()
        problem = wrong(found)
    except (Exception, SystemExit) as error:  # which would end koalad's thread, and nothing else of it
        return otherwise, f"it raised {type(error).__name__}: {error}"
    return (otherwise, problem) if problem else (found, "")
