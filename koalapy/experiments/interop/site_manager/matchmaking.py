"""Requests that come to a site, and the matchmaking cycle, which gives them this site's free processors.

Requests come from its job managers, or from neighbours that delegate them; both wait in one queue.
"""

from koalapy.experiments.interop.site_manager import delegation, leases
from koalapy.experiments.interop.site_manager.messages import (
    Lease,
    RejectRequest,
    RequestDelegated,
    RequestSubmitted,
    ResourceRequest,
)
from koalapy.experiments.interop.site_manager.site import Phase, RequestState, Site, free_through, report_free
from koalapy.model.units import Instant


def cycle(site: Site, now: Instant) -> None:
    """Serve requests first come, first served; others may pass one that does not fit and may be delegated.

    This is the natural backfilling of section 6.2; a bound keeps large requests from starving. A delegated request that
    is not served is delegated further or rejected, so that its sender can ask another site.
    """
    site.blocking = None
    for state in site.waiting:
        if state.request.processors <= site.free:
            _serve(site, now, state)
        elif site.free <= 0:
            break
        elif not _may_be_passed(site, state):
            site.blocking = state
            break
    site.clear_reservations()
    for state in list(site.delegated_here.values()):
        site.dequeue(state)
        delegation.pass_on(site, state)
    report_free(site)


def _may_be_passed(site: Site, state: RequestState) -> bool:
    if state.sender is not None:
        return True
    state.passes += 1
    return state.passes <= site.settings.max_passes and delegation.may_be_delegated(site, state)


def _serve(site: Site, now: Instant, state: RequestState) -> None:
    site.dequeue(state)
    site.free -= state.request.processors
    state.phase = Phase.IN_USE
    state.lease = Lease(state.request.id, site.settings.name, 0, now)
    leases.bind(site, state, state.lease)


def on_request_submitted(site: Site, now: Instant, event: RequestSubmitted) -> None:
    """Queue the request for the next cycles. A repeated message changes nothing."""
    request = event.request
    if _is_known(site, now, request):
        return
    site.known_rounds[request.id, request.round] = now
    dttl = min(request.dttl, site.settings.dttl)
    state = site.add_request(request._replace(dttl=dttl), None)
    site.enqueue(state, delegable=delegation.may_be_delegated(site, state))


def on_request_delegated(site: Site, now: Instant, event: RequestDelegated) -> None:
    """Take a delegated request, at most once in each round, so that none circulates (section 4.3).

    A site with enough available processors queues it for its next matchmaking cycle; another one delegates or rejects
    it at once.
    """
    request = event.request
    if _is_known(site, now, request):
        site.commands.append(RejectRequest(event.sender, request.id, free_through(site, event.sender)))
        return
    site.known_rounds[request.id, request.round] = now
    state = site.add_request(request, event.sender)
    if request.processors <= site.available:
        site.enqueue(state, delegable=False)
    else:
        delegation.pass_on(site, state)


def _is_known(site: Site, now: Instant, request: ResourceRequest) -> bool:
    while site.known_rounds and now - next(iter(site.known_rounds.values())) >= site.settings.remember_for:
        del site.known_rounds[next(iter(site.known_rounds))]
    return (request.id, request.round) in site.known_rounds or request.id in site.requests
