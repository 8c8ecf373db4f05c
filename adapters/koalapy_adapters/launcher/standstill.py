"""When the batch job stood still, which says nothing of how long its parameters take."""

from collections import deque
from typing import Deque, Tuple

_KEPT = 64  # a parameter that lived through more counts as longer than it was


class Standstill:
    """Instants and durations are microseconds."""

    def __init__(self) -> None:
        self._spans: Deque[Tuple[int, int]] = deque(maxlen=_KEPT)

    def note(self, since: int, until: int) -> None:
        self._spans.append((since, until))

    def ran(self, started_at: int, ended_at: int) -> int:
        """How much of that time it did not stand still."""
        stood = sum(max(0, min(until, ended_at) - max(since, started_at)) for since, until in self._spans)
        return max(0, ended_at - started_at - stood)
