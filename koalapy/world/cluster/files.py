"""A shared directory that exists in memory only, with the troubles that network file systems have."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from koalapy_adapters import files
from koalapy_adapters.files import Files

from koalapy.model.units import SECOND, Duration, Instant
from koalapy.world.processes import Killed

SHARED = "/shared"  # where every node sees it
_UNFLUSHED = Duration(30 * SECOND)  # until what was written is on the server's disk, unless its writer waits for that
_TROUBLES = (errno.ESTALE, errno.EIO, errno.ENOENT)


@dataclass(eq=False, slots=True)
class Inode:
    """A file by whatever names; `data` is replaced, never changed. `unflushed_until`: a crash before it loses them."""

    data: bytes
    modified: Instant
    links: int = 1
    unflushed_until: int = 0


class SharedDirectory:
    """The file server. `clock` is its time.

    `full`: only a part of each write finds room. `gone`: every operation fails. `slow`: how many times
    longer everything takes.
    """

    def __init__(self, clock: Callable[[], Instant], rng: Random) -> None:
        self.clock, self.rng = clock, rng
        self.full = self.gone = False
        self.slow = 1
        self.trouble = errno.ESTALE
        self.lost_link_replies = 0
        self.spoiled: dict[str, None] = {}  # tags whose next record is written badly
        self.interleaved = 0  # so many of the next operations wait until something else has happened
        self.between: Callable[[], object] = lambda: None  # lets that happen
        self.files: dict[str, Inode] = {}
        self.directories: dict[str, dict[str, None]] = {"/": {}}

    def lose_next_link_reply(self) -> None:
        """The next hard link is made, but its maker gets an error."""
        self.lost_link_replies += 1

    def interleave(self, pause: Callable[[Callable[[], object]], None]) -> None:
        """Let another process act between two operations of this one, as often as the fault demands."""
        if self.interleaved:
            left, self.interleaved = self.interleaved - 1, 0  # what happens meanwhile is not interrupted itself
            pause(self.between)
            self.interleaved = left

    def content(self, path: str) -> bytes | None:
        """Return the contents of the file on the server, reachable or not; None if there is no such file."""
        inode = self.files.get(path)
        return None if inode is None else inode.data

    def spoil_record(self, tag: str) -> None:
        """Make the attempt's exit record unreadable, also one that is written later."""
        self.spoiled[tag] = None
        for path, inode in self.files.items():
            if path.endswith(f"/{tag}/record.json"):
                inode.data = b'{"phase": "en'
                self.spoiled.pop(tag, None)

    def lose(self) -> None:
        """Put the files out of reach; the texts of the errors vary."""
        self.gone, self.trouble = True, self.rng.choice(_TROUBLES)

    def crash(self) -> None:
        """Files keep their sizes, and those that were not flushed lose their contents."""
        for inode in self.files.values():
            if self.clock() < inode.unflushed_until:
                inode.data = b"\0" * len(inode.data)

    def mend(self) -> None:
        self.full = self.gone = False
        self.slow, self.lost_link_replies, self.interleaved = 1, 0, 0
        self.spoiled.clear()

    def spoils(self, path: str) -> bool:
        """Return whether what is written there becomes unreadable; once."""
        parts = path.split("/")
        if len(parts) < 2 or not parts[-1].startswith("record.json") or parts[-2] not in self.spoiled:
            return False
        del self.spoiled[parts[-2]]
        return True


