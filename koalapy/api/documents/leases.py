"""Leases, as JSON."""

from collections.abc import Iterable
from typing import Literal, cast

from koalapy import answers
from koalapy.model.ended_lease import EndedLease
from koalapy.model.lease import Lease
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import SECOND, format_instant
from koalapy.views.fields import optional_instant
from koalapy.views.leases import LeaseView, ended_name

_State = Literal["asked", "binding", "bound", "revoking", "closing", "over"]  # one that is gone is not shown


def _state(found: Lease) -> _State:
    return "revoking" if found.state.bound and found.revoked_until is not None else cast(_State, found.state.value)


def lease(view: LeaseView) -> answers.Lease:
    """Describe a lease."""
    found = view.lease
    return {
        "name": view.name,
        "direction": "lent" if found.lent else "borrowed",
        "neighbour": found.neighbour,
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


def ended_lease(found: EndedLease) -> answers.EndedLease:
    """Describe a lease that is over."""
    return {
        "name": ended_name(found),
        "direction": "lent" if found.lent else "borrowed",
        "neighbour": found.neighbour,
        "processors": found.processors,
        "on": found.cluster or None,
        "beyond": found.beyond or None,
        "links": found.links,
        "job": found.job,
        "site": found.site or None,
        "request": found.request,
        "user": found.user,
        "job_name": found.name,
        "asked_at": format_instant(found.asked_at),
        "began_at": format_instant(found.began_at),
        "ended_at": format_instant(found.ended_at),
        "charged_s": found.charge / SECOND,
        "measured_s": found.measured / SECOND,
        "reported": found.reported,
        "code": found.code,
        "message": found.message,
    }


def leases(
    views: Iterable[LeaseView], neighbours: Iterable[Neighbour], ended: Iterable[EndedLease] = ()
) -> answers.LeasesAnswer:
    """Describe the leases of a site, those that are over, and what was lent and borrowed over each link."""
    usage: list[answers.SiteUsage] = [
        {"neighbour": each.name, "lent_s": each.lent / SECOND, "borrowed_s": each.borrowed / SECOND}
        for each in neighbours
        if each.lent or each.borrowed
    ]
    return {
        "schema": "koala.leases/1",
        "leases": [lease(each) for each in views],
        "ended": [ended_lease(each) for each in ended],
        "usage": usage,
    }
