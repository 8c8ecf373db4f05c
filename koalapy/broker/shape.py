"""What of a request placing depends on: requests of one shape get one answer, and some shapes need not be asked for."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from koalapy.model.request import ComponentRequest, Request


class ComponentShape(NamedTuple):
    processors: int
    cluster: str | None
    processors_per_node: int | None
    exclusive: bool
    optional: bool


class Shape(NamedTuple):
    """A request without its program."""

    components: tuple[ComponentShape, ...]
    communication: bool


class MinimumDemand(NamedTuple):
    """What a shape cannot do without, in processors; it may need more, where nodes are taken whole.

    `named`: so many on that cluster. `free`: (size, so many components of at least that size), each size once.
    """

    largest: int
    named: tuple[tuple[str, int], ...]
    free: tuple[tuple[int, int], ...]


def shape_of(request: Request) -> Shape:
    return Shape(tuple(_component(each) for each in request.components), request.communication)


def _component(component: ComponentRequest) -> ComponentShape:
    return ComponentShape(
        component.processors,
        component.cluster,
        component.processors_per_node,
        component.exclusive,
        component.optional,
    )


@lru_cache(maxsize=1 << 14)
def minimum_demand(shape: Shape) -> MinimumDemand:
    needed = [each for each in shape.components if not each.optional]
    sizes = sorted((each.processors for each in needed if each.cluster is None), reverse=True)
    named: dict[str, int] = {}
    for each in needed:
        if each.cluster is not None:
            named[each.cluster] = named.get(each.cluster, 0) + each.processors
    return MinimumDemand(max((each.processors for each in needed), default=0), tuple(named.items()), _at_least(sizes))


def _at_least(sizes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Of sizes in descending order."""
    return tuple({size: count for count, size in enumerate(sizes, 1)}.items())
