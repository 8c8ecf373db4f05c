"""The entry points of koalapy: policies, batch systems, job languages and tasks, our own and third parties'."""

import functools
import os
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from koalapy.model.errors import RequestError


def registered(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group such as `koalapy.placement`, by name; none of them is imported."""
    return _all_of(tuple((place, _changed_at(place)) for place in sys.path)).get(group, {})


def load(group: str, name: str) -> Any:
    """Import the object that is registered under this name.

    Raises RequestError if there is none, or if it cannot be imported.
    """
    found = registered(group)
    if name not in found:
        known = ", ".join(sorted(found))
        raise RequestError("not_registered", f"Nothing called {name} is registered under {group}.", f"Known: {known}.")
    try:
        return found[name].load()
    except Exception as error:
        what = f"{name} is registered under {group}, but cannot be loaded ({type(error).__name__}: {error})."
        raise RequestError(
            "not_loadable", what, "Repair or reinstall the package that provides it, or choose another name."
        ) from error


@functools.lru_cache(maxsize=1)
def _all_of(path: tuple[tuple[str, int], ...]) -> Mapping[str, Mapping[str, EntryPoint]]:
    """Return the entry points of all that is installed, by group. Each look reads a file of every package."""
    found = entry_points()
    return {group: {point.name: point for point in found.select(group=group)} for group in found.groups}


def _changed_at(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:
        return 0
