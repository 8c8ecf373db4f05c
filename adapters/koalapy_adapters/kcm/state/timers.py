"""Instants: when something is tried again, and when time alone changes an attempt, the earliest first."""

import heapq
from typing import Dict, List, Optional, Tuple

_FEW = 64


class Timers:
    """One moment an attempt, by its tag. What the heap holds besides is stale, and falls off at its top."""

    def __init__(self) -> None:
        self._moments: Dict[str, int] = {}
        self._heap: List[Tuple[int, str]] = []

    def set(self, tag: str, moment: Optional[int]) -> None:
        """Set the instant at which the attempt is due; None removes it."""
        if moment is None:
            self._moments.pop(tag, None)
        elif moment != self._moments.get(tag):
            self._moments[tag] = moment
            heapq.heappush(self._heap, (moment, tag))
            if len(self._heap) > 2 * len(self._moments) + _FEW:
                self._heap = sorted((moment, tag) for tag, moment in self._moments.items())

    def next(self) -> Optional[int]:
        """The earliest moment that is set."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def expire(self, now: int) -> List[str]:
        """The attempts whose moment has come, the earliest first; their moments are no longer set."""
        due: List[str] = []
        moment = self.next()
        while moment is not None and moment <= now:
            tag = heapq.heappop(self._heap)[1]
            del self._moments[tag]
            due.append(tag)
            moment = self.next()
        return due


class Backoff:
    """A wait that grows by so many percent each time, from `first` up to `limit` (microseconds)."""

    def __init__(self, first: int, limit: int, growth: int = 100) -> None:
        self._next, self._limit, self._growth = first, limit, growth

    def after(self, now: int) -> int:
        """The instant of the next try."""
        wait, self._next = self._next, min(self._next * (100 + self._growth) // 100, self._limit)
        return now + wait
