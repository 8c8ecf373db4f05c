"""The leases of a site: what `koala leases` and the log show of them, and why a job or sweep has none."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from koalapy.answers import leases as answers
from koalapy.broker.availability import Availability
from koalapy.core.core import Core
from koalapy.core.remaining import Remaining, remaining_on
from koalapy.engine import Engine
from koalapy.model.counts import counted_as
from koalapy.model.ended_lease import EndedLease
from koalapy.model.errors import Reason
from koalapy.model.job import Job
from koalapy.model.lease import (
    BorrowedLease,
    Lease,
    lease_cluster,
)
from koalapy.model.neighbour import Neighbour
from koalapy.model.pilot import pilot_cluster
from koalapy.model.sweep import Sweep
from koalapy.model.units import SECOND, Duration, Instant, format_duration, format_instant
from koalapy.scavenging import lease_demand
from koalapy.sites import asking, targets
from koalapy.sites.asking import Ask
from koalapy.views.fields import optional_instant


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One lease, or the request for it. `cluster`: where its processors are; None if they are the neighbour's.

    `remaining`: what koalapy has on a borrowed one, or waits for there. `reachable`: whether the neighbour is
    connected.
    """

    lease: Lease
    cluster: str | None
    remaining: Remaining
    reachable: bool

    @property
    def name(self) -> str:
        """The lease's name: that of its cluster here, or of the pilot that holds it; passed on, both sides have one."""
        lease = self.lease
        if lease.lent and lease.job is not None:
            return pilot_cluster(lease.job)
        return lease_cluster(*(lease.beyond if lease.lent and lease.beyond else (lease.neighbour, lease.number)))


_State = Literal["asked", "binding", "bound", "revoking", "closing", "ended"]  # one that is gone is not shown


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
        "jobs": list(view.remaining.living),
    }


def ended_lease(found: EndedLease) -> answers.EndedLease:
    """Describe a lease that has ended."""
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


def answer(
    views: Iterable[LeaseView], neighbours: Iterable[Neighbour], ended: Iterable[EndedLease] = ()
) -> answers.LeasesAnswer:
    """Describe the leases of a site, those that have ended, and what was lent and borrowed over each link."""
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


def ended_name(ended: EndedLease) -> str:
    """Return the name that a lease had."""
    if ended.lent and ended.job is not None:
        return pilot_cluster(ended.job)
    return ended.cluster or lease_cluster(ended.neighbour, ended.number)


def audit_line(ended: EndedLease) -> dict[str, Any]:
    """Return the fields of the log's line on a lease that has ended: who had what, where, when, under whose word."""
    return {
        "lease": ended_name(ended),
        "direction": "lent" if ended.lent else "borrowed",
        "neighbour": ended.neighbour,
        "site": ended.site or None,
        "user": ended.user,
        "job": ended.request,
        "job_name": ended.name,
        "cluster": ended.cluster or None,
        "beyond": ended.beyond or None,
        "processors": ended.processors,
        "held_by": ended.job,
        "began_at": format_instant(ended.began_at),
        "ended_at": format_instant(ended.ended_at),
        "charged_s": ended.charge / SECOND,
        "measured_s": ended.measured / SECOND,
        "reported": ended.reported,
        "code": ended.code,
        "reason": ended.message,
    }


def began_line(lease: Lease) -> dict[str, Any]:
    """Return the fields of the log's line on a lease that has begun."""
    origin = lease.origin
    return {
        "number": lease.number,
        "direction": "lent" if lease.lent else "borrowed",
        "neighbour": lease.neighbour,
        "site": None if origin is None else origin.site,
        "user": lease.user,
        "job": lease.job if origin is None else origin.number,
        "job_name": lease.name,
        "processors": lease.processors,
        "beyond": None if lease.beyond is None else lease.beyond[0],
        "held_by": lease.job,
        "ends_at": None if lease.ends_at is None else format_instant(lease.ends_at),
    }


