"""The shortest list that still fails, as found within a number of tries (ddmin: Zeller and Hildebrandt, 2002)."""

import itertools
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

TRIES = 200  # runs are long, and the first few tries remove most actions
T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[list[T]], bool], tries: int = TRIES) -> list[T]:
    """Return a part of `items`, in order, for which `fails` is true; `items` themselves must fail.

    With enough tries the answer is minimal: without any single item it does not fail.
    """
    shortest, parts = list(items), 2
    budget = _Budget(fails, tries)
    if budget.fails([]):
        return []
    while len(shortest) > 1 and not budget.spent:
        smaller = _smaller(shortest, parts, budget)
        if smaller is not None:
            shortest, parts = smaller, max(2, parts - 1)
        elif parts >= len(shortest):
            break
        else:
            parts = min(len(shortest), 2 * parts)
    return shortest


class _Budget(Generic[T]):
    """Calls `fails` at most `tries` times."""

    def __init__(self, fails: Callable[[list[T]], bool], tries: int) -> None:
        self._fails, self._left = fails, tries

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def fails(self, items: list[T]) -> bool:
        """False once all tries are spent."""
        self._left -= 1
        return self._left >= 0 and self._fails(items)


def _smaller(items: list[T], parts: int, budget: _Budget[T]) -> list[T] | None:
    """Return `items` without one of so many parts, or None. The last part is tried first: late actions matter least."""
    bounds = [len(items) * part // parts for part in range(parts + 1)]
    for begin, end in reversed(list(itertools.pairwise(bounds))):
        rest = items[:begin] + items[end:]
        if begin < end and budget.fails(rest):
            return rest
    return None
