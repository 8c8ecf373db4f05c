"""The staging cache: files by content hash, kept from their last use on, and their ways in and out. Blocks."""

import hashlib
import json
import os
import time
from typing import Any, Dict, Iterator, List, Optional, Set

from koalapy_adapters.errors import ClusterError, RequestError, TransientError
from koalapy_adapters.files import Files, is_digest
from koalapy_adapters.trees import is_inside, native

KEPT = 14 * 86400  # seconds that a file is kept after its last use
PARTIAL_KEPT = 86400  # seconds that a part of a file is kept after its last byte came
_PARTIAL = ".part"
_READ = 1 << 20
_AGAIN = "It is sent again at the next try."


class Stage:
    """One store's on one cluster. Clusters of one store may share the directory; every name is one writer's only."""

    def __init__(self, directory: str, cluster: str) -> None:
        self._directory, self._cluster = directory, cluster

    def wanted(self, files: List[List[Any]]) -> Dict[str, Any]:
        """The answer to messages.Want."""
        missing = []
        for index, (digest, size) in enumerate(files):
            if not self.has(digest, size):
                missing.append([index, _size(self._partial(digest)) or 0])
        return dict(_room(self._directory), missing=missing)

    def has(self, digest: str, size: int) -> bool:
        """Return whether the file is there; it counts as used now."""
        path = self.path(digest)
        if _size(path) != size:
            return False
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
        return True

    def arrival(self, digest: str, size: int, offset: int) -> "Arrival":
        """A file that comes in pieces, of which `offset` bytes are there."""
        return Arrival(self.path(digest), self._partial(digest), digest, size, offset)

    def batch(self, files: List[List[Any]], unique: str) -> "Batch":
        """Small files that come one after the other. `unique`: a name that no other batch has."""
        return Batch([(self.path(digest), digest, size) for digest, size in files], unique)

    def path(self, digest: str) -> str:
        """Path of a staged file. Raises RequestError for a bad digest."""
        if not is_digest(digest):
            raise RequestError("bad_digest", "%r is not a sha256 in hex." % digest)
        return os.path.join(self._directory, digest)

    def clean(self, now: Optional[float] = None) -> None:
        """Drop what nobody has used for long, and parts whose rest does not come. Anybody may do so at any time.

        A file is marked as used before an attempt counts on it, and copied for it: none that is needed is old.
        """
        now = time.time() if now is None else now
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            kept = KEPT if is_digest(name) else PARTIAL_KEPT
            try:
                if os.lstat(path).st_mtime < now - kept:
                    os.unlink(path)
            except FileNotFoundError:
                continue

    def _partial(self, digest: str) -> str:
        """Named for its cluster: another one's KCM may be writing the same file, and keeps a part of its own."""
        return "%s.%s%s" % (self.path(digest), self._cluster, _PARTIAL)


