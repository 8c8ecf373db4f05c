"""The assignment of jobs to processors of a cluster, for the figure: the engine only counts processors."""

import heapq
from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koalapy.model.errors import OurError


class Block(NamedTuple):
    """Processors from `low` to below `high`, taken by a job from `start` to `end`. `row`: its row in the record."""

    row: int
    start: int
    end: int
    low: int
    high: int


class Use(NamedTuple):
    """Processors in use from `start` to `end`. `row`: the job's row in the record."""

    start: int
    end: int
    row: int
    processors: int


def blocks(uses: Iterable[Use], size: int) -> Iterator[Block]:
    """Yield the blocks of the uses, which are ordered by their start. Each gets the lowest adjacent free processors.

    If there are not enough adjacent ones, a use has several blocks. Raises OurError if more processors are used at one
    time than there are.
    """
    free = [(0, size)]
    ends: list[tuple[int, int, int]] = []
    for use in uses:
        while ends and ends[0][0] <= use.start:
            _, low, high = heapq.heappop(ends)
            _give(free, low, high)
        for low, high in _take(free, use.processors):
            heapq.heappush(ends, (use.end, low, high))
            yield Block(use.row, use.start, use.end, low, high)


def _take(free: list[tuple[int, int]], processors: int) -> list[tuple[int, int]]:
    for index, (low, high) in enumerate(free):
        if high - low >= processors:
            free[index : index + 1] = [(low + processors, high)] if high - low > processors else []
            return [(low, low + processors)]
    return _take_apart(free, processors)


def _take_apart(free: list[tuple[int, int]], processors: int) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    while processors:
        if not free:
            raise OurError("overbooked", "A replay gave out more processors than there are.", "Report this.")
        low, high = free.pop(0)
        cut = min(high, low + processors)
        if cut < high:
            free.insert(0, (cut, high))
        taken.append((low, cut))
        processors -= cut - low
    return taken


def _give(free: list[tuple[int, int]], low: int, high: int) -> None:
    """Put processors back in order, and join them with adjacent free ones."""
    index = bisect(free, (low, low))
    if index < len(free) and free[index][0] == high:
        high = free.pop(index)[1]
    if index and free[index - 1][1] == low:
        low = free.pop(index - 1)[0]
        index -= 1
    free.insert(index, (low, high))
