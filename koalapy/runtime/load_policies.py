"""The policies that a grid file chose, and those that a sweep may choose for itself, loaded from what is registered."""

from collections.abc import Mapping
from typing import Any

import structlog

from koalapy.model.settings import Settings
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.registry import load, registered
from koalapy.scheduler.schedule import Policies

_LOG = structlog.get_logger()


def policies(settings: Settings) -> Policies:
    """The policies that the grid file names."""
    return Policies(load("koalapy.placement", settings.placement), load("koalapy.queueing", settings.queue))


def scavenging_policies(settings: Settings) -> ScavengingPolicies:
    """Those of sweeps that the grid file names."""
    chosen = settings.scavenging
    return ScavengingPolicies(
        fairshare=load("koalapy.fairshare", chosen.policy),
        idleness=load("koalapy.idleness", chosen.idleness),
        admission=load("koalapy.admission", chosen.admission),
        preemption=load("koalapy.preemption", chosen.preemption),
        order=load("koalapy.sweep_order", chosen.order),
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
