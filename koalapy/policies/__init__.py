"""Policies: pure functions with registered names that the grid file selects. Entry points can add further ones."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call_policy(ask: Callable[[], T], wrong: Callable[[T], str], fallback: T) -> tuple[T, str]:
    """Call a policy. Returns (answer, ''), or (`fallback`, error text) if it raises or answers nonsense.

    `wrong` returns the error in an answer, '' if it is valid.
    """
    try:
        found = ask()
        problem = wrong(found)
    except (Exception, SystemExit) as error:  # SystemExit would end koalad's thread but not koalad
        return fallback, f"it raised {type(error).__name__}: {error}"
    return (fallback, problem) if problem else (found, "")
