"""A request comes to a site: from a job manager, or from a neighbour that has delegated it."""

from koalapy.model.units import Instant
from koalapy.sites import delegation, reports
from koalapy.sites.site import Site
from koalapy.sites.words import RejectDelegation, RequestDelegated, RequestSubmitted, ResourceRequest


def submitted(site: Site, now: Instant, event: RequestSubmitted) -> None:
    """It waits for the next cycles. Said twice, it is the same request."""
    request = event.request
    if _seen(site, now, request):
        return
    site.seen[request.id, request.round] = now
    dttl = min(request.dttl, site.settings.dttl)
    standing = site.enter(request._replace(dttl=dttl), None)
    site.put_in_line(standing, delegable=delegation.may_be_delegated(site, standing))


def delegated(site: Site, now: Instant, event: RequestDelegated) -> None:
    """Taken once an hour and round at most, so that no request goes round in circles (section 4.3).

    A site that has room keeps it for its next matchmaking cycle; another passes it on, or rejects it, at once.
    """
    request = event.request
    if _seen(site, now, request):
        site.commands.append(RejectDelegation(event.sender, request.id, reports.through(site, event.sender)))
        return
    site.seen[request.id, request.round] = now
    standing = site.enter(request, event.sender)
    if request.processors <= site.spare:
        site.put_in_line(standing, delegable=False)
    else:
        delegation.pass_on(site, standing)


def _seen(site: Site, now: Instant, request: ResourceRequest) -> bool:
    while site.seen and now - next(iter(site.seen.values())) >= site.settings.seen_for:
        del site.seen[next(iter(site.seen))]
    return (request.id, request.round) in site.seen or request.id in site.standings
