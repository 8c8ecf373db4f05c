"""Output of an attempt's processes as one stream: standard output or standard error of all of them."""

import os
import stat
from typing import Dict, Iterator, List, Optional, Tuple

from koalapy_adapters import layout
from koalapy_adapters.errors import RequestError

BATCH = "batch"  # what the wrapper itself and the batch system's launcher say
_KINDS = {"output": ".out", "errors": ".err"}
_HEADER = 40  # bytes that are kept for a line before a stretch


class Outputs:
    """Files that are read in order of ranks. Methods block.

    `positions`: bytes of the ranks' files that were read before, [rank, bytes] each. What is sent is said of then: a
    line of JSON, [rank, size], comes before each stretch. None: the files as they are, one after the other.
    `most`: bytes of each file that are sent, its begin and its end if it has more (see messages.Fetch); -1: all.
    """

    mode = 0
    digest = ""

    def __init__(self, attempt: str, where: str, positions: Optional[List[List[int]]] = None, most: int = -1) -> None:
        if where != BATCH and where not in _KINDS:
            raise RequestError("bad_fetch", "There is nothing to fetch from %r." % where)
        self._attempt, self._where, self._most = attempt, where, most
        self._says_ranks = positions is not None
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
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    continue  # put there by the program: of a FIFO it could be waited for ever
                for begin, end, left_out in self._parts(position, status.st_size):
                    file.seek(begin)
                    position = begin
                    while position < end:
                        data = file.read(min(size - _HEADER, end - position))
                        if not data:
                            break
                        position += len(data)
                        self._read[rank] = position
                        yield self._header(rank, len(data), left_out) + data
                        left_out = 0

    def _parts(self, position: int, size: int) -> List[Tuple[int, int, int]]:
        """(begin, end, bytes left out before it) of what is sent of a file of this size."""
        if self._most < 0 or size <= self._most:
            return [(position, size, 0)]
        end = self._most // 2
        begin = size - (self._most - end)
        return [] if position else [(0, end, 0), (begin, size, begin - end)]

    def _header(self, rank: int, size: int, left_out: int) -> bytes:
        if not self._says_ranks:
            return b""
        return b"[%d,%d,%d]\n" % (rank, size, left_out) if left_out else b"[%d,%d]\n" % (rank, size)

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
    """Raises OSError where the shared directory is not there: then nothing can be said of what an attempt has left."""
    os.stat(os.path.dirname(attempt))
