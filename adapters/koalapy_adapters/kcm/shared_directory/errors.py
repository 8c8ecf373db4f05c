"""Errors of the shared directory, which show whose move it is."""

import errno

from koalapy_adapters.errors import BatchError, ClusterError

FULL = (errno.ENOSPC, errno.EDQUOT)


class Stale(ClusterError):
    """A newer KCM, of this epoch, is at work on the cluster."""

    def __init__(self, epoch: int) -> None:
        super().__init__("stale", "A newer KCM is at work on this cluster.")
        self.epoch = epoch


def unusable(path: str, error: Exception) -> BatchError:
    """The ClusterError for a shared directory that is full, gone or not ours."""
    if isinstance(error, OSError) and error.errno in FULL:
        return ClusterError("shared_full", "The shared directory is full: %s." % path, "Free space or quota there.")
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ClusterError(
        "shared_gone",
        "The shared directory cannot be used: %s: %s." % (path, why),
        "See that the file system is mounted and writable, or name another `shared` directory in the grid file.",
    )
