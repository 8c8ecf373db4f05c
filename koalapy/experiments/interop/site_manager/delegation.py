"""The delegation algorithm (SC'07, section 4.4): which part of the load is delegated, and to which neighbour."""

from functools import partial

from koalapy.experiments.interop.site_manager import leases
from koalapy.experiments.interop.site_manager.messages import DelegateRequest, FreeReported, RequestRejected
from koalapy.experiments.interop.site_manager.site import Phase, RequestState, Site, on_free_reported
from koalapy.model.units import Instant
from koalapy.sites.targets import first_target


def cycle(site: Site, now: Instant) -> None:
    """Accept the offered leases; then delegate, in the policy's order, until the load is below the threshold.

    Requests that this site can serve itself are not delegated (section 4.3, step 2). Each cycle begins a new round: a
    neighbour that rejected a request before may have processors now.
    """
    leases.accept_offers(site, now)
    too_large = float("inf")  # more processors than any neighbour has
    for state in site.delegable:
        if too_large <= 1 or not site.overloaded or not _may_have_free(site):
            return
        if state.request.processors < too_large and state.request.id not in site.reserving:
            _begin_round(state)
            if not _delegate(site, state):
                too_large = state.request.processors


def is_due(site: Site) -> bool:
    """Return whether a cycle may have an effect."""
    return bool(site.offered) or (len(site.delegable) > 0 and site.overloaded and _may_have_free(site))


def pass_on(site: Site, state: RequestState) -> None:
    """Delegate a neighbour's request that is not queued here to another neighbour, or reject it."""
    if not _delegate_to_best(site, state):
        leases.reject(site, state)


def on_request_rejected(site: Site, now: Instant, event: RequestRejected) -> None:
    """Ask the next target (section 4.3, step 2 again); without one, a request of this site waits."""
    on_free_reported(site, now, FreeReported(event.sender, event.processors))
    state = site.requests.get(event.id)
    if state is None or state.target != event.sender or not state.awaits_answer:
        return
    site.pending[event.sender] -= state.request.processors
    if state.phase is Phase.CANCELLED:
        leases.reject(site, state)
        return
    state.rejected_by.add(event.sender)
    if state.sender is not None:
        pass_on(site, state)
        return
    site.enqueue(state, delegable=True)
    if site.overloaded:
        _delegate(site, state)


def may_be_delegated(site: Site, state: RequestState) -> bool:
    """Return whether the request may pass one more link, and a neighbour besides its sender exists."""
    return state.request.dttl > 0 and any(name != state.sender for name in site.settings.neighbours)


def _begin_round(state: RequestState) -> None:
    if state.rejected_by:
        state.rejected_by.clear()
        state.request = state.request._replace(round=state.request.round + 1)


def _delegate(site: Site, state: RequestState) -> bool:
    """Delegate a queued request, and take it out of the queue. False: no neighbour can be asked."""
    delegated_now = _delegate_to_best(site, state)
    if delegated_now:
        site.dequeue(state)
    return delegated_now


def _delegate_to_best(site: Site, state: RequestState) -> bool:
    target = _target(site, state) if state.request.dttl > 0 else None
    if target is None:
        return False
    state.phase, state.target = Phase.DELEGATED, target
    request = state.request
    site.pending[target] += request.processors
    site.delegations += 1
    site.commands.append(DelegateRequest(target, request._replace(dttl=request.dttl - 1)))
    return True


def _target(site: Site, state: RequestState) -> str | None:
    """Return the neighbour to ask; None if there is none."""
    return first_target(
        site.target_policy, state.request.processors, site.settings.neighbours, partial(_free, site),
        {state.sender, *state.rejected_by}, site.delegations,
    )  # fmt: skip


def _free(site: Site, name: str) -> int | None:
    reported_free = site.reported.get(name)
    return None if reported_free is None else reported_free - site.pending[name]


def _may_have_free(site: Site) -> bool:
    """Return whether some neighbour may have a free processor."""
    for name in site.settings.neighbours:
        free = _free(site, name)
        if free is None or free > 0:
            return True
    return False
