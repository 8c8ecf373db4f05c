"""Waits between tries."""


class Backoff:
    """A wait that grows by so many percent each time, from `first` up to `limit` (microseconds)."""

    def __init__(self, first: int, limit: int, growth: int = 100) -> None:
        self._next, self._limit, self._growth = first, limit, growth

    def after(self, now: int) -> int:
        """The instant of the next try."""
        wait, self._next = self._next, min(self._next * (100 + self._growth) // 100, self._limit)
        return now + wait
