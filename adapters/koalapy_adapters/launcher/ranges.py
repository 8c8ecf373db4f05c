"""Numbers as the messages have them: lists of [first, last], both included."""

from typing import Collection, Iterable, List


def of(numbers: Collection[int]) -> List[List[int]]:
    """Ascending, as few as can be."""
    found: List[List[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def numbers(ranges: Iterable[List[int]]) -> List[int]:
    """In the order of the ranges."""
    return [number for first, last in ranges for number in range(first, last + 1)]
