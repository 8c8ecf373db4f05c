"""What an attempt's processes write, read as one stream: standard output or standard error of all of them."""

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
    """

    mode = 0
    digest = ""

    def __init__(self, attempt: str, where: str, positions: Optional[List[List[int]]] = None) -> None:
        if where != BATCH and where not in _KINDS:
            raise RequestError("bad_fetch", "There is nothing to fetch from %r." % where)
        self._attempt, self._where = attempt, where
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
        """What is new in each file; only one file is open at a time, there may be thousands."""
        for rank, path in self._files():
            position = self._read.get(rank, 0)
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    continue  # put there by the program: of a FIFO it could be waited for ever
                file.seek(position)
                while position < status.st_size:
                    data = file.read(min(size - _HEADER, status.st_size - position))
                    if not data:
                        break
                    position += len(data)
                    self._read[rank] = position
                    yield (b"[%d,%d]\n" % (rank, len(data)) if self._says_ranks else b"") + data

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
