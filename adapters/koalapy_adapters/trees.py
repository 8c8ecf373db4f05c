"""Files by pattern, below one directory: plain names, `*`, `?`, `[...]`, `**`; a directory stands for all in it.

Both sides use it: koalad for files that are staged in, the KCM for files that are staged out. koalad then uses it to
check that a cluster sends only what was requested. Paths are relative and have no `.` or `..`. Their bytes in UTF-8,
with surrogate escapes, are those of the file names, whatever encoding of file names this process has.
"""

import fnmatch
import os
import re
import stat
from typing import Iterator, List, NamedTuple, Sequence, Set, Tuple

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
    """Whether the path has a wildcard, and so may name several files, or none."""
    return _WILD.search(path) is not None


def is_inside(path: str) -> bool:
    """Whether a relative path stays below the directory that it starts from."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def native(path: str) -> str:
    """Convert a portable path to the form in which this process names the file to its system."""
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))


def portable(path: str) -> str:
    """Convert a path of this process to the form that is sent to the other side."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def expand(root: str, pattern: str, bounds: Sequence[str] = ()) -> Iterator[Found]:
    """Yield the entries that the pattern names below `root`, a directory before its contents; some may be repeated.

    A pattern that exists as it is written names that file, even with `*` or `[` in it. A link is followed if it leads
    below `root` or one of `bounds`, and refused otherwise. Wildcards and `**` pass over names that begin with a dot,
    and `**` over links to directories. Blocks. Raises OSError if `root` cannot be looked at.
    """
    os.stat(root)
    walk = _Walk(root, (root, *bounds))
    parts = _parts(pattern)
    literal = "/".join(parts)
    if not is_pattern(literal) or os.path.lexists(walk.full(literal)):
        yield from walk.tree(literal)
    else:
        for path in walk.matching("", parts):
            yield from walk.tree(path)


def matches(pattern: str, path: str) -> bool:
    """Whether the pattern may name the path, or a directory above it."""
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
    """The entries below `root`. Paths are portable and relative to it; the empty path is `root` itself."""

    def __init__(self, root: str, bounds: Sequence[str]) -> None:
        self._root = root
        self._bounds = [os.path.realpath(bound) for bound in bounds]

    def full(self, path: str) -> str:
        return os.path.join(self._root, native(path)) if path else self._root

    def matching(self, directory: str, parts: List[str]) -> Iterator[str]:
        """Yield the paths that the rest of a pattern names from a directory on."""
        if not parts:
            yield directory
            return
        part, rest = parts[0], parts[1:]
        if part == _ANY_DEPTH and rest:
            yield from self.matching(directory, rest)
        if rest and not is_pattern(part):  # what else is there may be much
            if os.path.isdir(self.full(_join(directory, part))):
                yield from self.matching(_join(directory, part), rest)
            return
        for name in self._names(directory):
            path = _join(directory, name)
            if part == _ANY_DEPTH:
                yield from self._any_depth(path, name, parts if rest else [])
            elif _fits(part, name) and (not rest or os.path.isdir(self.full(path))):
                yield from self.matching(path, rest)

    def _any_depth(self, path: str, name: str, parts: List[str]) -> Iterator[str]:
        if name.startswith("."):
            return
        if not parts:
            yield path
        elif os.path.isdir(self.full(path)) and not os.path.islink(self.full(path)):
            yield from self.matching(path, parts)

    def tree(self, path: str) -> Iterator[Found]:
        """Yield the entry, unless it is `root`, and all entries below it; nothing if it does not exist."""
        if not os.path.lexists(self.full(path)):
            return
        left = [(path, ())]  # type: List[Tuple[str, Tuple[str, ...]]]
        while left:
            path, above = left.pop()
            found = self._look(path, above)
            if path:
                yield found
            if found.kind != DIRECTORY:
                continue
            inside = (*above, self._real(path, above))
            try:
                names = self._listed(path)
            except OSError as error:
                yield Found(path, REFUSED, why="cannot be read: %s" % error.strerror)
                continue
            left += [(_join(path, name), inside) for name in reversed(names)]

    def _look(self, path: str, above: Tuple[str, ...]) -> Found:
        full = self.full(path)
        try:
            status = os.lstat(full)
            if stat.S_ISLNK(status.st_mode):
                status = os.stat(full)
                real = os.path.realpath(full)
                if not any(_is_below(real, bound) for bound in self._bounds):
                    return Found(path, REFUSED, why="is a link that leads out, to %s" % portable(os.readlink(full)))
                if any(_is_below(each, real) for each in (*above, os.path.realpath(os.path.dirname(full)))):
                    return Found(path, REFUSED, why="is a link that leads back to a directory above it")
        except FileNotFoundError:
            return Found(path, REFUSED, why="is a link that leads nowhere, or has just gone")
        except OSError as error:
            return Found(path, REFUSED, why="cannot be looked at: %s" % error.strerror)
        return _seen(path, full, status)

    def _real(self, path: str, above: Tuple[str, ...]) -> str:
        """Real path of a directory below the last of `above`, derived from that one's.

        If the system resolved each path, the cost would grow with the square of the depth.
        """
        full = self.full(path)
        if not above or os.path.islink(full):
            return os.path.realpath(full)
        return os.path.join(above[-1], os.path.basename(full))

    def _names(self, directory: str) -> List[str]:
        """Sorted names in a directory; none if it is no directory or cannot be read."""
        try:
            return self._listed(directory)
        except OSError:
            return []

    def _listed(self, directory: str) -> List[str]:
        return sorted(portable(name) for name in os.listdir(self.full(directory)))


def _seen(path: str, full: str, status: os.stat_result) -> Found:
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISDIR(status.st_mode):
        return Found(path, DIRECTORY, 0, mode)
    if not stat.S_ISREG(status.st_mode):
        return Found(path, REFUSED, why="is neither a plain file nor a directory")
    if not os.access(full, os.R_OK):
        return Found(path, REFUSED, why="may not be read")
    return Found(path, FILE, status.st_size, mode, status.st_mtime_ns)


def _join(directory: str, name: str) -> str:
    return "%s/%s" % (directory, name) if directory else name


def _is_below(path: str, bound: str) -> bool:
    return path == bound or path.startswith(bound.rstrip("/") + "/")
