"""Loads registered policies, those of a grid file and those that a sweep may choose, and what dialects state."""

from collections.abc import Mapping
from typing import Any

import structlog

from koalapy.common.registry import load, registered
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.policies.delegation import SitePolicies
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies

_LOG = structlog.get_logger()


def policies(settings: Settings) -> Policies:
    """Return the policies for jobs, and for requests between sites, that the grid file names."""
    return Policies(
        load("koalapy.placement", settings.placement),
        load("koalapy.queueing", settings.queue),
        load("koalapy.vacating", settings.preempt.policy),
        SitePolicies(
            load("koalapy.delegation", settings.delegation.policy),
            load("koalapy.targets", settings.delegation.targets),
            load("koalapy.dispatching", settings.delegation.dispatching),
        ),
        load("koalapy.candidates", settings.race.policy),
    )


def frees_when_suspended(batch: str) -> bool:
    """Return whether a batch system gives the processors of a suspended job to others, as its dialect states."""
    try:
        dialect = load("koalapy.batch_systems", batch)
    except RequestError:
        return False  # its clusters show the error
    return bool(getattr(dialect, "FREES_WHEN_SUSPENDED", False))


def scavenging_policies(settings: Settings) -> ScavengingPolicies:
    """Return the policies for sweeps that the grid file names, and all orders that a sweep may choose."""
    chosen = settings.scavenging
    return ScavengingPolicies(
        fairshare=load("koalapy.fairshare", chosen.policy),
        idleness=load("koalapy.idleness", chosen.idleness),
        admission=load("koalapy.admission", chosen.admission),
        reclaim=load("koalapy.reclaim", chosen.reclaim),
        order=load("koalapy.sweep_order", chosen.order),
        orders=_loadable("koalapy.sweep_order"),
    )


def _loadable(group: str) -> Mapping[str, Any]:
    """Return all registered policies of the group.

    One that cannot be loaded is skipped: the grid file may not name it.
    """
    found = {}
    for name, point in registered(group).items():
        try:
            found[name] = point.load()
        except Exception as error:
            _LOG.warning("not_loadable", group=group, name=name, error=str(error))
    return found
