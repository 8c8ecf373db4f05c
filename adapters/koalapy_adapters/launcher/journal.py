"""A Launcher's journal: a line for each result, so that a kill of the Launcher loses no result.

The file `journal` of the attempt's directory holds one JSON array a line, in the order in which the parameters ended:

    [number, exit status, ending, host, slot, started at, ended at, output at, output size, errors at, errors size]

as in messages.ParametersEnded, except that the instants are the node's clock. `ending` is one of ENDINGS. Each line is
one write(2) with O_APPEND by the slot that ran the parameter, before it begins another. Therefore only the last line
can lack its end. After a disk was full, some lines may be no JSON. Such lines are ignored. A parameter without a line
was not done. The file may have a parameter twice; then the first line counts.
"""

import json
import os
from typing import Any, Container, Dict, List, Optional

from koalapy_adapters.files import DISK, Files
from koalapy_adapters.layout import inside

NAME = "journal"
EXITED, KILLED, WALLTIME, OUTPUT, FAILED = ENDINGS = ("exited", "killed", "walltime", "output", "failed")
_FIELDS, _ENDING = 11, 2
_MOST_DIGITS = 16  # of a number; Python refuses to read one of thousands

Row = List[Any]


def path(attempt: str) -> str:
    return inside(attempt, NAME)


def read(attempt: str, files: Files = DISK, among: Optional[Container[int]] = None) -> List[Row]:
    """The results of this attempt, each number once; none if there is no journal. Raises OSError.

    `among`: return only results of these numbers. Other lines are not parsed, which saves time in a long journal.
    """
    try:
        data = files.read(path(attempt))
    except FileNotFoundError:
        return []
    found: Dict[int, Row] = {}
    for line in data.split(b"\n")[:-1]:
        row = _row(line) if among is None or _number(line) in among else []
        if row:
            found.setdefault(row[0], row)
    return list(found.values())


class Journal:
    """A writer of the journal. Several writers may write to one file."""

    def __init__(self, attempt: str) -> None:
        """Open the journal. Raises OSError if it cannot be written."""
        self._file = os.open(path(attempt), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._waiting = b""

    def write(self, lines: bytes) -> bool:
        """Write whole lines. Returns False if the disk is full; then they are written before the next ones."""
        self._waiting += lines
        try:
            written = os.write(self._file, self._waiting)
        except OSError:
            return False
        if written < len(self._waiting):
            self._waiting = b"\n" + self._waiting[self._waiting.rfind(b"\n", 0, written) + 1 :]
            return False
        self._waiting = b""
        return True


def _number(line: bytes) -> int:
    """The number of the parameter whose result the line holds; 0, which no parameter has, if it names none."""
    digits = line[1:].partition(b",")[0]
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else 0


def _row(line: bytes) -> Row:
    """The row of a line; empty if the line holds no result."""
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return []
    sound = isinstance(row, list) and len(row) == _FIELDS and isinstance(row[0], int) and row[_ENDING] in ENDINGS
    return row if sound else []
