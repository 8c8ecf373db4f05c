"""The matchmaking cycle: waiting requests, local and delegated alike, get this site's free processors."""

from koalapy.model.units import Instant
from koalapy.sites import delegation, leases, reports
from koalapy.sites.messages import Lease
from koalapy.sites.site import Phase, RequestState, Site


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
    for guest in list(site.delegated_here.values()):
        site.dequeue(guest)
        delegation.pass_on(site, guest)
    reports.report_free(site)


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
