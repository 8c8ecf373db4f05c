"""A page of memory that slots and Launcher share, for states that need no message."""

import mmap
import struct
from typing import List, NamedTuple

_SLOT = struct.Struct("=qq")


class At(NamedTuple):
    """The number that a slot runs, and since when; 0 if it runs none."""

    number: int
    since: int


class Pages:
    """The states of all slots, in memory that the Launcher shares with them. It is made before the forks."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._memory = mmap.mmap(-1, _SLOT.size * slots + 1)
        self._trial = _SLOT.size * slots
        self._memory[self._trial] = 1

    def runs(self, slot: int, number: int, since: int) -> None:
        _SLOT.pack_into(self._memory, _SLOT.size * slot, number, since)

    def at(self, slot: int) -> At:
        return At(*_SLOT.unpack_from(self._memory, _SLOT.size * slot))

    def all(self) -> List[At]:
        """The state of every slot."""
        return [self.at(slot) for slot in range(self._slots)]

    @property
    def on_trial(self) -> bool:
        """Return whether failures at once are no results yet."""
        return bool(self._memory[self._trial])

    def end_trial(self) -> None:
        self._memory[self._trial] = 0
