"""The lender: it holds processors for its neighbours by pilots on its own clusters, after what its own jobs want.

A request is rejected at once, or a pilot is claimed for it. The lease is offered when the pilot runs, and is over when
the pilot's batch job is: so nothing of the borrower runs after that. Whatever ends the pilot ends the lease.
"""

from dataclasses import replace

from koalapy.broker.fit import misfit
from koalapy.coallocation.stop import cancel_work
from koalapy.coallocation.user_requests import on_work_submitted
from koalapy.core.core import Core
from koalapy.information.kis import ClusterSummary
from koalapy.model.commands import EndLease, OfferLease, RejectRequest
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.events import LeaseReturned, RequestCancelled, RequestDelegated, WorkSubmitted
from koalapy.model.identity import JobId, origin_of_site
from koalapy.model.job import Job
from koalapy.model.lease import (
    LOST_AFTER,
    SHORTEST_LEASE,
    Lease,
    LeaseState,
    Lend,
    holds_lease,
    is_held,
    lease_request,
    too_long,
)
from koalapy.model.pilot import is_bound
from koalapy.model.request import ComponentRequest
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, Duration, Instant, format_duration

BINDING = Duration(2 * MINUTE)  # within which a pilot must run
_MOST_WAITING = 1000  # jobs that are looked at; with more of its own, a site lends nothing
_RETURNED = Reason("lease_returned", "request", "The borrower has returned it.", "")
_NOT_LENT = Reason("not_lent", "request", "It lends nothing to this site.", "Ask its people.")


def on_delegated(core: Core, now: Instant, event: RequestDelegated) -> None:
    """Claim a pilot for the request, or reject it."""
    neighbours = core.neighbours
    if neighbours.lease(event.neighbour, event.lease, lent=True) is not None:
        return
    asked = ComponentRequest(
        processors=event.processors, executable="", walltime=event.walltime,
        processors_per_node=event.processors_per_node, memory_per_processor=event.memory,
    )  # fmt: skip
    component = _placed(core, now, event.neighbour, asked)
    pilot = component if isinstance(component, Reason) else _claimed(core, now, event, component)
    if isinstance(pilot, Reason):
        _reject(core, now, event.neighbour, event.lease, pilot)
        return
    lease = Lease(
        number=event.lease, lent=True, job=pilot, processors=event.processors, state=LeaseState.BINDING, asked_at=now
    )
    neighbours.put_lease(event.neighbour, lease)


def _placed(core: Core, now: Instant, neighbour: str, asked: ComponentRequest) -> ComponentRequest | Reason:
    """Return the component on the cluster that lends most, or why there is none."""
    lend = core.settings.lend
    if lend is None or neighbour not in lend.to:
        return _NOT_LENT
    if asked.walltime > lend.walltime:
        return too_long(lend.walltime, asked.walltime)
    if asked.processors < 1 or asked.walltime < SHORTEST_LEASE:
        return Reason("bad_request", "request", "It asks for nothing that can be lent.", "")
    there = lendable(core, now, neighbour)
    most = max(there.values(), default=0)
    if asked.processors > most:
        needed = f"{asked.processors} {'is' if asked.processors == 1 else 'are'} needed"
        message = f"It can lend {counted_as(most, 'processor')} now, and {needed}."
        return Reason("busy", "transient", message, "It is asked again.")
    summaries = {each.name: each for each in core.information.summaries(now)}
    for name in sorted(there, key=lambda each: (-there[each], each)):
        placed = replace(asked, cluster=name)
        if there[name] >= asked.processors and misfit(placed, summaries[name]) is None:
            return placed
    return Reason("shape", "transient", "Its idle nodes do not have that shape now.", "It is asked again.")


def _claimed(core: Core, now: Instant, event: RequestDelegated, component: ComponentRequest) -> JobId | Reason:
    before = core.records.counters.next_job
    owner = origin_of_site(event.neighbour)
    on_work_submitted(core, now, WorkSubmitted(request=lease_request(component), owner=owner))
    if core.records.counters.next_job == before:
        return Reason("no_ids", "cluster", "It has no ids for jobs left.", "")
    return JobId(before)


def on_given_back(core: Core, now: Instant, event: RequestCancelled | LeaseReturned) -> None:
    """End the pilot of a lease that its borrower does not want any more. One that is over was reported as such."""
    lease = core.neighbours.lease(event.neighbour, event.lease, lent=True)
    if lease is not None:
        end(core, now, event.neighbour, lease, _RETURNED)


def end(core: Core, now: Instant, neighbour: str, lease: Lease, reason: Reason) -> None:
    """Begin to end a lease."""
    _cancel_pilot(core, now, lease, reason)
    if lease.state is not LeaseState.CLOSING:
        core.neighbours.put_lease(neighbour, replace(lease, state=LeaseState.CLOSING))


