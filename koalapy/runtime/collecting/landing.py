"""Files that arrive, put where their user wants them: whole or not at all, and nowhere else."""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from koalapy_adapters.trees import DIRECTORY, FILE

from koalapy.model.errors import RequestError
from koalapy.runtime.collecting.plan import Item
from koalapy.runtime.staging.upload import megabytes

_READ = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_there(item: Item) -> bool:
    """Whether it was brought before: as rsync, by size and time."""
    try:
        status = os.lstat(item.target)
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (item.found.size, item.found.mtime_ns)


def make_directories(items: Iterable[Item]) -> None:
    """All that the items need. Raises RequestError, with nothing made, for one that leads out of its base."""
    needed = {item.target if item.found.kind == DIRECTORY else item.target.parent: item.base for item in items}
    with told():
        for directory, base in needed.items():
            _check_inside(directory, base)
        for directory in needed:
            directory.mkdir(parents=True, exist_ok=True)


def set_modes(items: Sequence[Item]) -> None:
    """Of directories, once all is in them; their owner keeps all rights."""
    with told():
        for item in reversed(items):
            if item.found.kind == DIRECTORY:
                item.target.chmod(item.found.mode | 0o700)


def check_room(items: Iterable[Item], parts: dict[Path, int]) -> None:
    """Raises RequestError if the files do not fit; `parts`: what has come of some already."""
    needed: dict[int, int] = {}
    places: dict[int, Path] = {}
    for item in items:
        if item.found.kind == FILE:
            device = item.target.parent.stat().st_dev
            needed[device] = needed.get(device, 0) + item.found.size - parts.get(item.target, 0)
            places[device] = item.target.parent
    for device, size in needed.items():
        status = os.statvfs(places[device])
        free = status.f_bavail * status.f_frsize
        if status.f_blocks and size > free:
            message = (
                f"The job's files do not fit: {megabytes(size)} for {places[device]}, which has {megabytes(free)}."
            )
            raise RequestError("no_room", message, "Make room there.")


def part_of(item: Item, tag: str) -> Path:
    """Where a large file is while it comes: named for its attempt, so that no other koalad's can be taken for it."""
    name = hashlib.sha256(os.fsencode(item.found.path)).hexdigest()[:16]
    return item.target.parent / f".koala-{tag}-{name}.part"


def size_of_part(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Part:
    """A file on its way, which outlives its connection and this koalad."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        """Read what is there."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file: BinaryIO = os.fdopen(os.open(self._path, flags, 0o600), "r+b")
        while data := self._file.read(_READ):
            self._hash.update(data)
            self.size += len(data)
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError:
            self.drop()
            raise
        self._hash.update(data)
        self.size += len(data)

    def is_whole(self, digest: str) -> bool:
        return self._hash.hexdigest() == digest

    def become(self, item: Item, mode: int) -> None:
        self._file.flush()
        os.fchmod(self._file.fileno(), mode & 0o777)
        os.fsync(self._file.fileno())
        os.utime(self._path, ns=(item.found.mtime_ns, item.found.mtime_ns))
        self._path.rename(item.target)

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)


class Small:
    """Small files of one stream, put in place together once the whole stream is verified."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._written: list[tuple[Path, Path]] = []

    def write(self, item: Item, mode: int, mtime_ns: int, data: bytes) -> None:
        part = part_of(item, self._tag)
        self._written.append((part, item.target))
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode & 0o777)
        os.utime(part, ns=(mtime_ns, mtime_ns))

    def become(self) -> None:
        for part, target in self._written:
            part.rename(target)

    def drop(self) -> None:
        for part, _ in self._written:
            part.unlink(missing_ok=True)


@contextmanager
def told() -> Iterator[None]:
    """What this side's file system refuses, as a RequestError."""
    try:
        yield
    except OSError as error:
        where = error.filename2 or error.filename or "A file"
        code = "no_room" if error.errno in _FULL else "output_not_written"
        message = f"{os.fsdecode(where)} cannot be written: {error.strerror}."
        raise RequestError(code, message, "Make room or change permissions there.") from error


def _check_inside(directory: Path, base: Path) -> None:
    """A link in the job's directory may lead to another place below it, to none outside."""
    inside, outer = os.path.realpath(directory), os.path.realpath(base)
    if inside != outer and not inside.startswith(outer.rstrip("/") + "/"):
        message = f"{directory} is a link that leads out of {base}: nothing is written there."
        raise RequestError("leads_out", message, "Name the place where it leads with `to`, or take the link away.")
