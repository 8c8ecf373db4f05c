"""What an attempt's processes write, read as one stream: standard output or standard error of all of them."""

import os
from typing import Dict, Iterator, List, Optional

from koalapy_adapters import layout
from koalapy_adapters.errors import RequestError

BATCH = "batch"  # what the wrapper itself and the batch system's launcher say
_KINDS = {"output": ".out", "errors": ".err"}


class Outputs:
    """Files that are read in order of ranks, each up to its last whole line while it may still grow. Methods block.

    `offset` bytes of the files as they are now, in order, are passed over.
    """

    mode = 0
    digest = ""

    def __init__(self, attempt: str, where: str, offset: int) -> None:
        if where != BATCH and where not in _KINDS:
            raise RequestError("bad_fetch", "There is nothing to fetch from %r." % where)
        self._attempt, self._where = attempt, where
        self._skip = offset
        self._read: Dict[str, int] = {}  # bytes read of each file
        self._pass: Optional[Iterator[bytes]] = None
        self.sent = 0

    def open(self) -> None:
        """Raises RequestError if there is no such attempt, OSError if that cannot be known now."""
        if not os.path.isdir(self._attempt):
            must_be_in_reach(self._attempt)
            raise RequestError("no_such_attempt", "The attempt's directory is not there.")

    def read(self, size: int, last: bool) -> bytes:
        """The next bytes, empty where there are none now. `last`: nothing more is written, half lines count."""
        if self._pass is None:
            self._pass = self._pass_through(size, whole_lines=not last)
        data = next(self._pass, b"")
        if not data:
            self._pass, self._skip = None, 0
        self.sent += len(data)
        return data

    def _pass_through(self, size: int, whole_lines: bool) -> Iterator[bytes]:
        """What is new in each file; only one file is open at a time, there may be thousands."""
        for path in self._paths():
            with open(path, "rb", buffering=0) as file:
                step = min(self._skip, os.fstat(file.fileno()).st_size)
                self._skip -= step
                position = file.seek(self._read.get(path, 0) + step)
                for data in iter(lambda: file.read(size), b""):
                    keep = data.rfind(b"\n") + 1 if whole_lines and len(data) < size else len(data)
                    position += keep
                    if keep:
                        yield data[:keep]
                    if keep < len(data):
                        break
                self._read[path] = position

    def _paths(self) -> List[str]:
        if self._where == BATCH:
            path = layout.inside(self._attempt, "batch.out")
            return [path] if os.path.exists(path) else []
        directory, suffix = os.path.dirname(layout.output_file(self._attempt, 0)), _KINDS[self._where]
        try:
            names = [name[: -len(suffix)] for name in os.listdir(directory) if name.endswith(suffix)]
        except FileNotFoundError:
            return []
        ranks = sorted(int(name) for name in names if name.isdigit())
        return [os.path.join(directory, "%d%s" % (rank, suffix)) for rank in ranks]


def must_be_in_reach(attempt: str) -> None:
    """Raises OSError where the shared directory is not there: then nothing can be said of what an attempt has left."""
    os.stat(os.path.dirname(attempt))
