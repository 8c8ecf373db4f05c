"""The shape of a request: everything in it that placing depends on. Requests of one shape have one answer."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from koalapy.model.isolated import beyond_isolation
from koalapy.model.lease import beyond_pilots
from koalapy.model.request import ComponentRequest, Request


class Beyond(NamedTuple):
    """The needs of a component that any cluster of a grid file meets, and a pilot, a lease or an isolation may not."""

    isolation: str
    pilots: str
    native: bool


class Special(NamedTuple):
    """The wishes that few components have. `unit`: by which a component with a range may get fewer processors."""

    requirements: str
    rank: str
    spread: bool
    least: int | None
    unit: int
    beyond: Beyond | None


class ComponentShape(NamedTuple):
    """A component request without its program. `special`: None for most components, so that they are compared fast."""

    processors: int
    cluster: str | None
    processors_per_node: int | None
    exclusive: bool
    optional: bool
    special: Special | None = None

    @property
    def needed(self) -> int:
        return self.processors if self.special is None else self.special.least or self.processors

    @property
    def spread(self) -> bool:
        return self.special is not None and self.special.spread


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
        _special(component),
    )


def _special(component: ComponentRequest) -> Special | None:
    is_range, needed = component.spread or component.least is not None, beyond(component)
    if not (is_range or component.requirements or component.rank or needed):
        return None
    unit = component.unit if is_range else 1
    return Special(component.requirements, component.rank, component.spread, component.least, unit, needed)


def beyond(component: ComponentRequest) -> Beyond | None:
    """Return what the component needs beyond a pilot or lease; None if it needs nothing more."""
    isolation, pilots, native = beyond_isolation(component), beyond_pilots(component), bool(component.native)
    return Beyond(isolation, pilots, native) if isolation or pilots or native else None


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
