"""An attempt's files as streams: the output of its processes, and files in its working directory. Methods block.

Each file, list of files or set of small files is read as one stream. Nothing outside the working directory is read.
"""

import errno
import hashlib
import json
import os
import stat
from typing import Any, Dict, Iterator, List, Optional, Tuple

from koalapy_adapters import layout
from koalapy_adapters.confined import Confined, LeadsOutError
from koalapy_adapters.errors import RequestError
from koalapy_adapters.trees import Budget, expand, is_inside, native

BATCH = "batch"  # what the wrapper itself and the batch system's launcher print
_KINDS = {"output": ".out", "errors": ".err"}
_HEADER = 40  # bytes that are kept for a line before a stretch
_READ = 1 << 16
_BLOCK = 1 << 16
_SMALL = 16 << 20  # more is no small file


class Outputs:
    """Standard output or standard error of all processes as one stream, in order of ranks.

    `positions`: bytes of the ranks' files that were read before, [rank, bytes] each. What is sent is of that moment: a
    line of JSON, [rank, size], comes before each stretch. None: the files as they are, one after the other.
    `most`: bytes of each file that are sent, its begin and its end if it has more (see messages.Fetch); -1: all.
    """

    mode = 0
    digest = ""

    def __init__(self, attempt: str, where: str, positions: Optional[List[List[int]]] = None, most: int = -1) -> None:
        if where != BATCH and where not in _KINDS:
            raise RequestError("bad_fetch", "There is nothing to fetch from %r." % where)
        self._attempt, self._where, self._most = attempt, where, most
        self._reports_ranks = positions is not None
        self._read: Dict[int, int] = {}  # bytes of each rank's file
        for rank, position in positions or []:
            self._read[rank] = position
        self._pass: Optional[Iterator[bytes]] = None
        self.sent = 0

    def open(self) -> None:
        """Raises RequestError if there is no such attempt, OSError if that cannot be known now."""
        if not os.path.isdir(self._attempt):
            must_be_in_reach(self._attempt)
            raise RequestError("no_such_attempt", "The attempt's directory is not there.")

    def read(self, size: int, last: bool) -> bytes:
        """The next bytes, empty where there are none now; what is written meanwhile comes by the next look."""
        if self._pass is None:
            self._pass = self._pass_through(size)
        data = next(self._pass, b"")
        if not data:
            self._pass = None
        self.sent += len(data)
        return data

    def _pass_through(self, size: int) -> Iterator[bytes]:
        """Read the new bytes of each file. Only one file is open at a time: there may be thousands."""
        for rank, path in self._files():
            position = self._read.get(rank, 0)
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    continue  # put there by the program: of a FIFO it could be waited for ever
                for begin, end, omitted_bytes in self._parts(position, status.st_size):
                    file.seek(begin)
                    position = begin
                    while position < end:
                        data = file.read(min(size - _HEADER, end - position))
                        if not data:
                            break
                        position += len(data)
                        self._read[rank] = position
                        yield self._header(rank, len(data), omitted_bytes) + data
                        omitted_bytes = 0

    def _parts(self, position: int, size: int) -> List[Tuple[int, int, int]]:
        """(begin, end, bytes left out before it) of what is sent of a file of this size."""
        if self._most < 0 or size <= self._most:
            return [(position, size, 0)]
        end = self._most // 2
        begin = size - (self._most - end)
        return [] if position else [(0, end, 0), (begin, size, begin - end)]

    def _header(self, rank: int, size: int, omitted_bytes: int) -> bytes:
        if not self._reports_ranks:
            return b""
        return b"[%d,%d,%d]\n" % (rank, size, omitted_bytes) if omitted_bytes else b"[%d,%d]\n" % (rank, size)

    def _files(self) -> List[Tuple[int, str]]:
        if self._where == BATCH:
            path = layout.inside(self._attempt, "batch.out")
            return [(0, path)] if os.path.exists(path) else []
        directory, suffix = os.path.dirname(layout.output_file(self._attempt, 0)), _KINDS[self._where]
        try:
            names = [name[: -len(suffix)] for name in os.listdir(directory) if name.endswith(suffix)]
        except FileNotFoundError:
            return []
        ranks = sorted(int(name) for name in names if name.isdigit())
        return [(rank, os.path.join(directory, "%d%s" % (rank, suffix))) for rank in ranks]


def must_be_in_reach(attempt: str) -> None:
    """Raises OSError where the shared directory is not there: then it is unknown what an attempt has left."""
    os.stat(os.path.dirname(attempt))


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
        budget = Budget()
        for pattern in self._patterns:
            for found in expand(_work(self._attempt), pattern, budget=budget):
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
    """Open a plain file below a directory of the attempt. Raises RequestError for anything else."""
    try:
        with Confined(layout.inside(attempt, below)) as files:
            descriptor = files.open(native(path))
    except LeadsOutError as error:
        message = "%s is a link that leads out of the working directory." % path
        raise RequestError("no_plain_file", message) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        must_be_in_reach(attempt)
        raise RequestError("no_such_file", "The attempt left no file %s." % path) from error
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ELOOP):
            raise
        raise RequestError("no_plain_file", "%s is not a plain file." % path) from error
    return open(descriptor, "rb"), os.fstat(descriptor)  # its reader closes it


def _work(attempt: str) -> str:
    return layout.inside(attempt, "work")


def size_of(attempt: str, path: str) -> Optional[int]:
    """Size in bytes; None if the path is no file in the working directory. Raises OSError if that is unknown."""
    if not is_inside(path):
        return None
    try:
        with Confined(_work(attempt)) as files:
            status = files.look(native(path)).status
    except (FileNotFoundError, NotADirectoryError):
        must_be_in_reach(attempt)
        return None
    except OSError as error:
        if not isinstance(error, LeadsOutError) and error.errno != errno.ELOOP:
            raise
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
