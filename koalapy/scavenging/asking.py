"""How a policy is asked: one that raises, or answers what is no answer, changes nothing."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def answer(ask: Callable[[], T], wrong: Callable[[T], str], otherwise: T) -> tuple[T, str]:
    """The policy's answer and '', or what is done without one, and what is wrong with it."""
    try:
        found = ask()
        problem = wrong(found)
    except Exception as error:
        return otherwise, f"it raised {type(error).__name__}: {error}"
    return (otherwise, problem) if problem else (found, "")
