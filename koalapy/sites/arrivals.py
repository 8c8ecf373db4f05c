"""Requests that come to a site, from its job managers or from neighbours that delegate them."""

from koalapy.model.units import Instant
from koalapy.sites import delegation, reports
from koalapy.sites.messages import RejectRequest, RequestDelegated, RequestSubmitted, ResourceRequest
from koalapy.sites.site import Site


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
        site.commands.append(RejectRequest(event.sender, request.id, reports.free_through(site, event.sender)))
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