def leases(engine: Engine) -> list[LeaseView]:
    """Return the leases that are not over, by neighbour."""
    core = engine.core
    found = []
    for lease in sorted(core.leases.all(), key=lambda each: (each.neighbour, each.lent, each.number)):
        job = core.records.jobs.get(lease.job) if lease.lent and lease.job is not None else None
        cluster = None if job is None else job.request.components[0].cluster
        left = remaining_on(core, lease.cluster) if isinstance(lease, BorrowedLease) else Remaining()
        found.append(LeaseView(lease, cluster, left, lease.neighbour in core.neighbours.connected))
    return found


def why_not_borrowed(engine: Engine, now: Instant, job: Job) -> dict[str, str]:
    """Return for a waiting job, by neighbour, why it has no processors of it now."""
    core = engine.core
    borrow, records = core.settings.borrow, core.neighbours.records
    if borrow is None:
        return {}
    found = asking.asks(core, now, job, borrow, Availability(core.information.summaries(now)))
    return {name: _why(engine, now, job, record, found) for name, record in sorted(records.items())}


def _why(engine: Engine, now: Instant, job: Job, record: Neighbour, asks: list[Ask] | Reason) -> str:
    """Return a sentence on one neighbour. `asks`: what is asked for, or why nothing is asked of any neighbour."""
    core = engine.core
    if answered := _answer_of(core, now, job, record.name):
        return answered
    if isinstance(asks, Reason):
        return asks.message
    if record.name not in core.neighbours.connected:
        return "It is not connected."
    for refusal in record.refusals:
        if refusal.job == job.id:
            return refusal.reason.message
    of_it = [each for each in asks if each.targets is None or record.name in each.targets]
    if not of_it:
        return "Its nodes are in no network of this site's clusters, and it could not be asked for the whole job."
    free, needed = targets.free_there(core, record.name), of_it[0].want.processors
    if free is not None and free < needed:
        are = "is" if needed == 1 else "are"
        beside = "" if of_it[0].part is None else f" beside those of {', '.join(of_it[0].part.kept)}"
        could = counted_as(max(0, free), "processor")
        return f"It could lend {could} by its last report, and {needed} {are} needed{beside}."
    return "It is asked next."


def why_sweep_borrows_no_more(engine: Engine, now: Instant, sweep: Sweep) -> dict[str, str]:
    """Return for a running sweep, by neighbour, why it has no more processors of it now."""
    core = engine.core
    if core.settings.borrow is None or not core.settings.borrow.sweeps:
        return {}
    never = lease_demand.why_not_borrowed(sweep.request)
    if never is not None:
        of_all = never.message
    elif sweep.id not in core.neighbours.lacking_since:
        of_all = "Its parameters have nodes, or will get idle ones."
    elif all(each.sweep != sweep.id for each in core.neighbours.sweep_demands):
        of_all = f"Neighbours are asked once no node was idle for {format_duration(core.settings.borrow.after)}."
    else:
        of_all = ""
    return {
        name: _answer_of(core, now, sweep, name) or of_all or _why_no_nodes(core, sweep, record)
        for name, record in sorted(core.neighbours.records.items())
    }


def _why_no_nodes(core: Core, sweep: Sweep, record: Neighbour) -> str:
    if record.name not in core.neighbours.connected:
        return "It is not connected."
    for refusal in record.refusals:
        if refusal.job == sweep.id:
            return refusal.reason.message
    if not targets.free_there(core, record.name):
        return "It could lend nothing by its last report."
    return "It is asked next, after all jobs."


def _answer_of(core: Core, now: Instant, work: Job | Sweep, neighbour: str) -> str:
    """Return a sentence on what the neighbour was asked for, or lends; '' if it is neither."""
    for each in core.leases.borrowed_of(neighbour):
        if each.job == work.id and each.state.asked:
            since = format_duration(Duration(now - each.asked_at))
            whole = counted_as(work.request.processors, "processor")
            part = f" for {each.processors} of its {whole}" if each.components else ""
            return f"It was asked {since} ago{part}, and has not answered yet."
        if each.job == work.id and each.state.bound:
            held = counted_as(each.processors, "processor")
            return f"It lends {held}, as {each.cluster}."
    return ""
