"""One opener at a time: an flock on a file beside the database, which also names its holder."""

import fcntl
import os
from pathlib import Path

from koalapy.store.contract import StoreLocked


def hold(path: Path) -> int:
    """Take the lock for as long as the descriptor is open; the kernel releases it however the process ends.

    The file stays when the lock is released: to remove it would let two processes hold two files of one name. Raises
    StoreLocked if another process holds it, and names that process. Raises OSError if there are no locks or no room.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_holder(descriptor)
    except BlockingIOError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise _locked(path, holder) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def let_go(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _holder(descriptor: int) -> str:
    """Return the holder's process id; empty until the holder has written it."""
    return os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()


def _locked(path: Path, holder: str) -> StoreLocked:
    who = f"process {holder}" if holder else "another process"
    return StoreLocked(
        "store_locked",
        f"The store in {path.parent} is in use by {who}.",
        "Stop that koalad with `koala down`, or use another grid name.",
    )
