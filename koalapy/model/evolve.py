"""`dataclasses.replace` for frozen values with slots, in less than half its time: for what changes with every event.

Nothing is checked anew, so the values must have no `__post_init__`.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def evolver(kind: type[T]) -> Callable[[T, Mapping[str, Any]], T]:
    """A function from a value and what is different of it to another value. It raises TypeError for no field's name."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    places = {name: place for place, name in enumerate(names)}
    read = attrgetter(*names)
    write = [getattr(kind, name).__set__ for name in names]  # past the guard of a frozen class

    def evolve(value: T, changes: Mapping[str, Any]) -> T:
        contents = list(read(value))
        for name, content in changes.items():
            if name not in places:
                raise TypeError(f"{kind.__name__} has no field {name}")
            contents[places[name]] = content
        evolved = object.__new__(kind)
        for set_field, content in zip(write, contents, strict=True):
            set_field(evolved, content)
        return evolved

    return evolve
