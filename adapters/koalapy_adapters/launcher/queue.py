"""The node's queue of numbers: a pipe from which each slot reads one number at a time, when it is free.

A number is 8 bytes. Reads and writes of a pipe exclude each other in the kernel, and its pages hold whole numbers.
"""

import array
import fcntl
import os
import struct
import termios
from collections import deque
from typing import Deque, List

_NUMBER = struct.Struct("=q")
_AT_ONCE = 4096


class Queue:
    """The Launcher's end. Numbers for which the pipe has no room wait here."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._again = reopened(self.reading)
        self._waiting: Deque[int] = deque()

    def put(self, numbers: List[int]) -> None:
        self._waiting.extend(numbers)
        self.flush()

    def flush(self) -> None:
        """Write as many waiting numbers as the pipe has room for."""
        while self._waiting:
            part = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE // _NUMBER.size))]
            try:
                written = os.write(self._writing, b"".join(map(_NUMBER.pack, part))) // _NUMBER.size
            except BlockingIOError:
                written = 0
            self._waiting.extendleft(reversed(part[written:]))
            if written < len(part):
                return

    def take_back(self) -> List[int]:
        """Remove and return all numbers that no slot has read."""
        data = b""
        while True:
            try:
                part = os.read(self._again, _AT_ONCE)
            except BlockingIOError:
                break
            if not part:
                break
            data += part
        numbers = [number for (number,) in _NUMBER.iter_unpack(data)] + list(self._waiting)
        self._waiting.clear()
        return numbers

    def __len__(self) -> int:
        size = array.array("i", [0])
        fcntl.ioctl(self.reading, termios.FIONREAD, size)
        return size[0] // _NUMBER.size + len(self._waiting)

    @property
    def descriptors(self) -> List[int]:
        """The descriptors that a slot must not inherit: it would never see the end of file."""
        return [self._writing, self._again]

    def close(self) -> None:
        """Close the writing end. Slots that wait for a number end."""
        os.close(self._writing)


class Puller:
    """A slot's end of the queue."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._again = reopened(reading)

    def next_at_once(self) -> int:
        """The next number, without waiting; 0 if there is none now, or none will come."""
        try:
            return _number(os.read(self._again, _NUMBER.size))
        except BlockingIOError:
            return 0

    def next(self) -> int:
        """The next number. Waits for one; 0 if none will come."""
        return _number(os.read(self._reading, _NUMBER.size))


def reopened(descriptor: int) -> int:
    """Open the same pipe again, for reading without waiting: O_NONBLOCK belongs to the open file, not the number."""
    return os.open("/proc/self/fd/%d" % descriptor, os.O_RDONLY | os.O_NONBLOCK)


def _number(data: bytes) -> int:
    return int(_NUMBER.unpack(data)[0]) if data else 0
