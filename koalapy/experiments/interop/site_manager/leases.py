"""Leases: processors along a chain of sites, from the source, where they are, to the sink, where they are used."""

from koalapy.experiments.interop.site_manager.messages import (
    AcceptLease,
    CancelRequest,
    GrantLease,
    Lease,
    LeaseAccepted,
    LeaseOffered,
    LeaseReturned,
    OfferLease,
    RejectRequest,
    RequestCancelled,
    ReturnLease,
)
from koalapy.experiments.interop.site_manager.site import Phase, RequestState, Site, free_through
from koalapy.model.units import Instant


def bind(site: Site, state: RequestState, lease: Lease) -> None:
    """Give the lease to the sender of the request: to a neighbour, or at the sink to the job manager."""
    if state.sender is None:
        site.commands.append(GrantLease(lease))
    else:
        site.commands.append(OfferLease(state.sender, lease._replace(length=lease.length + 1)))


def on_lease_offered(site: Site, now: Instant, event: LeaseOffered) -> None:
    """Keep an offer for the next delegation cycle; return at once a lease that is no longer wanted."""
    state = site.requests.get(event.lease.id)
    if state is not None and state.target == event.sender and state.awaits_answer:
        site.pending[event.sender] -= state.request.processors
    if state is not None and state.target == event.sender and state.phase is Phase.DELEGATED:
        state.phase, state.lease = Phase.OFFERED, event.lease
        site.offered.append(state)
    elif state is not None and state.target == event.sender and state.phase is Phase.CANCELLED:
        state.lease = event.lease
        _end_lease(site, now, state)
        reject(site, state)
    elif state is None or state.target != event.sender:
        site.commands.append(ReturnLease(event.sender, event.lease.id))


def accept_offers(site: Site, now: Instant) -> None:
    """Accept the offered leases, and bind them as if they were this site's own (section 4.3, steps 4 and 5)."""
    offered, site.offered = site.offered, []
    for state in offered:
        if state.phase is Phase.OFFERED:
            assert state.target is not None
            assert state.lease is not None
            state.phase = Phase.IN_USE
            site.commands.append(AcceptLease(state.target, state.request.id))
            bind(site, state, state.lease)


def on_lease_accepted(site: Site, now: Instant, event: LeaseAccepted) -> None:
    """Note that the borrower has bound the lease. A lease that has ended needs no answer: it is being returned."""
    state = site.requests.get(event.id)
    if state is not None and state.sender == event.sender:
        state.accepted = True


def on_lease_returned(site: Site, now: Instant, event: LeaseReturned) -> None:
    """Return the lease along the chain to the source, where its processors become free (section 4.3, step 7)."""
    state = site.requests.get(event.id)
    if state is not None and state.sender == event.sender and state.lease is not None:
        _close(site, now, state)


def on_request_cancelled(site: Site, now: Instant, event: RequestCancelled) -> None:
    """Cancel a request; a lease is charged until now (section 4.3). An unknown request has ended already.

    A neighbour that cancels gets a rejection. If a lease is already on its way to the neighbour, the neighbour returns
    the lease instead.
    """
    state = site.requests.get(event.id)
    if state is None or state.sender != event.sender:
        return
    if state.phase is Phase.WAITING:
        site.dequeue(state)
        reject(site, state)
    elif state.phase is Phase.DELEGATED:
        assert state.target is not None
        state.phase = Phase.CANCELLED
        site.commands.append(CancelRequest(state.target, event.id))
    elif state.phase is Phase.OFFERED:
        site.offered.remove(state)
        _end_lease(site, now, state)
        reject(site, state)
    elif state.phase is Phase.IN_USE and state.sender is None:
        _close(site, now, state)


def reject(site: Site, state: RequestState) -> None:
    """End a request that cannot be served here, and reject it if a neighbour delegated it."""
    site.forget(state)
    if state.sender is not None:
        free = free_through(site, state.sender)
        site.commands.append(RejectRequest(state.sender, state.request.id, free))


def _close(site: Site, now: Instant, state: RequestState) -> None:
    _end_lease(site, now, state)
    site.forget(state)


def _end_lease(site: Site, now: Instant, state: RequestState) -> None:
    """Charge for the lease, and return its processors: to this site, or to the lender."""
    request, lease = state.request, state.lease
    assert lease is not None
    site.usage.charge(request.user, state.sender, state.target, request.processors, lease.since, now)
    if state.target is None:
        site.free += request.processors
        site.match_needed = True
    else:
        site.commands.append(ReturnLease(state.target, request.id))
