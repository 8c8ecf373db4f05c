"""Plans the places of the files of one Launcher's parameters. Like the plan for jobs, it trusts no cluster."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from koalapy_adapters.trees import FILE, REFUSED, Found, is_inside, is_pattern, matches, native

from koalapy.model.errors import RequestError
from koalapy.model.identity import AttemptId
from koalapy.runtime.collecting.plan import Item
from koalapy.runtime.collecting.sweep_names import Wanted

_WILD = "*?["


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
