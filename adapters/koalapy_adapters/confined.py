"""Paths below a root directory, opened one name after the other, so that none leads out of it.

A program may replace directories by links while its files are read. Each step therefore starts from the open directory
before it and follows no link by itself (`openat` with O_NOFOLLOW). Links are read, and their targets are walked in the
same way.
"""

import errno
import os
import stat
from typing import List, NamedTuple, Optional, Sequence, Set, Tuple

_STEP = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", 0)
_MOST_LINKS = 40  # in one path, as in the Linux kernel
_MOST_OPEN = 32  # directories


class LeadsOutError(OSError):
    """A link leads out of the root. `target`: the text of the link; "" if the path itself leads out."""

    def __init__(self, target: str) -> None:
        super().__init__(errno.EXDEV, "a link leads out of the directory")
        self.target = target


class Place(NamedTuple):
    """An open directory. `identity`: its device and inode. `real`: its path without links; nothing is opened by it."""

    descriptor: int
    identity: Tuple[int, int]
    real: str


class Entry(NamedTuple):
    """The end of a path. `place`: a directory itself, else the directory that holds it under `name`.

    `linked`: whether the last part of the path is a link.
    """

    place: Place
    name: str
    status: os.stat_result
    linked: bool

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class Confined:
    """The files below `root`. Paths are relative to it, in the form of this process, and have no empty parts.

    The empty path is `root` itself. Links may lead below `root`. With `bounds` the files are those of this process's
    own user: links may also lead below these paths, by way of any others. Without, nothing outside of `root` is looked
    at. The methods block. Raises OSError if `root` is no directory.
    """

    def __init__(self, root: str, bounds: Optional[Sequence[str]] = None) -> None:
        real = os.path.realpath(root)
        self._bounds = None if bounds is None else [real, *map(os.path.realpath, bounds)]
        self._beginnings = sorted({root.rstrip("/"), real.rstrip("/")}, key=len, reverse=True)  # of absolute links
        self._root = _opened(real)
        self._ends = {self._root.identity} if self._bounds is None else _outermost(self._bounds)  # `..` stops there
        self._open = []  # type: List[Tuple[str, Place]]  # the last directories on the way to the newest one, by path
        self._link_target = None  # type: Optional[Place]  # where a link led, if that is no directory

    def __enter__(self) -> "Confined":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all directories."""
        self._keep_link_target(None)
        while self._open:
            os.close(self._open.pop()[1].descriptor)
        os.close(self._root.descriptor)

    def look(self, path: str) -> Entry:
        """Return what the path leads to. Its place stays open until the next call.

        Raises LeadsOutError, and other OSErrors: FileNotFoundError if there is nothing, ELOOP for too many links.
        """
        self._keep_link_target(None)
        while self._open and not _is_below(path, self._open[-1][0]):
            os.close(self._open.pop()[1].descriptor)
        above, place = self._open[-1] if self._open else ("", self._root)
        entry = Entry(place, "", os.fstat(place.descriptor), False)
        left = path[len(above) :].strip("/")
        for name in left.split("/") if left else ():
            if not entry.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            entry = self._step(entry.place, name)
            above = "%s/%s" % (above, name) if above else name
            if entry.is_directory:
                self._keep(above, entry.place)
        return entry

    def exists(self, path: str) -> bool:
        """Return whether the path is there, be it as a link that leads nowhere.

        Raises LeadsOutError if a part of it before the last leads out.
        """
        above, _, name = path.rpartition("/")
        try:
            entry = self.look(above)
            if name:
                os.stat(name, dir_fd=entry.place.descriptor, follow_symlinks=False)
        except LeadsOutError:
            raise
        except OSError:
            return False
        return entry.is_directory

    def names(self, path: str) -> List[str]:
        """Return the names in a directory, in no order. Raises OSError, as `look`, and for what is no directory."""
        entry = self.look(path)
        if not entry.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=entry.place.descriptor)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def open(self, path: str) -> int:
        """Open a plain file for reading and return its descriptor.

        Raises OSError, as `look`, and with EINVAL for what is no plain file: of a FIFO it could be waited for ever.
        """
        entry = self.look(path)
        if stat.S_ISREG(entry.status.st_mode):
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            descriptor = os.open(entry.name, flags, dir_fd=entry.place.descriptor)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return descriptor
            os.close(descriptor)  # it was replaced meanwhile
        raise OSError(errno.EINVAL, "no plain file")

    def _step(self, start: Place, name: str) -> Entry:
        """Return what the name in an open directory leads to. If that is a directory, its place is new."""
        if name == "..":
            raise LeadsOutError(name)
        status = os.stat(name, dir_fd=start.descriptor, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            place = _entered(start, name)
            return Entry(place, "", os.fstat(place.descriptor), False)
        if not stat.S_ISLNK(status.st_mode):
            return Entry(start, name, status, False)
        entry = self._followed(start, name)
        if not entry.is_directory:
            self._keep_link_target(entry.place)
        return entry

    def _followed(self, start: Place, name: str) -> Entry:
        """Return what the link leads to. Its place is new."""
        text = os.readlink(name, dir_fd=start.descriptor)
        place, left, links = _copied(start), [name], 0  # `left`: the last name first
        try:
            while left:
                part = left.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    entered, left = self._up(place, left, text)
                else:
                    status = os.stat(part, dir_fd=place.descriptor, follow_symlinks=False)
                    if stat.S_ISLNK(status.st_mode):
                        links += 1
                        if links > _MOST_LINKS:
                            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                        target = os.readlink(part, dir_fd=place.descriptor)
                        left += reversed(target.split("/"))
                        if not target.startswith("/"):
                            continue
                        entered, left = self._absolute(left, text)
                    elif stat.S_ISDIR(status.st_mode):
                        entered = _entered(place, part)
                    elif any(each not in ("", ".") for each in left):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                    else:
                        return Entry(place, part, status, True)
                os.close(place.descriptor)
                place = entered
            return Entry(place, "", os.fstat(place.descriptor), True)
        except BaseException:
            os.close(place.descriptor)
            raise

    def _up(self, place: Place, left: List[str], text: str) -> Tuple[Place, List[str]]:
        """Return the directory above, and the names that are left. Raises LeadsOutError with the `text` of the link."""
        if place.identity not in self._ends:
            return _entered(place, ".."), left
        if self._bounds is None:
            raise LeadsOutError(text)
        return self._in_bounds("/".join([place.real, "..", *reversed(left)]), text)

    def _absolute(self, left: List[str], text: str) -> Tuple[Place, List[str]]:
        """Return where the walk of an absolute path begins, and the names from there. Raises LeadsOutError."""
        target = "/".join(reversed(left))
        if self._bounds is not None:
            return self._in_bounds(target, text)
        for beginning in self._beginnings:
            if _is_below(target, beginning):
                return _copied(self._root), target[len(beginning) :].split("/")[::-1]
        raise LeadsOutError(text)

    def _in_bounds(self, target: str, text: str) -> Tuple[Place, List[str]]:
        """Return the same for a path that may lead by way of any other. Raises LeadsOutError."""
        real = os.path.realpath(target)
        for bound in self._bounds or ():
            if _is_below(real, bound):
                start = bound if os.path.isdir(bound) else os.path.dirname(bound)
                return _opened(start), os.path.relpath(real, start).split("/")[::-1]
        raise LeadsOutError(text)

    def _keep(self, path: str, place: Place) -> None:
        self._open.append((path, place))
        if len(self._open) > _MOST_OPEN:
            os.close(self._open.pop(0)[1].descriptor)

    def _keep_link_target(self, place: Optional[Place]) -> None:
        if self._link_target is not None:
            os.close(self._link_target.descriptor)
        self._link_target = place


def _opened(real: str) -> Place:
    return _place(os.open(real, _STEP & ~os.O_NOFOLLOW), real)


def _copied(place: Place) -> Place:
    return place._replace(descriptor=os.dup(place.descriptor))


def _entered(start: Place, name: str) -> Place:
    """Open a directory in a directory. Raises OSError, for a link too."""
    real = os.path.dirname(start.real) if name == ".." else os.path.join(start.real, name)
    return _place(os.open(name, _STEP, dir_fd=start.descriptor), real)


def _place(descriptor: int, real: str) -> Place:
    status = os.fstat(descriptor)
    return Place(descriptor, (status.st_dev, status.st_ino), real)


def _outermost(bounds: Sequence[str]) -> Set[Tuple[int, int]]:
    """Return the identities of the directories among the bounds that are in no other bound."""
    statuses = [os.stat(each) for each in bounds if os.path.isdir(each)
                and not any(each != other and _is_below(each, other) for other in bounds)]  # fmt: skip
    return {(status.st_dev, status.st_ino) for status in statuses}


def _is_below(path: str, place: str) -> bool:
    """Return whether the path is this place, or in it.

    Every path is below the empty one, and an absolute one below `/`.
    """
    return path == place or not place or path.startswith(place.rstrip("/") + "/")
