"""A slot's standard streams: two files that its parameters write one after another, each from where the last ended."""

import os
from typing import NamedTuple

OUT, ERRORS = 1, 2


class Part(NamedTuple):
    """The part of the two files that one parameter has written: where it begins, and its size in bytes."""

    out_at: int
    out_size: int
    errors_at: int
    errors_size: int


class Streams:
    """The standard streams of this process, and of the programs that it starts."""

    def __init__(self) -> None:
        self._out_at, self._errors_at = _size(OUT), _size(ERRORS)  # where the running parameter began to write

    def size(self) -> int:
        """The size of both files in bytes."""
        return _size(OUT) + _size(ERRORS)

    def growth(self) -> int:
        """The bytes that the running parameter has added to both files."""
        return self.size() - self._out_at - self._errors_at

    def part(self) -> Part:
        """The part of the running parameter so far. It begins no later than the files end: a program may empty them."""
        out_end, errors_end = _size(OUT), _size(ERRORS)
        out_at, errors_at = min(self._out_at, out_end), min(self._errors_at, errors_end)
        return Part(out_at, out_end - out_at, errors_at, errors_end - errors_at)

    def cut_off(self, limit: int) -> None:
        """Cut off what the running parameter has written beyond `limit` bytes, in either file: disks are shared."""
        for at, stream in ((self._out_at, OUT), (self._errors_at, ERRORS)):
            if _size(stream) - at > limit:
                _cut(stream, at + limit)

    def begin_part(self, part: Part) -> None:
        """Begin a new part behind this one, for the parameter that runs next."""
        self._out_at, self._errors_at = part.out_at + part.out_size, part.errors_at + part.errors_size


def write_error(number: int, why: str) -> None:
    """Write an error among those of the parameter."""
    try:
        os.write(ERRORS, ("koala: parameter %d: %s\n" % (number, why)).encode("utf-8", "replace"))
    except OSError:
        pass  # the disk is full: only the result shows the failure


def _size(stream: int) -> int:
    return os.fstat(stream).st_size


def _cut(stream: int, size: int) -> None:
    try:
        os.ftruncate(stream, size)
    except OSError:
        pass  # then the whole file is its output
