"""What is registered under koalapy's entry points: our own and third parties' alike."""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import structlog

from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies

_LOG = structlog.get_logger()


def registered(group: str) -> Mapping[str, EntryPoint]:
    """Entry points of `koalapy.placement`, `koalapy.batch_systems`, … by name; nothing is imported yet."""
    return {point.name: point for point in entry_points(group=group)}


def load(group: str, name: str) -> Callable[..., Any]:
    """Raises RequestError where nothing of this name is registered."""
    found = registered(group)
    if name not in found:
        known = ", ".join(sorted(found))
        raise RequestError("not_registered", f"Nothing called {name} is registered under {group}.", f"Known: {known}.")
    loaded: Callable[..., Any] = found[name].load()
    return loaded


def policies(settings: Settings) -> Policies:
    """The policies that the grid file names."""
    return Policies(load("koalapy.placement", settings.placement), load("koalapy.queueing", settings.queue))


def scavenging_policies(settings: Settings) -> ScavengingPolicies:
    """Those of sweeps that the grid file names."""
    chosen = settings.scavenging
    return ScavengingPolicies(
        fairshare=_value("koalapy.fairshare", chosen.policy),
        idleness=load("koalapy.idleness", chosen.idleness),
        admission=load("koalapy.admission", chosen.admission),
        preemption=load("koalapy.preemption", chosen.preemption),
        order=_value("koalapy.sweep_order", chosen.order),
        orders=_loadable("koalapy.sweep_order"),
    )


def _loadable(group: str) -> Mapping[str, Any]:
    """All that is registered, but for what is broken: nobody may have named it."""
    found = {}
    for name, point in registered(group).items():
        try:
            found[name] = point.load()
        except Exception as error:
            _LOG.warning("not_loadable", group=group, name=name, error=str(error))
    return found


def _value(group: str, name: str) -> Any:
    return load(group, name)
