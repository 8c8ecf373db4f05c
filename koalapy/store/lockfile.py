"""One opener at a time: an flock on a file beside the database, which also names its holder."""

import fcntl
import os
from pathlib import Path

from koalapy.store.errors import StoreError, StoreLocked


def hold(path: Path) -> int:
    """Take the lock for as long as the descriptor is open; the kernel gives it back however the process ends.

    The file stays when the lock is let go: to remove it would let two processes hold two files of one name.
    Raises StoreLocked if another holds it, naming its process.
    """
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_holder(descriptor)
    except BlockingIOError as error:
        raise _locked(path, _given_up(descriptor)) from error
    except OSError as error:
        _given_up(descriptor)
        raise StoreError(
            "store_lock", f"{path} cannot be locked: {error.strerror}.", "Put the state directory on a local disk."
        ) from error
    return descriptor


def let_go(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _write_holder(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _given_up(descriptor: int) -> str:
    """Close it and say who holds it: empty when the holder has yet to write its name."""
    if descriptor < 0:
        return ""
    holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    os.close(descriptor)
    return holder


def _locked(path: Path, holder: str) -> StoreLocked:
    who = f"process {holder}" if holder else "another process"
    return StoreLocked(
        "store_locked",
        f"The store in {path.parent} is in use by {who}.",
        "Stop that koalad with `koala down`, or use another grid name.",
    )
