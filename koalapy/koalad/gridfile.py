"""Read a grid file as koalad does, without koalad's other imports, so that commands start fast."""

from hashlib import sha256
from pathlib import Path

from koalapy.common.locations import read_file
from koalapy.common.registry import registered
from koalapy.config import SWEEP_POLICIES, GridFile, read_grid
from koalapy.config.maintenance import MAINTENANCE
from koalapy.config.schema import VACATING
from koalapy.config.site import SITE_POLICIES
from koalapy.model.errors import RequestError


class WatchedFile:
    """A grid file as it is now, to detect later changes.

    Raises RequestError if it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stat, self._digest = _stat(path), self._read()

    def has_changed(self) -> bool:
        """Return whether the text of the file has changed, or the file cannot be read any more."""
        try:
            return _stat(self.path) != self._stat and self._read() != self._digest
        except RequestError:
            return True

    def _read(self) -> bytes:
        return sha256(read_file(self.path, "grid file")).digest()


def _stat(path: Path) -> tuple[int, ...] | None:
    """Return values that differ after each change of the file, or None if the file is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


_GROUPS = (*SWEEP_POLICIES, *SITE_POLICIES, MAINTENANCE, VACATING)


def read_grid_file(path: Path) -> GridFile:
    """Read and check a grid file. Raises RequestError with file, line and advice."""
    return read_grid(
        read_file(path, "grid file"),
        str(path),
        list(registered("koalapy.batch_systems")),
        queueing=list(registered("koalapy.queueing")),
        placement=list(registered("koalapy.placement")),
        policies={group: list(registered(f"koalapy.{group}")) for group in _GROUPS},
    )
