"""Writes files that arrive to the places that their user named: whole or not at all, and nowhere else.

Everything below a base is reached from one descriptor of it, directory by directory, and never through a link that
leads out. Whoever may write there can exchange a directory for a link at any moment. Nothing is written where that link
leads.
"""

import errno
import hashlib
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from koalapy_adapters.trees import DIRECTORY, FILE, native

from koalapy.model.errors import RequestError
from koalapy.model.identity import InstanceId, tag_of
from koalapy.runtime.collecting.plan import Item
from koalapy.runtime.transfers import megabytes

_READ = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_OPEN = 32  # directories
_MOST_LINKS = 40  # in one path, as in the Linux kernel
_ROOM_EVERY = 64 << 20  # bytes of one file between two checks of the free space


class _Place(NamedTuple):
    """A directory below a base, with the names that lead to it."""

    base: Path
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        return self.base.joinpath(*self.names)


class OutputDirectories:
    """The directories that one collecting writes to. Each is opened once, and kept open while there is room for it.

    Methods raise OSError, and RequestError for a link that leads out of its base.
    """

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self._open: OrderedDict[_Place, int] = OrderedDict()
        self._bases: dict[Path, tuple[int, int]] = {}  # which directory each is: device and inode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def is_there(self, item: Item) -> bool:
        """Return whether the file was brought before. Like rsync, this compares size and time."""
        try:
            status = os.lstat(_name(item), dir_fd=self.directory(_parent(item)))
        except OSError:
            return False
        return (status.st_size, status.st_mtime_ns) == (item.found.size, item.found.mtime_ns)

    def make_directories(self, items: Iterable[Item]) -> None:
        """Make all directories that the items need. Raises RequestError.

        If a directory leads out of its base, nothing was made.
        """
        needed = dict.fromkeys(_place(item) if item.found.kind == DIRECTORY else _parent(item) for item in items)
        with file_errors_translated():
            for place in needed:
                with suppress(FileNotFoundError):
                    self.directory(place)
            for place in needed:
                if place.base not in self._bases:
                    place.base.mkdir(parents=True, exist_ok=True)
                self.directory(place, make=True)

    def set_modes(self, items: Sequence[Item]) -> None:
        """Set the modes of the directories, after all files are in them. The owner keeps all rights."""
        with file_errors_translated():
            for item in reversed(items):
                if item.found.kind == DIRECTORY:
                    os.fchmod(self.directory(_place(item)), item.found.mode | 0o700)

    def check_room(self, items: Iterable[Item], parts: dict[Path, int]) -> None:
        """Raises RequestError if the files do not fit. `parts`: bytes of some that have arrived already."""
        needed: dict[int, int] = {}
        places: dict[int, _Place] = {}
        for item in items:
            if item.found.kind == FILE:
                device = os.fstat(self.directory(_parent(item))).st_dev
                needed[device] = needed.get(device, 0) + item.found.size - parts.get(item.target, 0)
                places[device] = _parent(item)
        for device, size in needed.items():
            _check_room(self.directory(places[device]), size, places[device].path)

    def size_of_part(self, item: Item) -> int:
        try:
            return os.lstat(self.name_of_part(item), dir_fd=self.directory(_parent(item))).st_size
        except OSError:
            return 0

    def name_of_part(self, item: Item) -> str:
        """Return the name of the file while it arrives.

        It contains the attempt's tag, so that it cannot be confused with a file of another koalad.
        """
        name = hashlib.sha256(os.fsencode(item.found.path)).hexdigest()[:16]
        return f".koala-{tag_of(self._instance, item.attempt)}-{name}.part"

    def directory(self, place: _Place, make: bool = False) -> int:
        """Return the descriptor of a directory, valid until the next call. `make`: create what is missing."""
        found = self._open.pop(place, None)
        if found is None:
            found = self._opened(place, make)
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        self._open[place] = found
        return found

    # ---- opening

    def _opened(self, place: _Place, make: bool) -> int:
        if not place.names:
            return self._opened_base(place.base)
        with _kept(os.dup(self.directory(_Place(place.base, ())))) as base:
            return _Walk(place, base, make).end()

    def _opened_base(self, base: Path) -> int:
        """Open the base. Links on the way to it are followed, since its user named it.

        Raises RequestError if it is not the directory that it was before.
        """
        descriptor = os.open(base, _DIRECTORY)
        status = os.fstat(descriptor)
        if self._bases.setdefault(base, (status.st_dev, status.st_ino)) != (status.st_dev, status.st_ino):
            os.close(descriptor)
            message = f"{base} was exchanged for another directory while files were put there."
            raise RequestError("leads_out", message, "Look who else may write there.")
        return descriptor


