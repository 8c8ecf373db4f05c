"""The start lock of an attempt: its wrapper takes it to start the program, or the KCM takes it and makes it void.

The lock is decided once, by an operation that is atomic on NFS: a hard link from `start-lock` to a uniquely named file.
The reply of link(2) may be lost on NFS. Therefore the link count of the unique file shows the winner, not the success
of the call (open(2), on O_EXCL).
"""

import json
import os
from typing import NamedTuple, Optional

from koalapy_adapters.files import DISK, Files
from koalapy_adapters.layout import read_json

TAKEN, VOID = "taken", "void"


class StartLock(NamedTuple):
    """Holder of a start lock. `kind`: taken (by a wrapper) or void (by a KCM). `by`: who took it."""

    kind: str
    by: str


def take(attempt: str, lock: StartLock, files: Files = DISK) -> StartLock:
    """Try to take the start lock. Returns its holder, which is the given one only if this call won.

    Raises OSError if the directory cannot be written; then nothing may be assumed.
    """
    unique = os.path.join(attempt, "start-lock.%s" % files.unpredictable(16))
    try:
        files.write(unique, json.dumps({"kind": lock.kind, "by": lock.by}).encode())
        try:
            files.link(unique, os.path.join(attempt, "start-lock"))
        except FileExistsError:
            pass
        won = files.links(unique) == 2
    finally:
        _tidy(unique, files)
    if won:
        return lock
    held = held_by(attempt, files)
    if held is None:
        raise OSError("the start lock in %s was neither won nor lost" % attempt)
    return held


def held_by(attempt: str, files: Files = DISK) -> Optional[StartLock]:
    """Read the holder of the start lock; None if nobody has it. Raises ValueError for a file that is no start lock."""
    path = os.path.join(attempt, "start-lock")
    data = read_json(path, files)
    if data is None:
        return None
    kind, by = (data.get("kind"), data.get("by")) if isinstance(data, dict) else (None, None)
    if kind not in (TAKEN, VOID) or not isinstance(by, str):
        raise ValueError("%s is not a start lock" % path)
    return StartLock(kind, by)


def _tidy(unique: str, files: Files) -> None:
    """Remove the unique name. If it stays, it does no harm: the lock is decided, and the directory is removed whole."""
    try:
        files.unlink(unique)
    except OSError:
        pass
