"""Files in an attempt's working directory: their list, one large file, or many small ones. Methods block.

Each is read as one stream, and looks at nothing outside of the working directory.
"""

import hashlib
import json
import os
import stat
from typing import Any, Iterator, List, Optional, Tuple

from koalapy_adapters import layout
from koalapy_adapters.errors import RequestError
from koalapy_adapters.kcm.shared_directory.output import must_be_in_reach
from koalapy_adapters.trees import expand, is_inside, native

_READ = 1 << 16
_BLOCK = 1 << 16
_SMALL = 16 << 20  # more is no small file


class FileList:
    """Lines of JSON, a trees.Found each, of what patterns name; an entry that two of them name comes twice."""

    mode = 0

    def __init__(self, attempt: str, patterns: List[str]) -> None:
        for pattern in patterns:
            if pattern.startswith("/") or "\0" in pattern or ".." in pattern.split("/"):
                raise RequestError("bad_fetch", "%r leads out of the working directory." % pattern)
        self._attempt, self._patterns = attempt, patterns
        self._blocks = iter(())  # type: Iterator[bytes]
        self._hash = hashlib.sha256()
        self.sent = 0

    def open(self) -> None:
        """Raises RequestError if there is no such attempt, OSError if that cannot be known now."""
        if not os.path.isdir(_work(self._attempt)):
            must_be_in_reach(self._attempt)
            raise RequestError("no_such_attempt", "The attempt's directory is not there.")
        self._blocks = _blocks(self._lines())

    def read(self, size: int, last: bool) -> bytes:
        return _counted(self, next(self._blocks, b""))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def _lines(self) -> Iterator[bytes]:
        for pattern in self._patterns:
            for found in expand(_work(self._attempt), pattern):
                yield json.dumps(list(found)).encode() + b"\n"


class OneFile:
    """A file from `offset` on; its hash is of all of it."""

    def __init__(self, attempt: str, path: str, offset: int) -> None:
        if not is_inside(path):
            raise RequestError("bad_fetch", "There is nothing to fetch from 'work', %r." % path)
        self._attempt, self._path, self._offset = attempt, path, offset
        self._file = None  # type: Optional[Any]
        self._hash = hashlib.sha256()
        self.sent = 0
        self.mode = 0

    def open(self) -> None:
        """Raises RequestError if there is no such file or attempt, OSError if that cannot be known now."""
        self._file, status = _open(self._attempt, self._path)
        self.mode = stat.S_IMODE(status.st_mode)
        left = self._offset
        while left:
            data = self._file.read(min(_READ, left))
            if not data:
                break
            self._hash.update(data)
            left -= len(data)

    def read(self, size: int, last: bool) -> bytes:
        assert self._file is not None
        return _counted(self, self._file.read(size))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class FileRange:
    """`length` bytes of what a Launcher's slot wrote, from `offset` on, or as many as there are; no others are read."""

    digest = ""

    def __init__(self, attempt: str, path: str, offset: int, length: int) -> None:
        if not is_inside(path):
            raise RequestError("bad_fetch", "There is nothing to fetch from 'slot', %r." % path)
        self._attempt, self._path, self._offset, self._left = attempt, path, offset, length
        self._file = None  # type: Optional[Any]
        self.sent = 0
        self.mode = 0

    def open(self) -> None:
        """Raises RequestError if there is no such file or attempt, OSError if that cannot be known now."""
        self._file, status = _open(self._attempt, self._path, below="output")
        self.mode = stat.S_IMODE(status.st_mode)
        self._file.seek(self._offset)

    def read(self, size: int, last: bool) -> bytes:
        assert self._file is not None
        data = self._file.read(min(size, self._left))  # type: bytes
        self._left -= len(data)
        self.sent += len(data)
        return data

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ManyFiles:
    """See messages.FetchMany."""

    mode = 0

    def __init__(self, attempt: str, paths: List[str]) -> None:
        if not all(is_inside(path) for path in paths):
            raise RequestError("bad_fetch", "A path leads out of the working directory.")
        self._attempt, self._paths = attempt, paths
        self._blocks = _blocks(self._pieces())
        self._hash = hashlib.sha256()
        self.sent = 0

    def open(self) -> None:
        must_be_in_reach(self._attempt)

    def read(self, size: int, last: bool) -> bytes:
        return _counted(self, next(self._blocks, b""))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def _pieces(self) -> Iterator[bytes]:
        for path in self._paths:
            try:
                file, status = _open(self._attempt, path)
            except RequestError:
                yield b"null\n"
                continue
            with file:
                content = file.read(min(status.st_size, _SMALL))
            facts = [len(content), stat.S_IMODE(status.st_mode), status.st_mtime_ns]
            yield json.dumps(facts).encode() + b"\n" + content


def _counted(stream: Any, data: bytes) -> bytes:
    stream._hash.update(data)
    stream.sent += len(data)
    return data


def _blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in blocks that fill a chunk each, but for the last."""
    left = bytearray()
    for piece in pieces:
        left += piece
        while len(left) >= _BLOCK:
            yield bytes(left[:_BLOCK])
            del left[:_BLOCK]
    if left:
        yield bytes(left)


def _open(attempt: str, path: str, below: str = "work") -> Tuple[Any, os.stat_result]:
    """Raises RequestError for what is no plain file below the working directory: a FIFO would block for ever."""
    work = layout.inside(attempt, below)
    full = os.path.join(work, native(path))
    try:
        status = os.stat(full)
    except (FileNotFoundError, NotADirectoryError) as error:
        must_be_in_reach(attempt)
        raise RequestError("no_such_file", "The attempt left no file %s." % path) from error
    if not stat.S_ISREG(status.st_mode):
        raise RequestError("no_plain_file", "%s is not a plain file." % path)
    if not os.path.realpath(full).startswith(os.path.realpath(work) + "/"):
        raise RequestError("no_plain_file", "%s is a link that leads out of the working directory." % path)
    file = open(full, "rb")  # noqa: SIM115 (its reader closes it)
    return file, os.fstat(file.fileno())


def _work(attempt: str) -> str:
    return layout.inside(attempt, "work")


def size_of(attempt: str, path: str) -> Optional[int]:
    """Size in bytes; None if the path is no file in the working directory. Raises OSError if that is unknown."""
    if not is_inside(path):
        return None
    try:
        status = os.stat(os.path.join(_work(attempt), native(path)))
    except (FileNotFoundError, NotADirectoryError):
        must_be_in_reach(attempt)
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