class _Walk:
    """A walk from a base to a directory below it. Links are followed one by one, so that none leads outside."""

    def __init__(self, place: _Place, base: int, make: bool) -> None:
        self._place, self._make = place, make
        self._above = [os.dup(base)]  # the base and the directories below it, down to where the walk is
        self._left = list(reversed(place.names))
        self._links = 0

    def end(self) -> int:
        """Walk to the end, and return the directory's descriptor."""
        try:
            with _naming(self._place.path):
                while self._left:
                    self._go(self._left.pop())
            return self._above.pop()
        finally:
            for descriptor in self._above:
                os.close(descriptor)

    def _go(self, name: str) -> None:
        if name in ("", "."):
            return
        if name == "..":
            os.close(self._above.pop())
            if not self._above:
                raise self._leads_out()
            return
        try:
            self._above.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._above[-1]))
        except FileNotFoundError:
            if not self._make:
                raise
            with suppress(FileExistsError):  # made by another job at this moment
                os.mkdir(name, dir_fd=self._above[-1])
            self._left.append(name)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            self._follow(name, error)

    def _follow(self, name: str, error: OSError) -> None:
        try:
            target = os.readlink(name, dir_fd=self._above[-1])
        except OSError:
            raise error from None  # it is no link
        self._links += 1
        if self._links > _MOST_LINKS:
            raise self._leads_out()
        if os.path.isabs(target):
            target = self._below_base(target)
            while len(self._above) > 1:
                os.close(self._above.pop())
        self._left += reversed(target.split("/"))

    def _below_base(self, target: str) -> str:
        """Return the target relative to the base. The walk to it starts at the base, whatever it has become by then."""
        real, base = os.path.realpath(target), os.path.realpath(self._place.base)
        if real != base and not real.startswith(base.rstrip("/") + "/"):
            raise self._leads_out()
        return os.path.relpath(real, base)

    def _leads_out(self) -> RequestError:
        message = f"{self._place.path} is a link that leads out of {self._place.base}: nothing is written there."
        return RequestError("leads_out", message, "Name the place where it leads with `to`, or take the link away.")


