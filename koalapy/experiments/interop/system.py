"""The clusters of one or several grids and the hierarchy above them, from a file such as those in configs/systems."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from koalapy.model.errors import RequestError
from koalapy.model.neighbour import Relation
from koalapy.model.textfile.document import read_document
from koalapy.model.textfile.fields import Between, Number, Section, Version, Word
from koalapy.model.textfile.validation import validate


@dataclass(frozen=True)
class System:
    """Sites by name, each with its processors (0: administrative) and its parent (None: a root, such as a grid).

    Sites of one parent are siblings, and so are the roots (SC'07, section 4.1).
    """

    name: str
    processors: Mapping[str, int]
    parents: Mapping[str, str | None]

    @cached_property
    def clusters(self) -> tuple[str, ...]:
        return tuple(name for name, count in self.processors.items() if count)

    @cached_property
    def total(self) -> int:
        return sum(self.processors.values())

    @cached_property
    def grids(self) -> Mapping[str, str]:
        """The root above each site."""
        return {name: self._root(name) for name in self.parents}

    def neighbours(self, site: str) -> dict[str, Relation]:
        parent = self.parents[site]
        found = {name: Relation.CHILD for name, above in self.parents.items() if above == site}
        found |= {name: Relation.SIBLING for name, above in self.parents.items() if above == parent and name != site}
        return found | ({parent: Relation.PARENT} if parent is not None else {})

    def _root(self, site: str) -> str:
        while (parent := self.parents[site]) is not None:
            site = parent
        return site


def read_system(text: str, source: str) -> System:
    """Return the system in a file. Raises RequestError, which names file, place and key."""
    file = validate(_SystemFile, read_document(text, source), {})
    parents = {name: site.parent for name, site in file.sites.items()}
    for name, parent in parents.items():
        if parent is not None and parent not in parents:
            raise RequestError("no_such_site", f"{source}: {name} is below {parent}, which is not a site.", "Name one.")
        _refuse_circle(source, name, parents)
    system = System(file.system, {name: site.processors for name, site in file.sites.items()}, parents)
    if not system.clusters:
        raise RequestError("no_cluster", f"{source}: no site has processors.", "Give one of them some.")
    return system


def _refuse_circle(source: str, name: str, parents: Mapping[str, str | None]) -> None:
    above, steps = parents[name], 0
    while above is not None:
        above, steps = parents.get(above), steps + 1
        if steps > len(parents):
            raise RequestError("circle", f"{source}: {name} is below itself.", "Correct the parents.")


class _SiteFile(Section):
    processors: Annotated[Number, Between(0, 1_000_000)] = Field(0, description="of its own; none: administrative")
    parent: Word | None = Field(None, description="the site above it")


class _SystemFile(Section):
    koala: Version = Field(1, description="the version of this format")
    system: Word = Field(description="its name")
    sites: dict[Word, _SiteFile] = Field(description="clusters and what is above them, by name")
