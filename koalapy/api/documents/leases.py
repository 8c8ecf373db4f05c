"""Leases, as JSON."""

from collections.abc import Iterable
from typing import Literal

from koalapy import answers
from koalapy.api.documents.fields import optional_instant
from koalapy.model.lease import Lease, LeaseState
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import SECOND, format_instant
from koalapy.views.leases import LeaseView


def _state(found: Lease) -> Literal["asked", "binding", "bound", "revoking", "closing", "over"]:
    return "revoking" if found.state is LeaseState.BOUND and found.revoked_until is not None else found.state.value


def lease(view: LeaseView) -> answers.Lease:
    """Describe a lease."""
    found = view.lease
    return {
        "name": view.name,
        "direction": "lent" if found.lent else "borrowed",
        "neighbour": view.neighbour,
        "reachable": view.reachable,
        "state": _state(found),
        "processors": found.processors,
        "on": view.cluster,
        "beyond": None if found.beyond is None else found.beyond[0],
        "links": found.length,
        "job": found.job,
        "asked_at": format_instant(found.asked_at),
        "bound_at": optional_instant(found.bound_at),
        "ends_at": optional_instant(found.ends_at),
        "jobs": list(view.left.living),
    }


def leases(views: Iterable[LeaseView], neighbours: Iterable[Neighbour]) -> answers.LeasesAnswer:
    """Describe the leases of a site, and what was lent and borrowed over each link."""
    usage: list[answers.SiteUsage] = [
        {"neighbour": each.name, "lent_s": each.lent / SECOND, "borrowed_s": each.borrowed / SECOND}
        for each in neighbours
        if each.lent or each.borrowed
    ]
    return {"schema": "koala.leases/1", "leases": [lease(each) for each in views], "usage": usage}