class Arrival:
    """A file on its way, which outlives its connection and its KCM: the next one goes on where it ends.

    A KCM that was replaced may still write to it for a moment: it writes the same bytes to the same places.
    """

    def __init__(self, path: str, partial: str, digest: str, size: int, offset: int) -> None:
        self._path, self._partial, self._digest, self._size, self._offset = path, partial, digest, size, offset
        self._hash, self._written = hashlib.sha256(), 0
        self._file: Optional[Any] = None

    def open(self) -> None:
        """Read what is there. Raises TransientError if that is less than was announced."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        self._file = os.fdopen(os.open(self._partial, flags, 0o600), "r+b")
        while self._written < self._offset:
            data = self._file.read(min(_READ, self._offset - self._written))
            if not data:
                raise TransientError("stage_moved", "Less of the file %s is there than there was." % self._digest)
            self._count(data)

    def write(self, data: bytes) -> None:
        """Append data. Raises RequestError for more than was announced."""
        assert self._file is not None
        if self._written + len(data) > self._size:
            raise RequestError("bad_size", "More than the %d bytes that were announced." % self._size)
        try:
            self._file.write(data)
        except OSError:
            self.drop()  # no room, most likely: the part would only take it from others
            raise
        self._count(data)

    def finish(self) -> None:
        """Make it one of the stage. Raises TransientError if it is short, ClusterError if it is damaged."""
        assert self._file is not None
        if self._written < self._size:
            raise TransientError("stage_short", "The file %s did not come to its end." % self._digest)
        self._file.truncate()
        if self._hash.hexdigest() != self._digest:
            self.drop()
            raise ClusterError("stage_damaged", "The file %s arrived damaged." % self._digest, "Send it again.")
        self._file.flush()
        os.fsync(self._file.fileno())
        os.rename(self._partial, self._path)

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError:  # what could not be written is not counted on
                self.drop()

    def drop(self) -> None:
        _unlink(self._partial)

    def _count(self, data: bytes) -> None:
        self._hash.update(data)
        self._written += len(data)


class Batch:
    """Small files out of one stream. None is flushed: whoever copies one looks at its hash (see files.Files.copy)."""

    def __init__(self, files: List[Any], unique: str) -> None:
        self._left, self._unique = list(reversed(files)), unique
        self._data = bytearray()
        self._damaged = []  # type: List[str]

    def write(self, data: bytes) -> None:
        """Take data of the files in order. Raises RequestError for more than was announced."""
        self._data += data
        while self._left and len(self._data) >= self._left[-1][2]:
            path, digest, size = self._left.pop()
            content = bytes(self._data[:size])
            del self._data[:size]
            self._put(path, digest, content)

    def finish(self) -> None:
        """Raises TransientError if files are missing at its end, ClusterError for those that are damaged."""
        self.write(b"")
        if self._left or self._data:
            raise TransientError("stage_short", "The files did not come to their end.")
        if self._damaged:
            raise ClusterError("stage_damaged", "Files arrived damaged: %s." % ", ".join(self._damaged[:5]))

    def _put(self, path: str, digest: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != digest:
            self._damaged.append(digest)
            return
        temporary = "%s.%s" % (path, self._unique)
        try:
            with open(temporary, "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)
            os.rename(temporary, path)
        except OSError:
            _unlink(temporary)
            raise


def _room(directory: str) -> Dict[str, int]:
    """Bytes that are free for us and that there are, if the file system reports it; quotas are found by writing."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return {}
    if not status.f_blocks:
        return {}
    return {"free": status.f_bavail * status.f_frsize, "total": status.f_blocks * status.f_frsize}


def _size(path: str) -> Optional[int]:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def copy_to(work: str, staged: List[List[Any]], stage: str, files: Files) -> None:
    """Copy staged files (see messages.Submit) to an attempt's working directory. Raises BatchError, and OSError.

    These are copies, since a program may write to its own.
    """
    made = {work}
    modes = []
    for path, digest, mode in _all(files, stage, staged):
        if not is_inside(path) or not (is_digest(digest) or not digest):
            raise RequestError("bad_stage_in", "The staged file %r has no place in the attempt's directory." % path)
        target = os.path.join(work, native(path))
        _make(files, os.path.dirname(target) if digest else target, made)
        if digest:
            _copy(files, os.path.join(stage, digest), target, mode & 0o777, digest)
        else:
            modes.append((target, mode & 0o777))
    for target, mode in reversed(modes):  # what is in a directory comes after it, and may not be writable then
        files.allow(target, mode)


def _all(files: Files, stage: str, staged: List[List[Any]]) -> Iterator[List[Any]]:
    """The entries, with those of lists that are themselves staged files."""
    for entry in staged:
        if entry[0]:
            yield entry
        else:
            yield from _listed(files, os.path.join(stage, entry[1]), entry[1])


def _listed(files: Files, path: str, digest: str) -> List[List[Any]]:
    if not is_digest(digest):
        raise RequestError("bad_stage_in", "%r is not a list of staged files." % digest)
    try:
        data = files.read(path)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("damaged")
        listed: List[List[Any]] = json.loads(data.decode())
        return listed
    except FileNotFoundError as error:
        raise TransientError("stage_lost", "The list of the staged files is no longer there.", _AGAIN) from error
    except ValueError as error:
        files.unlink(path)
        raise TransientError("stage_damaged", "The list of the staged files is damaged.", _AGAIN) from error


def _make(files: Files, directory: str, made: Set[str]) -> None:
    if directory not in made:
        files.make(directory)
        made.add(directory)


def _copy(files: Files, source: str, target: str, mode: int, digest: str) -> None:
    name = os.path.basename(target)
    try:
        files.copy(source, target, mode, digest)
    except FileNotFoundError as error:
        raise TransientError("stage_lost", "The staged file %s is no longer there." % name, _AGAIN) from error
    except ValueError as error:
        files.unlink(source)
        raise TransientError("stage_damaged", "The staged file %s is damaged." % name, _AGAIN) from error
