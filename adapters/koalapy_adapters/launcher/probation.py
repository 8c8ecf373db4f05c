"""Whether a node is to blame: the first parameters of a Launcher that all fail at once are nobody's results yet."""

from typing import Container, List

from koalapy_adapters.launcher.events import NUMBER, Row


class Probation:
    """`on`: until one has done better, or koalad has said that the program is to blame. `suspected`: the node is."""

    def __init__(self, most: int) -> None:
        """`most`: failures at once, and nothing else, after which it is suspected."""
        self.on = True
        self.suspected = False
        self._most = most
        self._loose: List[Row] = []
        self._failures = 0

    def failed(self, rows: List[Row]) -> None:
        """At once, each of them."""
        self._loose += rows
        self._failures += len(rows)

    @property
    def untold(self) -> int:
        """How many failures nobody was told of."""
        return len(self._loose)

    @property
    def numbers(self) -> List[int]:
        """The numbers of these failures."""
        return [row[NUMBER] for row in self._loose]

    def suspect(self) -> bool:
        """Whether it is suspected from now on, and was not before."""
        before, self.suspected = self.suspected, self.suspected or self._failures >= self._most
        return self.suspected and not before

    def clear(self) -> bool:
        """The node is not to blame; whether that is news."""
        before, self.on, self.suspected = self.on, False, False
        return before

    def release(self, held: Container[int]) -> List[Row]:
        """The failures, those of parameters that are still held: they are results like others."""
        rows, self._loose = [row for row in self._loose if row[NUMBER] in held], []
        return rows
