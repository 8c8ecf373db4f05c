"""The results of a Launcher until koalad has committed them, in numbered batches."""

from collections import OrderedDict
from typing import Any, List

from koalapy_adapters.clock import SECOND
from koalapy_adapters.launcher.events import Row
from koalapy_adapters.messages.launcher import ResultsReported

APART = SECOND // 20  # between two batches, so that short parameters travel together
MOST = 2000  # rows of a batch; a message has at most 1 MiB


class Results:
    """The results that koalad has not committed. Call `mark_unsent` after each new connection."""

    def __init__(self) -> None:
        self._rows: List[Row] = []
        self._batches: "OrderedDict[int, ResultsReported]" = OrderedDict()
        self._number = 0
        self._sent = 0  # over this connection: batches up to this number
        self._sent_at = -APART

    def add(self, rows: List[Row]) -> None:
        self._rows += rows

    def kept(self, number: int) -> None:
        """Drop the batches up to this one, which koalad has committed."""
        while self._batches and next(iter(self._batches)) <= number:
            self._batches.popitem(last=False)

    def mark_unsent(self) -> None:
        self._sent, self._sent_at = 0, -APART

    def due(self) -> List[int]:
        """The instant at which a batch is to be sent, as a list; empty if there is none."""
        return [self._sent_at + APART] if self._rows or self._sent < self._number else []

    def due_batches(self, now: int, at_once: bool = False) -> List[Any]:
        """The batches to send now: those not sent over this connection, at least APART after the last ones."""
        if not at_once and (not self.due() or now < self._sent_at + APART):
            return []
        while self._rows:
            self._number += 1
            self._batches[self._number] = ResultsReported(self._number, self._rows[:MOST])
            del self._rows[:MOST]
        due = [batch for number, batch in self._batches.items() if number > self._sent]
        self._sent, self._sent_at = self._number, now
        return due
