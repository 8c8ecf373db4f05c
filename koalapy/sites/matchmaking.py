"""The matchmaking cycle: waiting requests, local and delegated alike, get this site's free processors."""

from koalapy.model.units import Instant
from koalapy.sites import delegation, leases, reports
from koalapy.sites.site import Phase, Site, Standing
from koalapy.sites.words import Lease


def cycle(site: Site, now: Instant) -> None:
    """First come, first served, without backfilling (section 5.5, assumption 3).

    A delegated request that is not served is passed on or rejected, so that whoever sent it can ask somebody else.
    """
    while (standing := site.waiting.first()) is not None and standing.request.processors <= site.free:
        _serve(site, now, standing)
    for guest in list(site.guests.values()):
        delegation.pass_on(site, guest)
    reports.tell(site)


def _serve(site: Site, now: Instant, standing: Standing) -> None:
    site.take_out_of_line(standing)
    site.free -= standing.request.processors
    standing.phase = Phase.IN_USE
    standing.lease = Lease(standing.request.id, site.settings.name, 0, now)
    leases.bind(site, standing, standing.lease)