def end_all(core: Core, now: Instant, neighbour: str, reason: Reason) -> None:
    """End all leases of a neighbour that knows nothing of them any more, and drop their records."""
    lent = [each for each in core.neighbours.records[neighbour].leases if each.lent]
    for each in lent:
        _cancel_pilot(core, now, each, reason)
        core.neighbours.drop_lease(neighbour, each)


def _cancel_pilot(core: Core, now: Instant, lease: Lease, reason: Reason) -> None:
    job = core.records.jobs.get(lease.job)
    if job is not None and not job.state.final and job.state is not JobState.STOPPING:
        cancel_work(core, now, job, reason)


# ---- what is lent


def lendable(core: Core, now: Instant, neighbour: str) -> dict[str, int]:
    """Return the processors that the neighbour could get now, by cluster.

    That is what is idle less what waiting jobs of this site want, and within all limits.
    """
    lend = core.settings.lend
    if lend is None or neighbour not in lend.to:
        return {}
    left = lend.processors - sum(each.processors for _, each in core.neighbours.leases(lent=True))
    clusters = [each for each in core.information.summaries(now) if _lends(lend, each)]
    idle = sum(each.idle for each in clusters) - _wanted(core, clusters)
    return {each.name: max(0, min(each.idle, idle, left)) for each in clusters}


def _lends(lend: Lend, cluster: ClusterSummary) -> bool:
    settings = cluster.settings
    named = not lend.clusters or cluster.name in lend.clusters
    return named and not is_held(cluster.name) and not settings.draining and cluster.trouble is None


def _wanted(core: Core, clusters: list[ClusterSummary]) -> int:
    """Return the processors of waiting jobs of this site that these clusters could run."""
    queue, largest = core.queue, max((each.largest for each in clusters), default=0)
    if len(queue) > _MOST_WAITING:
        return sum(each.total for each in clusters)
    waiting = [queue.at(position).job.request for position in queue.order]
    return sum(
        request.processors
        for request in waiting
        if not holds_lease(request) and all(each.processors <= largest for each in request.components)
    )


# ---- the step


def step(core: Core, now: Instant) -> None:
    """Offer the leases whose pilots run, end those that cannot go on, and report those that are over."""
    for name, lease in core.neighbours.leases(lent=True):
        job = core.records.jobs.get(lease.job)
        if job is None or job.state.final:
            _note_over(core, now, name, lease, job)
        elif lease.state is LeaseState.BINDING and is_bound(job):
            _offer(core, now, name, lease, job)
        elif (why := _why_ended(core, now, name, lease)) is not None:
            end(core, now, name, lease, why)


def _offer(core: Core, now: Instant, neighbour: str, lease: Lease, job: Job) -> None:
    attempt = job.present[0]
    began = attempt.started_at or attempt.released_at or now
    ends_at = Instant(began + attempt.request.walltime)
    bound = replace(lease, state=LeaseState.BOUND, bound_at=now, ends_at=ends_at)
    core.neighbours.put_lease(neighbour, bound)
    lasts = Duration(max(0, ends_at - now))
    core.records.command(OfferLease(neighbour=neighbour, lease=lease.number, lasts=lasts))


def _why_ended(core: Core, now: Instant, neighbour: str, lease: Lease) -> Reason | None:
    lend = core.settings.lend
    if lease.state is LeaseState.CLOSING:
        return None
    if lease.state is LeaseState.BINDING and now >= lease.asked_at + BINDING:
        message = f"Its batch job did not start within {format_duration(BINDING)}."
        return Reason("binding_timeout", "transient", message, "It is asked again.")
    apart = core.neighbours.apart_since.get(neighbour)
    lost_after = LOST_AFTER if lend is None else lend.lost_after
    if apart is not None and now >= apart + lost_after:
        message = f"The borrower was out of reach for {format_duration(lost_after)}."
        return Reason("borrower_lost", "transient", message, "")
    return None


def _note_over(core: Core, now: Instant, neighbour: str, lease: Lease, job: Job | None) -> None:
    reason = Reason("lease_over", "cluster", "Its time is over.", "")
    if job is not None and job.reason is not None:
        reason = job.reason
    core.neighbours.drop_lease(neighbour, lease)
    if lease.bound_at is None:
        _reject(core, now, neighbour, lease.number, reason)
        return
    charge = lease.processors * max(0, now - lease.bound_at)
    core.neighbours.change(neighbour, lent=core.neighbours.records[neighbour].lent + charge)
    core.records.command(EndLease(neighbour=neighbour, lease=lease.number, charge=charge, reason=reason))


def _reject(core: Core, now: Instant, neighbour: str, number: int, reason: Reason) -> None:
    most = max(lendable(core, now, neighbour).values(), default=0)
    core.records.command(RejectRequest(neighbour=neighbour, lease=number, reason=reason, processors=most))
    core.neighbours.change(neighbour, sent_free=most)
