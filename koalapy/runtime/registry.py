"""What is registered under koalapy's entry points: our own and third parties' alike."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from koalapy.model.errors import RequestError


def registered(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of `koalapy.placement`, `koalapy.batch_systems`, … by name; nothing is imported yet."""
    return {point.name: point for point in entry_points(group=group)}


def load(group: str, name: str) -> Any:
    """Raises RequestError where nothing of this name is registered, or what is cannot be imported."""
    found = registered(group)
    if name not in found:
        known = ", ".join(sorted(found))
        raise RequestError("not_registered", f"Nothing called {name} is registered under {group}.", f"Known: {known}.")
    try:
        return found[name].load()
    except Exception as error:
        what = f"{name} is registered under {group}, but cannot be loaded ({type(error).__name__}: {error})."
        raise RequestError(
            "not_loadable", what, "Mend or reinstall the package that has it, or name another."
        ) from error