class Mount(Files):
    """The shared directory as one process sees it. `step` is called before each operation; it may end the process.

    `pause`: lets other processes go on while this one waits for an operation; without it none ever do.
    """

    def __init__(
        self,
        shared: SharedDirectory,
        process: str,
        step: Callable[[], None],
        reaches: Callable[[], bool],
        pause: Callable[[Callable[[], object]], None] | None = None,
    ) -> None:
        self._shared, self._process, self._step, self._reaches = shared, process, step, reaches
        self._pause = pause
        self._unique = 0

    def clock(self) -> float:
        return self._shared.clock() / 1e6

    def process(self) -> str:
        return self._process

    def unpredictable(self, size: int) -> str:
        """Return a unique token; the simulated world has no adversary who could guess it."""
        self._unique += 1
        return f"{self._process}-{self._unique}".encode().hex().zfill(2 * size)[-2 * size :]

    def read(self, path: str) -> bytes:
        self._enter(path)
        return self._inode(path).data

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        """Write a file. A full disk, or a process that is killed meanwhile, leaves a part of it. Raises OSError."""
        try:
            self._enter(path)
        except Killed:
            if self._there:
                self._put(path, data, whole=False)
            raise
        inode = self._put(path, data, whole=not self._shared.full)
        if self._shared.full:
            raise _error(errno.ENOSPC, path)
        inode.unflushed_until = 0 if lasting else self._shared.clock() + _UNFLUSHED

    def _put(self, path: str, data: bytes, whole: bool) -> Inode:
        """Write the data, or, if not `whole`, its first half. A file that becomes longer keeps what it had."""
        inode = self._shared.files.get(path) or self._add(path, Inode(b"", self._shared.clock()))
        if not whole:
            kept = len(inode.data) if data.startswith(inode.data) else 0
            data = data[: (kept + len(data)) // 2]
        inode.data = b"\0" * len(data) if self._shared.spoils(path) else data
        inode.modified = self._shared.clock()
        return inode

    def rename(self, source: str, target: str) -> None:
        self._enter(source)
        inode = self._inode(source)
        self._drop(source)
        if target in self._shared.files:
            self._drop(target)
        self._add(target, inode)

    def link(self, source: str, target: str) -> None:
        """Make a hard link. Raises OSError, also for a link that was made while its reply was lost."""
        self._enter(source)
        if target in self._shared.files:
            raise _error(errno.EEXIST, target)
        inode = self._inode(source)
        self._add(target, inode)
        inode.links += 1
        if self._shared.lost_link_replies:
            self._shared.lost_link_replies -= 1
            raise _error(self._shared.rng.choice((errno.EEXIST, errno.EIO)), target)

    def links(self, path: str) -> int:
        self._enter(path)
        return self._inode(path).links

    def unlink(self, path: str) -> None:
        self._enter(path)
        self._inode(path)
        self._drop(path)

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory. Raises OSError."""
        self._enter(directory)
        if directory not in self._shared.directories:
            raise _error(errno.ENOENT, directory)
        return list(self._shared.directories[directory])

    def make(self, directory: str) -> None:
        self._enter(directory, writing=directory not in self._shared.directories)
        self._make(directory)

    def exists(self, path: str) -> bool:
        try:
            self._enter(path)
        except OSError:
            return False
        return path in self._shared.files or path in self._shared.directories

    def is_directory(self, path: str) -> bool:
        return self.exists(path) and path in self._shared.directories

    def is_link(self, path: str) -> bool:
        return False

    def modified(self, path: str) -> float:
        self._enter(path)
        if path in self._shared.directories:
            return self._shared.clock() / 1e6
        return self._inode(path).modified / 1e6

    def touch(self, path: str) -> None:
        self._enter(path, writing=path not in self._shared.files)
        inode = self._shared.files.get(path) or self._add(path, Inode(b"", self._shared.clock()))
        inode.modified = self._shared.clock()

    def use(self, path: str) -> None:
        self._enter(path)
        self._inode(path).modified = self._shared.clock()

    def copy(self, source: str, target: str, mode: int, digest: str) -> None:
        """Copy as `Files.copy` does; the copy survives a crash. Raises OSError, and ValueError for a wrong digest."""
        data = self.read(source)
        if not files.has_digest(data, digest):
            raise ValueError(f"{source} is damaged")
        self.write(target, data, mode)

    def allow(self, path: str, mode: int) -> None:
        """Do nothing but take the time: the simulated files have no permissions."""
        self._enter(path)

    def remove(self, directory: str) -> None:
        """Remove a directory with all that is in it. Raises OSError."""
        self._enter(directory)
        if directory not in self._shared.directories:
            raise _error(errno.ENOENT, directory)
        self._remove(directory)

    def _enter(self, path: str, writing: bool = False) -> None:
        if self._pause is not None:
            self._shared.interleave(self._pause)
        self._step()
        if not self._there:
            raise _error(self._shared.trouble, path)
        if writing and self._shared.full:
            raise _error(errno.ENOSPC, path)

    @property
    def _there(self) -> bool:
        return not self._shared.gone and self._reaches()

    def _inode(self, path: str) -> Inode:
        inode = self._shared.files.get(path)
        if inode is None:
            raise _error(errno.EISDIR if path in self._shared.directories else errno.ENOENT, path)
        return inode

    def _add(self, path: str, inode: Inode) -> Inode:
        directory, name = path.rsplit("/", 1)
        if directory not in self._shared.directories:
            raise _error(errno.ENOENT, path)
        self._shared.files[path] = inode
        self._shared.directories[directory][name] = None
        return inode

    def _drop(self, path: str) -> None:
        directory, name = path.rsplit("/", 1)
        self._shared.files.pop(path).links -= 1
        del self._shared.directories[directory][name]

    def _make(self, directory: str) -> None:
        if directory in self._shared.directories:
            return
        above, name = directory.rsplit("/", 1)
        self._make(above or "/")
        self._shared.directories[above or "/"][name] = None
        self._shared.directories[directory] = {}

    def _remove(self, directory: str) -> None:
        for name in list(self._shared.directories[directory]):
            path = f"{directory}/{name}"
            if path in self._shared.directories:
                self._remove(path)
            else:
                self._drop(path)
        above, name = directory.rsplit("/", 1)
        del self._shared.directories[directory]
        del self._shared.directories[above or "/"][name]


def _error(number: int, path: str) -> OSError:
    """Return the subclass of OSError for this number."""
    return OSError(number, os.strerror(number), path)
