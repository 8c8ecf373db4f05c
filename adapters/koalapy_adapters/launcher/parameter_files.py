"""Lines of a sweep's files by random access. A file is read once at its first use, and little of it is kept."""

import os
from array import array
from typing import Dict, List

_APART = 256  # lines; a million of them cost 32 kB
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Lines:
    """The lines of the files below a directory. The files must not change meanwhile. For use by one thread."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._files: Dict[str, _File] = {}

    def read(self, file: str, index: int) -> bytes:
        """The line of this index from 0, without its end (LF or CR LF). Raises ValueError if there is none."""
        found = self._files.get(file)
        if found is None:
            found = self._files[file] = _File(os.path.join(self._directory, file), file)
        return found.line(index)


class _File:
    """A file: the positions of every 256th line, and the lines of the block that was read last."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._name = path, name
        try:
            self._starts = _starts(path)
        except OSError as error:
            raise ValueError("%s: %s" % (name, error.strerror)) from error
        self._block = -1
        self._lines: List[bytes] = []

    def line(self, index: int) -> bytes:
        block, place = divmod(index, _APART)
        if block != self._block:
            self._lines = self._read(block)
            self._block = block
        if place >= len(self._lines):
            raise ValueError("%s has no line %d" % (self._name, index + 1))
        return self._lines[place]

    def _read(self, block: int) -> List[bytes]:
        if block + 1 >= len(self._starts):
            return []
        start, end = self._starts[block], self._starts[block + 1]
        try:
            with open(self._path, "rb") as file:
                file.seek(start)
                data = file.read(end - start)
        except OSError as error:
            raise ValueError("%s: %s" % (self._name, error.strerror)) from error
        if len(data) < end - start:
            raise ValueError("%s has been cut short" % self._name)
        return lines_of(data, first=block == 0)


def lines_of(data: bytes, first: bool = False) -> List[bytes]:
    """The lines of a part of a file that ends with a line or with the file. `first`: the part begins the file."""
    if first and data.startswith(_BYTE_ORDER_MARK):
        data = data[len(_BYTE_ORDER_MARK) :]
    lines = data.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


def _starts(path: str) -> "array[int]":
    """The positions of every 256th line, and that of the end of the file."""
    starts, at = array("Q"), 0
    with open(path, "rb") as file:
        for index, line in enumerate(file):
            if index % _APART == 0:
                starts.append(at)
            at += len(line)
    starts.append(at)
    return starts
