"""The matchmaking cycle: waiting requests, local and delegated alike, get this site's free processors."""

from koalapy.model.units import Instant
from koalapy.sites import delegation, leases, reports
from koalapy.sites.site import Phase, Site, Standing
from koalapy.sites.words import Lease


def cycle(site: Site, now: Instant) -> None:
    """First come, first served, but that a request which may be delegated is passed while it does not fit.

    That is the natural backfilling of section 6.2; a bound keeps large requests from starving by it. A delegated
    request that is not served is passed on or rejected, so that whoever sent it can ask somebody else; so it keeps
    nobody waiting here.
    """
    site.blocker = None
    for standing in site.waiting:
        if standing.request.processors <= site.free:
            _serve(site, now, standing)
        elif site.free <= 0:
            break
        elif not _may_be_passed(site, standing):
            site.blocker = standing
            break
    site.expect_nothing()
    for guest in list(site.guests.values()):
        site.take_out_of_line(guest)
        delegation.pass_on(site, guest)
    reports.tell(site)


def _may_be_passed(site: Site, standing: Standing) -> bool:
    if standing.sender is not None:
        return True
    standing.passes += 1
    return standing.passes <= site.settings.max_passes and delegation.may_be_delegated(site, standing)


def _serve(site: Site, now: Instant, standing: Standing) -> None:
    site.take_out_of_line(standing)
    site.free -= standing.request.processors
    standing.phase = Phase.IN_USE
    standing.lease = Lease(standing.request.id, site.settings.name, 0, now)
    leases.bind(site, standing, standing.lease)
