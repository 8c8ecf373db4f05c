"""Groups a sweep's recorded results by the attempts whose directories hold the files, some thousand at a time."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koalapy.model.identity import AttemptId
from koalapy.model.parameters import ParameterResult, ResultBatch

PAGE = 2_000  # parameters of one attempt
_HELD = 20_000  # results of all attempts together; beyond this the largest page is yielded


class Marked:
    """A set of numbers from 1 to `most`, with one bit for each."""

    def __init__(self, most: int) -> None:
        self._bits = bytearray(most // 8 + 1)
        self.count = 0

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def mark(self, number: int) -> None:
        self.count += number not in self
        self._bits[number >> 3] |= 1 << (number & 7)


class Page(NamedTuple):
    cluster: str
    attempt: AttemptId
    results: tuple[ParameterResult, ...]


def pages(batches: Iterable[ResultBatch]) -> Iterator[Page]:
    """Yield every result once, in pages of one attempt each. Launchers report in turn, a few results at a time."""
    held: dict[tuple[str, AttemptId], list[ParameterResult]] = {}
    count = 0
    for batch in batches:
        key = batch.cluster, batch.attempt
        there = held.setdefault(key, [])
        there += batch.results
        count += len(batch.results)
        while len(there) >= PAGE:
            yield Page(*key, tuple(there[:PAGE]))
            del there[:PAGE]
            count -= PAGE
        if count >= _HELD:
            fullest = max(held, key=lambda each: len(held[each]))
            results = held.pop(fullest)
            count -= len(results)
            yield Page(*fullest, tuple(results))
    for key, results in held.items():
        if results:
            yield Page(*key, tuple(results))
