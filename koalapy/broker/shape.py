"""The shape of a request: everything in it that placing depends on. Requests of one shape have one answer."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from koalapy.model.isolated import beyond_isolation
from koalapy.model.lease import beyond_pilots
from koalapy.model.request import ComponentRequest, Request


class ComponentShape(NamedTuple):
    """A component request without its program, but for what that needs beyond a pilot or lease."""

    processors: int
    cluster: str | None
    processors_per_node: int | None
    exclusive: bool
    optional: bool
    requirements: str = ""
    rank: str = ""
    spread: bool = False
    least: int | None = None
    unit: int = 1  # by which it may get fewer processors
    beyond_isolation: str = ""
    beyond_pilots: tuple[str, bool] = "", False

    @property
    def needed(self) -> int:
        return self.least or self.processors


class Shape(NamedTuple):
    """A request without its program."""

    components: tuple[ComponentShape, ...]
    communication: bool


class MinimumDemand(NamedTuple):
    """The processors that a shape needs at least; it may need more if nodes are taken whole.

    `named`: pairs (cluster, processors). `free`: pairs (size, how many components have at least that size), each size
    once.
    """

    largest: int
    named: tuple[tuple[str, int], ...]
    free: tuple[tuple[int, int], ...]


def shape_of(request: Request) -> Shape:
    """Return the shape of a request."""
    return Shape(tuple([_component(each) for each in request.components]), request.communication)


def _component(component: ComponentRequest) -> ComponentShape:
    return ComponentShape(
        component.processors,
        component.cluster,
        component.processors_per_node,
        component.exclusive,
        component.optional,
        component.requirements,
        component.rank,
        component.spread,
        component.least,
        1 if component.least is None and not component.spread else component.unit,
        beyond_isolation(component),
        (beyond_pilots(component), bool(component.native)),
    )


@lru_cache(maxsize=1 << 14)
def minimum_demand(shape: Shape) -> MinimumDemand:
    """Return the least demand of a shape, without its optional components."""
    if shape.components and shape.components[0].spread:
        return MinimumDemand(1, (), ((1, shape.components[0].needed),))
    needed = [each for each in shape.components if not each.optional]
    sizes = sorted((each.needed for each in needed if each.cluster is None), reverse=True)
    named: dict[str, int] = {}
    for each in needed:
        if each.cluster is not None:
            named[each.cluster] = named.get(each.cluster, 0) + each.needed
    return MinimumDemand(max((each.needed for each in needed), default=0), tuple(named.items()), _at_least(sizes))


def _at_least(sizes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return pairs (size, how many sizes are at least as large), for sizes in descending order."""
    return tuple({size: count for count, size in enumerate(sizes, 1)}.items())
