"""The requests that a site may make for one waiting job: processors for a part of it, or for the whole job."""

from functools import partial
from typing import NamedTuple

from koalapy.broker.availability import Availability
from koalapy.broker.suitability import EVERY_CLUSTER
from koalapy.broker.wait_deadlines import closed_clusters
from koalapy.core.core import Core
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.job import Job
from koalapy.model.lease import Borrow, BorrowedLease, Wanted, lease_network, wanted, wanted_for
from koalapy.model.units import Instant, format_duration
from koalapy.sites.parts import LEASE, Part, is_divisible, part_of, smallest_part
from koalapy.sites.targets import borrowed_processors

LIMIT, TOO_EARLY = "limit", "too_early"  # codes of reasons: the site borrows no more; the job has not waited enough


class Ask(NamedTuple):
    """A resource request that may be made for a job. `part`: what it is for; None for the whole job.

    `targets`: the neighbours that may be asked; None for all. `passes`: whether they may pass it on.
    """

    want: Wanted
    part: Part | None = None
    targets: frozenset[str] | None = None
    passes: bool = True


def asks(core: Core, now: Instant, job: Job, borrow: Borrow, own: Availability) -> list[Ask] | Reason:
    """Return what neighbours may be asked for now for a waiting job, the fewest processors first; or why nothing.

    `own`: this site's clusters, less what other jobs keep there that borrow too.
    """
    whole = wanted(job.request, core.settings.barrier_timeout)
    if isinstance(whole, Reason) and not is_divisible(job.request):
        return whole
    waited = now - (job.waiting_since or now)
    if waited < borrow.after:
        message = f"Neighbours are asked once it has waited for {format_duration(borrow.after)}."
        return Reason(TOO_EARLY, "transient", message, "")
    present = borrowed_processors(core)
    left = None if borrow.processors is None else borrow.processors - present
    found = _asks_for_parts(core, now, job, borrow, own, left)
    if isinstance(whole, Wanted) and (left is None or whole.processors <= left):
        found.append(Ask(whole))
    if found:
        return sorted(found, key=lambda each: each.want.processors)
    if isinstance(whole, Reason):
        return _no_part(job, borrow, whole)
    most = counted_as(borrow.processors, "processor")
    message = f"This site borrows {most} at most, and has asked for or has {present}."
    return Reason(LIMIT, "request", message, "")


def _asks_for_parts(
    core: Core, now: Instant, job: Job, borrow: Borrow, own: Availability, most: int | None
) -> list[Ask]:
    """Return the requests for parts of the job, one for each network that a lease may be in.

    Components that communicate need processors of the neighbour itself, whose nodes are known to be reached.
    """
    request = job.request
    if not is_divisible(request):
        return []
    networks: dict[str, frozenset[str] | None] = {LEASE: None}
    if request.communication:
        known = dict(borrow.networks)
        networks = {each: frozenset(name for name in known if known[name] == each) for each in known.values()}
    there = own.without(closed_clusters(now, job, own.summaries))
    suitability = core.matching.at(now) if core.queue.ads else EVERY_CLUSTER
    found = []
    for network, targets in networks.items():
        find = partial(smallest_part, request, there, network, core.neighbours.placement, suitability, most)
        part = find(isolation=()) or find()  # most lenders isolate programs: what cannot run so stays here if it may
        if part is not None:
            components = [request.components[index] for index in part.components]
            want = wanted_for(request, components, part.processors, core.settings.barrier_timeout)
            found.append(Ask(want, part, targets, passes=not request.communication))
    return found


def _no_part(job: Job, borrow: Borrow, whole: Reason) -> Reason:
    """Return why nothing is asked for a job that cannot be borrowed whole."""
    if job.request.communication and not borrow.networks:
        message = f"{whole.message} Its components communicate, and `borrow.networks` names no neighbour."
        return Reason("not_borrowed", "request", message, "")
    message = f"{whole.message} The components that must stay here do not fit, or all of them do."
    return Reason("not_borrowed", "transient", message, "")


def pending(core: Core, now: Instant, job: Job, borrow: Borrow) -> tuple[BorrowedLease | None, bool]:
    """Return the lease that the job waits for, and whether more may be asked for the job.

    A job whose own processors are gone by the time that its lease is there asks for the rest, after a while. So does
    one whose lease others have taken.
    """
    awaited, may_be_asked = None, True
    for lease in core.leases.borrowed.values():
        if lease.job != job.id or not lease.state.wanted or lease.revoked_until is not None:
            continue
        known = core.information.clusters.get(lease.cluster)
        if lease.bound_at is None or known is None or known.trouble is not None:
            awaited, may_be_asked = lease, False
        elif now < lease.bound_at + borrow.again or not (is_divisible(job.request) or core.records.live(lease.cluster)):
            may_be_asked = False
    return awaited, may_be_asked


def less_kept(core: Core, job: Job, lease: BorrowedLease, own: Availability) -> Availability:
    """Return what is left for other jobs of this site's clusters beside the job whose lease is not there yet."""
    if not lease.components:
        return own
    network = lease_network(core.settings.borrow, lease.neighbour, lease.number, lease.length or 1)
    find = partial(part_of, job.request, own, network, lease.processors, core.neighbours.placement)
    part = find(isolation=()) or find()
    return own if part is None else part.available
