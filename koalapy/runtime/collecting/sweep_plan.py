"""The files of a sweep's parameters: the paths that its templates give for each one, and the plan of their places.

Like the plan for jobs, it trusts no cluster.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from koalapy_adapters.launcher.space import Compiled
from koalapy_adapters.trees import FILE, REFUSED, Found, is_inside, is_pattern, matches, native

from koalapy.languages.parameters import filled
from koalapy.languages.stageout import PLACES
from koalapy.model.commands import CollectOutput
from koalapy.model.errors import RequestError
from koalapy.model.identity import AttemptId
from koalapy.model.request import Request
from koalapy.runtime.collecting.plan import Item, leads_out
from koalapy.runtime.parameters import line_reader

_WILD = "*?["


class Wanted(NamedTuple):
    """One path of one parameter, and the directory on this host that it may not leave.

    `pattern`: whether the path as written may match several files or none. `needed`: whether its absence is reported.
    """

    number: int
    path: str
    base: Path
    pattern: bool
    needed: bool


class Names:
    """The paths of one CollectOutput, for each parameter."""

    def __init__(self, command: CollectOutput, request: Request) -> None:
        self._command, self._request = command, request
        self._patterns = [is_pattern(path) for path in command.paths]
        self._compiled: dict[str, Compiled] = {}  # by cluster, whose name may stand in a place

    def of(self, number: int, cluster: str, needed: bool) -> list[Wanted]:
        """Return the paths of this parameter. `needed`: see Wanted.

        Raises ValueError if its values give no valid path; the error's text ends a sentence. Raises RequestError if the
        values are not known any more, since the file that holds them is missing.
        """
        try:
            texts = [text.decode("utf-8", "surrogateescape") for text in self._templates(cluster).of(number)]
        except ValueError as error:
            raise RequestError(
                "no_value",
                f"The values of parameter {number} are not known any more: {error}.",
                "Its values stand in a file: put it back where it was.",
            ) from error
        half = len(self._patterns)
        parts = zip(texts[:half], texts[half:], self._patterns, strict=True)
        return [Wanted(number, _checked(path), self._base(place), pattern, needed) for path, place, pattern in parts]

    def _templates(self, cluster: str) -> Compiled:
        """Return the compiled templates: the paths first, then the places."""
        if cluster not in self._compiled:
            places = dict(self._command.to)
            known = self._known(cluster)
            texts = [*self._command.paths, *(filled(places.get(path, ""), known) for path in self._command.paths)]
            assert self._request.parameters is not None
            space = asdict(self._request.parameters)
            self._compiled[cluster] = Compiled(space, texts, line_reader(self._request))
        return self._compiled[cluster]

    def _known(self, cluster: str) -> Mapping[str, str]:
        """Return the values that a place may contain besides parameters.

        A parameter of the same name takes precedence.
        """
        assert self._request.parameters is not None
        own = {name for axis in self._request.parameters.axes for each in axis.sources for name in each.names}
        values = zip(PLACES, (str(self._command.job), "0", cluster), strict=True)
        return {name: value for name, value in values if name not in own}

    def _base(self, place: str) -> Path:
        if ".." in place.split("/") or "\0" in place:
            raise ValueError(f"the place {place!r} leads out of the directory that it was written for")
        return Path(self._command.directory, native(place))


def _checked(path: str) -> str:
    """Return the path as the cluster names it.

    Raises ValueError if it leads out of the working directory or is empty.
    """
    if leads_out(path) or "\0" in path:
        raise ValueError(f"{path!r} is not a path below the working directory")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        raise ValueError("its path is empty")
    return os.path.join(*parts)


class Planned(NamedTuple):
    """The items to bring, directories before their contents.

    `absent`: wanted paths that are not there. `refused`: those that are there but cannot be brought.
    """

    items: list[Item]
    absent: list[Wanted]
    refused: list[tuple[Wanted, Found]]

    @property
    def files(self) -> list[Item]:
        return [item for item in self.items if item.found.kind == FILE]


def asked(wanted: Wanted) -> str:
    """Return the path as it is requested from the cluster.

    A `*` from a parameter's value is escaped, since it is no pattern.
    """
    if wanted.pattern or not is_pattern(wanted.path):
        return wanted.path
    return "".join(f"[{character}]" if character in _WILD else character for character in wanted.path)


def is_wild(wanted: Wanted) -> bool:
    """Return whether the whole working directory has to be searched for it."""
    return wanted.pattern and is_pattern(wanted.path.partition("/")[0])


def plan(cluster: str, attempt: AttemptId, wanted: Sequence[Wanted], listed: Iterable[Found]) -> Planned:
    """Return the plan for the listed files. Raises RequestError if a cluster lists a file that was not requested."""
    index = _Index(wanted)
    items: dict[Path, Item] = {}
    refused: dict[tuple[int, str], tuple[Wanted, Found]] = {}
    seen: set[Wanted] = set()
    for found in listed:
        named = list(index.of(found.path)) if is_inside(found.path) else []
        if not named:
            message = f"{cluster} offers the file {found.path!r}, which was not asked for."
            raise RequestError("bad_listing", message, "Nothing of it was written. Look at what runs on that cluster.")
        for each in named:
            if found.kind == REFUSED:
                refused[each.number, found.path] = each, found
                continue
            seen.add(each)
            items.setdefault(each.base / native(found.path), _item(cluster, attempt, found, each))
    refused_names = {each for each, _ in refused.values()}
    absent = [each for each in wanted if each not in seen and each not in refused_names]
    return Planned([*items.values()], absent, [*refused.values()])


def _item(cluster: str, attempt: AttemptId, found: Found, wanted: Wanted) -> Item:
    return Item(cluster, attempt, found, wanted.base, wanted.base / native(found.path))


class _Index:
    """An index of the wanted paths: by the path itself, by a directory above it, or by the first name of a pattern."""

    def __init__(self, wanted: Iterable[Wanted]) -> None:
        self._plain: dict[str, list[Wanted]] = {}
        self._patterns: dict[str, list[Wanted]] = {}
        for each in wanted:
            if each.pattern:
                self._patterns.setdefault("" if is_wild(each) else each.path.partition("/")[0], []).append(each)
            else:
                self._plain.setdefault(each.path, []).append(each)

    def of(self, path: str) -> Iterator[Wanted]:
        for above in _and_above(path):
            yield from self._plain.get(above, ())
        for first in ("", path.partition("/")[0]):
            yield from (each for each in self._patterns.get(first, ()) if matches(each.path, path))


def _and_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]
