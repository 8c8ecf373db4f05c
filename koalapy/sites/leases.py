"""Processors on loan: along a chain from the source, where they are, to the sink, where they are used, and back."""

from koalapy.model.units import Instant
from koalapy.sites import reports
from koalapy.sites.site import Phase, Site, Standing
from koalapy.sites.words import (
    CancelRequest,
    ClaimResources,
    GrantResources,
    Lease,
    LeaseResources,
    RejectDelegation,
    ReleaseResources,
    RequestCancelled,
    ResourcesClaimed,
    ResourcesLeased,
    ResourcesReleased,
)


def bind(site: Site, standing: Standing, lease: Lease) -> None:
    """To whoever asked: one link nearer to the sink, or, there, to the job manager."""
    if standing.sender is None:
        site.commands.append(GrantResources(lease))
    else:
        site.commands.append(LeaseResources(standing.sender, lease._replace(length=lease.length + 1)))


def leased(site: Site, now: Instant, event: ResourcesLeased) -> None:
    """They are handed on with the next delegation cycle. What nobody wants any more goes back at once."""
    standing = site.standings.get(event.lease.id)
    if standing is not None and standing.target == event.sender and standing.awaits_answer:
        site.asked[event.sender] -= standing.request.processors
    if standing is not None and standing.target == event.sender and standing.phase is Phase.DELEGATED:
        standing.phase, standing.lease = Phase.LEASED, event.lease
        site.handing_on.append(standing)
    elif standing is not None and standing.target == event.sender and standing.phase is Phase.CANCELLED:
        standing.lease = event.lease
        _settle(site, now, standing)
        refuse(site, standing)
    elif standing is None or standing.target != event.sender:
        site.commands.append(ReleaseResources(event.sender, event.lease.id))


def hand_on(site: Site, now: Instant) -> None:
    """Section 4.3, steps 4 and 5: claim what came, and bind it as if it were this site's own."""
    handing_on, site.handing_on = site.handing_on, []
    for standing in handing_on:
        if standing.phase is Phase.LEASED:
            assert standing.target is not None
            assert standing.lease is not None
            standing.phase = Phase.IN_USE
            site.commands.append(ClaimResources(standing.target, standing.request.id))
            bind(site, standing, standing.lease)


def claimed(site: Site, now: Instant, event: ResourcesClaimed) -> None:
    """Who was lent to has bound them. A claim for what is over is answered by nothing: its release is on its way."""
    standing = site.standings.get(event.id)
    if standing is not None and standing.sender == event.sender:
        standing.claimed = True


def released(site: Site, now: Instant, event: ResourcesReleased) -> None:
    """Section 4.3, step 7: backwards along the chain, to the source, where the processors are free again."""
    standing = site.standings.get(event.id)
    if standing is not None and standing.sender == event.sender and standing.lease is not None:
        _end(site, now, standing)


def cancelled(site: Site, now: Instant, event: RequestCancelled) -> None:
    """Whatever was leased until now is charged for (section 4.3). A request that is not here any more is over.

    A neighbour that cancels is answered by a rejection, unless the lease is on its way to it, which it then releases.
    """
    standing = site.standings.get(event.id)
    if standing is None or standing.sender != event.sender:
        return
    if standing.phase is Phase.WAITING:
        site.take_out_of_line(standing)
        refuse(site, standing)
    elif standing.phase is Phase.DELEGATED:
        assert standing.target is not None
        standing.phase = Phase.CANCELLED
        site.commands.append(CancelRequest(standing.target, event.id))
    elif standing.phase is Phase.LEASED:
        site.handing_on.remove(standing)
        _settle(site, now, standing)
        refuse(site, standing)
    elif standing.phase is Phase.IN_USE and standing.sender is None:
        _end(site, now, standing)


def refuse(site: Site, standing: Standing) -> None:
    """Nothing comes of it here: whoever delegated it is told."""
    site.forget(standing)
    if standing.sender is not None:
        told = reports.through(site, standing.sender)
        site.commands.append(RejectDelegation(standing.sender, standing.request.id, told))


def _end(site: Site, now: Instant, standing: Standing) -> None:
    _settle(site, now, standing)
    site.forget(standing)


def _settle(site: Site, now: Instant, standing: Standing) -> None:
    """The lease is over: it is charged for, and the processors go back to where they came from."""
    request, lease = standing.request, standing.lease
    assert lease is not None
    site.usage.charge(request.user, standing.sender, standing.target, request.processors, lease.since, now)
    if standing.target is None:
        site.free += request.processors
        site.stirred = True
    else:
        site.commands.append(ReleaseResources(standing.target, request.id))
