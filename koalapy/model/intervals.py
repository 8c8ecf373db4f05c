"""Sets of whole numbers, stored as few intervals: a million parameters done in order are one pair."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Pairs (first, last), both ends included, ascending, neither touching nor overlapping. Make them by `of`."""

    pairs: tuple[Pair, ...] = ()

    @staticmethod
    def of(pairs: Iterable[Pair]) -> "Intervals":
        """Make a set of pairs in any order, which may overlap. A pair whose first number is above its last is empty."""
        merged: list[Pair] = []
        for first, last in sorted(pair for pair in pairs if pair[0] <= pair[1]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(merged[-1][1], last)
            else:
                merged.append((first, last))
        return Intervals(tuple(merged))

    @staticmethod
    def numbers(numbers: Iterable[int]) -> "Intervals":
        return Intervals.of((number, number) for number in numbers)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.pairs:
            yield from range(first, last + 1)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.pairs, number, key=lambda pair: pair[0]) - 1
        return place >= 0 and number <= self.pairs[place][1]

    def __or__(self, other: "Intervals") -> "Intervals":
        return Intervals.of((*self.pairs, *other.pairs))

    def __and__(self, other: "Intervals") -> "Intervals":
        return self - (self - other)

    def __sub__(self, other: "Intervals") -> "Intervals":
        left: list[Pair] = []
        holes = iter(other.pairs)
        hole = next(holes, None)
        for first, last in self.pairs:
            while hole is not None and hole[1] < first:
                hole = next(holes, None)
            while hole is not None and hole[0] <= last:
                if first < hole[0]:
                    left.append((first, hole[0] - 1))
                first = hole[1] + 1
                if hole[1] >= last:
                    break  # it may reach into the next pair
                hole = next(holes, None)
            if first <= last:
                left.append((first, last))
        return Intervals(tuple(left))

    def lowest(self, count: int) -> "Intervals":
        """Return the `count` lowest numbers, or all if there are fewer."""
        taken: list[Pair] = []
        for first, last in self.pairs:
            if count <= 0:
                break
            taken.append((first, min(last, first + count - 1)))
            count -= taken[-1][1] - first + 1
        return Intervals(tuple(taken))


NONE = Intervals()
