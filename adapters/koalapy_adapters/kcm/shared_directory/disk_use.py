"""Disk use of one store in a shared directory: bytes and directories of attempts, counted slowly beside all else."""

import os
import re
import time
from typing import Any, Callable, Dict, Iterator, Optional

_TAG = re.compile(r"k[0-9a-z]{14}")
_BLOCK = 512  # bytes of a unit of st_blocks
_STRETCH = 200  # entries between two rests
_REST = 4.0  # times as long as such a stretch took
LONGEST = 40.0  # seconds that a count may take


class Counter:
    """Counts below `directory`, that of a store or attempt. `count` blocks; two calls at one time count twice."""

    def __init__(
        self,
        directory: str,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory, self._clock, self._rest = directory, clock, rest

    def count(self) -> Dict[str, Any]:
        """The details that messages.DiskUse is answered with. Raises OSError if the directory cannot be read.

        What vanishes or cannot be read meanwhile counts for nothing. After LONGEST seconds it ends as it is, not whole.
        """
        began = since = self._clock()
        attempts = size = staged = entries = 0
        whole = True
        with os.scandir(self._directory) as top:
            names = sorted(entry.name for entry in top)
        for name in names:
            attempts += _TAG.fullmatch(name) is not None
        for name in names:
            for taken in _sizes(os.path.join(self._directory, name)):
                size += taken
                staged += taken if name == "stage" else 0
                entries += 1
                if entries % _STRETCH == 0:
                    now = self._clock()
                    whole = now - began < LONGEST
                    if not whole:
                        break
                    self._rest((now - since) * _REST)
                    since = self._clock()
            if not whole:
                break
        return {"bytes": size, "attempts": attempts, "staged_bytes": staged, "whole": whole}


def _sizes(path: str) -> Iterator[int]:
    """Bytes on disk of this entry and of each below it; links are not followed."""
    left = [path]
    while left:
        directory = left.pop()
        status = _status(directory)
        if status is None:
            continue
        yield status.st_blocks * _BLOCK
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                        continue
                    found = _status(entry.path)
                    yield 0 if found is None else found.st_blocks * _BLOCK
        except OSError:
            continue


def _status(path: str) -> Optional[os.stat_result]:
    try:
        return os.lstat(path)
    except OSError:
        return None
