"""Numbers of parameters as ranges, the form in which messages carry them."""

from typing import Iterable, Iterator, List

Ranges = List[List[int]]  # [first, last] each, both included
MANY = 20000  # ranges that fit into one message


def numbers_of(ranges: Ranges) -> Iterator[int]:
    """The numbers of ranges, in order."""
    for first, last in ranges:
        yield from range(first, last + 1)


def ranges_of(numbers: Iterable[int]) -> Ranges:
    """The fewest ranges that hold these numbers in this order."""
    ranges: Ranges = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges
