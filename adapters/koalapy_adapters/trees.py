"""Files by pattern, below one directory: plain names, `*`, `?`, `[...]`, `**`; a directory stands for all in it.

Both sides use it: koalad for files that are staged in, the KCM for files that are staged out. koalad then uses it to
check that a cluster sends only what was requested. Paths are relative and have no `.` or `..`. Their bytes in UTF-8,
with surrogate escapes, are those of the file names, whatever encoding of file names this process has.
"""

import fnmatch
import os
import re
import stat
from typing import Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from koalapy_adapters.confined import Confined, Entry, LeadsOutError
from koalapy_adapters.errors import RequestError

MOST_ENTRIES = 2000000  # that are looked at to find files; a million takes seconds
FILE, DIRECTORY, REFUSED = "file", "directory", "refused"
_WILD = re.compile(r"[*?\[]")
_ANY_DEPTH = "**"


class Found(NamedTuple):
    """One entry: a file, a directory or a refused one.

    `why`: reason of a refusal, which has no other facts. `size` in bytes.
    """

    path: str
    kind: str
    size: int = 0
    mode: int = 0
    mtime_ns: int = 0
    why: str = ""


def is_pattern(path: str) -> bool:
    """Return whether the path has a wildcard, and so may name several files, or none."""
    return _WILD.search(path) is not None


def is_inside(path: str) -> bool:
    """Return whether a relative path stays below the directory that it starts from."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def native(path: str) -> str:
    """Convert a portable path to the form in which this process names the file to its system."""
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))


def portable(path: str) -> str:
    """Convert a path of this process to the form that is sent to the other side."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


class Budget:
    """The entries that may still be looked at, by one walk or by several."""

    def __init__(self, most: Optional[int] = None) -> None:
        self._most = self._left = MOST_ENTRIES if most is None else most

    def spend(self, entries: int) -> None:
        """Count entries. Raises RequestError once there were too many."""
        self._left -= entries
        if self._left < 0:
            message = "More than %d entries would have to be looked at to find the files." % self._most
            raise RequestError("too_many_entries", message, "Name the files, and use fewer patterns.")


def expand(
    root: str, pattern: str, bounds: Optional[Sequence[str]] = None, budget: Optional[Budget] = None
) -> Iterator[Found]:
    """Yield the entries that the pattern names below `root`, a directory before its contents; some may be repeated.

    A pattern that exists as it is written names that file, even with `*` or `[` in it. A link is followed if it leads
    below `root` or one of `bounds`, and refused otherwise (see confined.Confined). Wildcards and `**` pass over names
    that begin with a dot, and `**` over links to directories. Blocks. Raises OSError if `root` cannot be looked at, and
    RequestError if there is too much to look at.
    """
    with Confined(root, bounds) as files:
        walk = _Walk(files, budget or Budget())
        parts = _parts(pattern)
        literal = "/".join(parts)
        if not is_pattern(literal) or walk.exists(literal):
            yield from walk.tree(literal)
        else:
            for path in walk.matching("", parts):
                yield from walk.tree(path)


def matches(pattern: str, path: str) -> bool:
    """Return whether the pattern may name the path, or a directory above it."""
    parts, names = _parts(pattern), path.split("/")
    if names[: len(parts)] == parts:
        return True
    if parts[-1:] == [_ANY_DEPTH]:
        parts = [*parts, "*"]  # something at least
    places = {0}  # in `names`: how much of it the parts so far can be
    for part in parts:
        places = _after(part, names, places)
    return bool(places)


def _after(part: str, names: List[str], places: Set[int]) -> Set[int]:
    if part != _ANY_DEPTH:
        return {place + 1 for place in places if place < len(names) and _fits(part, names[place])}
    reached = set(places)
    for place in sorted(places):
        while place < len(names) and not names[place].startswith("."):
            place += 1
            reached.add(place)
    return reached


def _parts(pattern: str) -> List[str]:
    return [part for part in pattern.split("/") if part not in ("", ".")]


def _fits(part: str, name: str) -> bool:
    if not is_pattern(part):
        return part == name
    return fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))


class _Walk:
    """The entries below the root of `files`. Paths are portable and relative to it."""

    def __init__(self, files: Confined, budget: Budget) -> None:
        self._files, self._budget = files, budget

    def exists(self, path: str) -> bool:
        """Return whether the path is there, be it as a link that may not be followed."""
        try:
            return self._files.exists(native(path))
        except LeadsOutError:
            return False

    def matching(self, directory: str, parts: List[str]) -> Iterator[str]:
        """Yield the paths that the rest of a pattern names from a directory on."""
        if not parts:
            yield directory
            return
        part, rest = parts[0], parts[1:]
        if part == _ANY_DEPTH and rest:
            yield from self.matching(directory, rest)
        if rest and not is_pattern(part):  # what else is there may be much
            self._budget.spend(1)
            if self._is_directory(_join(directory, part)):
                yield from self.matching(_join(directory, part), rest)
            return
        for name in self._names(directory):
            path = _join(directory, name)
            if part == _ANY_DEPTH:
                yield from self._any_depth(path, name, parts if rest else [])
            elif _fits(part, name) and (not rest or self._is_directory(path)):
                yield from self.matching(path, rest)

    def _any_depth(self, path: str, name: str, parts: List[str]) -> Iterator[str]:
        if name.startswith("."):
            return
        if not parts:
            yield path
        elif self._is_directory(path, linked=False):
            yield from self.matching(path, parts)

    def tree(self, path: str) -> Iterator[Found]:
        """Yield the entry, unless it is the root, and all entries below it; nothing if it does not exist."""
        try:
            if not self._files.exists(native(path)):
                return
            above = self._files.look(native(path.rpartition("/")[0])).place.real
        except LeadsOutError as error:
            yield _leads_out(path, error)
            return
        except OSError:
            return  # it has just gone
        left = [(path, (above,))]  # type: List[Tuple[str, Tuple[str, ...]]]
        while left:
            path, inside = left.pop()
            self._budget.spend(1)
            found, real = self._look(path, inside if path else ())
            if path:
                yield found
            if found.kind != DIRECTORY:
                continue
            try:
                names = self._listed(path)
            except OSError as error:
                yield Found(path, REFUSED, why="cannot be read: %s" % error.strerror)
                continue
            left += [(_join(path, name), (*inside, real)) for name in reversed(names)]

    def _look(self, path: str, above: Tuple[str, ...]) -> Tuple[Found, str]:
        """Return the entry and, of a directory, its path without links. `above`: those of the directories above it."""
        try:
            entry = self._files.look(native(path))
        except LeadsOutError as error:
            return _leads_out(path, error), ""
        except FileNotFoundError:
            return Found(path, REFUSED, why="is a link that leads nowhere, or has just gone"), ""
        except OSError as error:
            return Found(path, REFUSED, why="cannot be looked at: %s" % error.strerror), ""
        real = entry.place.real
        if entry.linked and entry.is_directory and any(_is_below(each, real) for each in above):
            return Found(path, REFUSED, why="is a link that leads back to a directory above it"), ""
        return _seen(path, entry), real

    def _is_directory(self, path: str, linked: bool = True) -> bool:
        """Return whether the path is a directory; with `linked`, or a link to one."""
        try:
            entry = self._files.look(native(path))
        except OSError:
            return False
        return entry.is_directory and (linked or not entry.linked)

    def _names(self, directory: str) -> List[str]:
        """Sorted names in a directory; none if it is no directory or cannot be read."""
        try:
            names = self._listed(directory)
        except OSError:
            return []
        self._budget.spend(len(names))
        return names

    def _listed(self, directory: str) -> List[str]:
        return sorted(portable(name) for name in self._files.names(native(directory)))


def _leads_out(path: str, error: LeadsOutError) -> Found:
    return Found(path, REFUSED, why="is a link that leads out, to %s" % portable(error.target))


def _seen(path: str, entry: Entry) -> Found:
    status = entry.status
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if entry.is_directory:
        return Found(path, DIRECTORY, 0, mode)
    if not stat.S_ISREG(status.st_mode):
        return Found(path, REFUSED, why="is neither a plain file nor a directory")
    if not os.access(entry.name, os.R_OK, dir_fd=entry.place.descriptor, follow_symlinks=False):
        return Found(path, REFUSED, why="may not be read")
    return Found(path, FILE, status.st_size, mode, status.st_mtime_ns)


def _join(directory: str, name: str) -> str:
    return "%s/%s" % (directory, name) if directory else name


def _is_below(path: str, bound: str) -> bool:
    return path == bound or path.startswith(bound.rstrip("/") + "/")