@contextmanager
def _kept(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put this path into an OSError. The system names a file opened in a directory by its last name, or not at all."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _place(item: Item) -> _Place:
    return _Place(item.base, tuple(native(item.found.path).split("/")))


def _parent(item: Item) -> _Place:
    return _Place(item.base, tuple(native(item.found.path).split("/")[:-1]))


def _name(item: Item) -> str:
    return native(item.found.path).rpartition("/")[2]


def _check_room(directory: int, size: int, where: Path) -> None:
    status = os.fstatvfs(directory)
    free = status.f_bavail * status.f_frsize
    if status.f_blocks and size > free:
        message = f"The job's files do not fit: {megabytes(size)} for {where}, which has {megabytes(free)}."
        raise RequestError("no_room", message, "Make room there.")


# ---- files


class Part:
    """A large file that is arriving. It stays if the connection or koalad ends."""

    def __init__(self, directories: OutputDirectories, item: Item) -> None:
        self._directories, self._item = directories, item
        self._name = directories.name_of_part(item)
        self._hash = hashlib.sha256()
        self._room_at = 0  # the size at which it is looked whether there is room for the rest
        self.size = 0

    def __enter__(self) -> Self:
        """Read the part that has arrived before. Raises OSError if another user's file is in its place."""
        self._directory = os.dup(self._directories.directory(_parent(self._item)))
        try:
            self._file: BinaryIO = os.fdopen(self._opened(), "r+b")
        except BaseException:
            os.close(self._directory)
            raise
        while data := self._file.read(_READ):
            self._hash.update(data)
            self.size += len(data)
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(OSError):  # what is buffered has no room either
            self._file.close()
        os.close(self._directory)

    def write(self, data: bytes) -> bool:
        """Append the data. False if the file would be longer than it was listed; then nothing is written.

        Raises OSError, and RequestError if there is no room for the rest; then the part is removed.
        """
        if self.size + len(data) > self._item.found.size:
            return False
        try:
            if self.size >= self._room_at:
                self._room_at = self.size + _ROOM_EVERY
                _check_room(self._directory, self._item.found.size - self.size, self._item.target.parent)
            with _naming(self._item.target):
                self._file.write(data)
        except (OSError, RequestError):
            self.drop()
            raise
        self._hash.update(data)
        self.size += len(data)
        return True

    def is_whole(self, digest: str) -> bool:
        return self._hash.hexdigest() == digest

    def become(self, mode: int) -> None:
        with _naming(self._item.target):
            self._file.flush()
            os.fchmod(self._file.fileno(), mode & 0o777)
            os.fsync(self._file.fileno())
            os.utime(self._file.fileno(), ns=(self._item.found.mtime_ns, self._item.found.mtime_ns))
            os.rename(self._name, _name(self._item), src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def drop(self) -> None:
        _unlink(self._name, self._directory)

    def _opened(self) -> int:
        """Open the part that has arrived, or a new one if it is too long or another thing is in its place."""
        with suppress(FileNotFoundError):
            status = os.lstat(self._name, dir_fd=self._directory)
            if not _is_ours(status) or status.st_size > self._item.found.size:
                _unlink(self._name, self._directory)
        descriptor = os.open(
            self._name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600,
            dir_fd=self._directory,
        )  # fmt: skip
        if _is_ours(os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EEXIST, "Another user's file lies there", str(self._item.target.parent / self._name))


class Small:
    """Small files of one stream, which are put in place together once the whole stream is verified."""

    def __init__(self, directories: OutputDirectories) -> None:
        self._directories = directories
        self._written: list[Item] = []

    def write(self, item: Item, mode: int, mtime_ns: int, data: bytes) -> None:
        name, directory = self._directories.name_of_part(item), self._directories.directory(_parent(item))
        _unlink(name, directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with _naming(item.target):
            descriptor = os.open(name, flags, 0o600, dir_fd=directory)
            self._written.append(item)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(descriptor, mode & 0o777)
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))

    def become(self) -> None:
        for item in self._written:
            directory = self._directories.directory(_parent(item))
            with _naming(item.target):
                os.rename(self._directories.name_of_part(item), _name(item), src_dir_fd=directory, dst_dir_fd=directory)
        self._written.clear()

    def drop(self) -> None:
        for item in self._written:
            with suppress(OSError, RequestError):
                _unlink(self._directories.name_of_part(item), self._directories.directory(_parent(item)))


def _is_ours(status: os.stat_result) -> bool:
    """Return whether the file is a regular one of this user without another hard link.

    Any other file may be in use elsewhere.
    """
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1


def _unlink(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


@contextmanager
def file_errors_translated() -> Iterator[None]:
    """Raises RequestError in place of an OSError of this host's file system."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or "A file"
        code = "no_room" if error.errno in _FULL else "output_not_written"
        message = f"{os.fsdecode(where)} cannot be written: {error.strerror}."
        raise RequestError(code, message, "Make room or change permissions there.") from error
