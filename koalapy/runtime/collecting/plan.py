"""Plans the places of the files of a job's components before any is transferred. It trusts no cluster."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from koalapy_adapters.trees import DIRECTORY, FILE, REFUSED, Found, is_inside, is_pattern, matches, native

from koalapy.model.commands import CollectOutput
from koalapy.model.errors import ClusterError, RequestError
from koalapy.model.identity import AttemptId

MOST_FILES = 100_000
_MOST_BYTES = 64 << 20  # of one component's list
_LINE = 1 << 16  # bytes of one entry of a list
_PATH, _NAME, _DEPTH = (
    4000,
    255,
    200,
)  # bytes of a path and of a name in it, and how many names: as file systems have it
_MOST = 1 << 63  # bound of numbers in messages
_SHOWN = 5


class Item(NamedTuple):
    """An entry of a component's working directory, and its place on this host. The place may not leave `base`."""

    cluster: str
    attempt: AttemptId
    found: Found
    base: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Plan:
    """The items to bring, directories before their contents.

    `missing`: names that no component has, with the reason. `notes`: sentences on other things that are left out.
    """

    items: tuple[Item, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def files(self) -> list[Item]:
        return [item for item in self.items if item.found.kind == FILE]


Listed = tuple[str, AttemptId, Sequence[Found]]  # by one component


def plan(command: CollectOutput, listed: Iterable[Listed]) -> Plan:
    """Return the plan for the listed files. If two have the same place, that of the first component counts.

    A place with `{component}` keeps them apart. Raises RequestError if a cluster lists a file that was not requested.
    """
    places = dict(command.to)
    making = _Making()
    for cluster, attempt, entries in listed:
        for found in entries:
            named = [pattern for pattern in command.paths if matches(pattern, found.path)]
            _check(cluster, found, named)
            for pattern in named:
                if found.kind == REFUSED:
                    making.refuse(pattern, found)
                    continue
                base = Path(command.directory, _filled(places.get(pattern, ""), cluster, attempt))
                making.add(pattern, Item(cluster, attempt, found, base, base / native(found.path)))
    return making.plan(command.paths)


def check_paths(paths: Iterable[str]) -> None:
    """Raises RequestError if a path leads out of the working directory."""
    for path in paths:
        if leads_out(path):
            message = f"{path} is to be staged out, but is not a path below the working directory."
            raise RequestError("bad_stage_out", message, "Let the program write it there.")


def leads_out(path: str) -> bool:
    return os.path.isabs(path) or ".." in PurePosixPath(path).parts


def entries(pieces: Iterable[bytes]) -> Iterator[Found]:
    """Yield the entries of the stream in which a KCM lists files.

    Raises ClusterError if the stream is not understood, and RequestError if it or a path in it is too long.
    """
    rest, size, count = b"", 0, 0
    for piece in pieces:
        size += len(piece)
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        count += len(lines)
        if size > _MOST_BYTES or count > MOST_FILES:
            advice = "Let the program pack them into an archive."
            raise RequestError("too_many_files", f"More than {MOST_FILES} files are to be staged out.", advice)
        if len(rest) > _LINE:
            raise _not_understood(rest)
        yield from map(_entry, lines)


def _entry(line: bytes) -> Found:
    try:
        path, kind, size, mode, mtime_ns, why = json.loads(line)
        if not isinstance(path, str) or not isinstance(why, str) or kind not in (FILE, DIRECTORY, REFUSED):
            raise ValueError(line)
        found = Found(path, kind, as_count(size), as_count(mode) & 0o777, as_time(mtime_ns), why)
        names = path.encode("utf-8", "surrogateescape").split(b"/")
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_understood(line) from error
    if len(names) > _DEPTH or max(map(len, names)) > _NAME or sum(map(len, names)) + len(names) > _PATH:
        advice = "Let the program write it under a shorter path, or pack it into an archive."
        raise RequestError("path_too_long", f"The path {path[:80]!r}… is too long to be staged out.", advice)
    return found


def as_count(value: Any) -> int:
    """Return a size or another number that is not negative. Raises ValueError for anything else."""
    if type(value) is not int or not 0 <= value < _MOST:
        raise ValueError(value)
    return value


def as_time(value: Any) -> int:
    """Return a time in ns since 1970, negative before. Raises ValueError for anything else."""
    if type(value) is not int or not -_MOST < value < _MOST:
        raise ValueError(value)
    return value


def _not_understood(line: bytes) -> ClusterError:
    return ClusterError("bad_listing", f"A KCM's report of its files cannot be read: {line[:80]!r}.", "")


def _check(cluster: str, found: Found, named: Sequence[str]) -> None:
    if not is_inside(found.path) or not named:
        message = f"{cluster} offers the file {found.path!r}, which was not asked for."
        raise RequestError("bad_listing", message, "Nothing of it was written. Look at what runs on that cluster.")


def _filled(place: str, cluster: str, attempt: AttemptId) -> str:
    for name, value in (("job", attempt.job), ("component", attempt.component), ("cluster", cluster)):
        place = place.replace(f"{{{name}}}", str(value))
    return place


class _Making:
    def __init__(self) -> None:
        self._items: dict[Path, Item] = {}
        self._named: set[str] = set()
        self._refused: dict[str, Found] = {}
        self._hidden: list[Item] = []

    def add(self, pattern: str, item: Item) -> None:
        self._named.add(pattern)
        before = self._items.get(item.target)
        if before is None and not self._is_below_file(item):
            self._items[item.target] = item
        elif before is None or (before.attempt != item.attempt and item.found.kind == FILE):
            self._hidden.append(item)

    def refuse(self, pattern: str, found: Found) -> None:
        self._refused.setdefault(found.path, found)

    def plan(self, patterns: Sequence[str]) -> Plan:
        absent = [pattern for pattern in patterns if pattern not in self._named]
        plain = [pattern for pattern in absent if not is_pattern(pattern)]
        missing = [f"{name} ({self._refused[name].why})" if name in self._refused else name for name in plain]
        notes = [f"Nothing matches {pattern}." for pattern in absent if is_pattern(pattern)]
        notes += [f"{each.path} {each.why}, and is left." for each in self._refused.values() if each.path not in plain]
        if self._hidden:
            hidden = dict.fromkeys(f"{item.found.path} of component {item.attempt.component}" for item in self._hidden)
            notes.append(f"Not brought, since an earlier component's file has the same place: {_some(list(hidden))}.")
        return Plan(tuple(self._items.values()), tuple(missing), tuple(notes))

    def _is_below_file(self, item: Item) -> bool:
        above = (self._items.get(directory) for directory in item.target.parents)
        return any(each is not None and each.found.kind == FILE for each in above)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
