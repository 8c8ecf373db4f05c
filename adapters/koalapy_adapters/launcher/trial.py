"""The trial of a node: if a Launcher's first parameters all fail at once, their failures are no results yet."""

from typing import Container, List

from koalapy_adapters.launcher.events import NUMBER, Row


class Trial:
    """`on`: no parameter has done better yet, nor has koalad blamed the program. `suspected`: the node is suspected."""

    def __init__(self, most: int) -> None:
        """`most`: the number of failures at once, without a success, after which the node is suspected."""
        self.on = True
        self.suspected = False
        self._most = most
        self._loose: List[Row] = []
        self._failures = 0

    def failed(self, rows: List[Row]) -> None:
        """Add failures, each of which happened at once."""
        self._loose += rows
        self._failures += len(rows)

    @property
    def withheld(self) -> int:
        """The number of withheld failures."""
        return len(self._loose)

    @property
    def numbers(self) -> List[int]:
        """The parameters of the withheld failures."""
        return [row[NUMBER] for row in self._loose]

    def suspect(self) -> bool:
        """Return whether the node is suspected now and was not before."""
        before, self.suspected = self.suspected, self.suspected or self._failures >= self._most
        return self.suspected and not before

    def clear(self) -> bool:
        """End the trial: the node is not to blame. Returns whether the trial was on."""
        before, self.on, self.suspected = self.on, False, False
        return before

    def release(self, held: Container[int]) -> List[Row]:
        """Return the withheld failures of parameters that are still held: they are results like others."""
        rows, self._loose = [row for row in self._loose if row[NUMBER] in held], []
        return rows
