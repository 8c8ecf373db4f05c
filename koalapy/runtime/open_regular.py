"""Opens files that a user names, and that koalad reads at once."""

import errno
import os
import stat
from typing import IO


def open_regular(path: str) -> IO[bytes]:
    """Open a regular file for reading.

    Raises OSError for anything else: opening a FIFO without a writer would block koalad.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
