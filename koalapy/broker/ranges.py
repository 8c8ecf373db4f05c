"""Ranges: a component that allows fewer processors than it wants gets the most with which its job fits."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from koalapy.model.request import ComponentRequest

Components = Mapping[int, ComponentRequest]  # by their indices in the request
Found = TypeVar("Found")


def most_that_fits(
    components: Components, place: Callable[[Components], Found | None]
) -> tuple[Components, Found] | None:
    """Return the components with the most processors with which they fit, and what `place` returns for them.

    `place` returns None for components that do not fit. Return None if they do not even fit with their least
    processors. Of several components with a range, each gets its most while those behind it have their least.
    """
    found = place(components)
    if found is not None:
        return components, found
    ranged = [index for index, each in components.items() if each.smallest() is not each]
    if not ranged:
        return None
    fitting = {index: each.smallest() for index, each in components.items()}
    found = place(fitting)
    if found is None:
        return None
    for index in ranged:
        sizes = components[index].sizes
        fits, too_many = 0, len(sizes)
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            larger = {**fitting, index: replace(components[index], processors=sizes[middle])}
            placed = place(larger)
            if placed is None:
                too_many = middle
            else:
                fits, fitting, found = middle, larger, placed
    return fitting, found
