"""The delegation algorithm (SC'07, section 4.4): what part of the load to delegate, and to whom."""

from koalapy.model.units import Instant
from koalapy.policies.delegation import Target
from koalapy.sites import leases
from koalapy.sites.network import Relation
from koalapy.sites.site import Phase, Site, Standing
from koalapy.sites.words import DelegateRequest, DelegationRejected

_DISTANCE = {Relation.CHILD: 0, Relation.SIBLING: 1, Relation.PARENT: 2}


def cycle(site: Site, now: Instant) -> None:
    """Hand on what was leased; then delegate, in the policy's order, until the load is below the threshold."""
    leases.hand_on(site, now)
    _take_up_again(site, now)
    while site.overloaded and (standing := site.delegable.first()) is not None:
        _delegate(site, standing)


def is_due(site: Site, now: Instant) -> bool:
    """Whether a cycle may find something to do."""
    if site.handing_on:
        return True
    return site.overloaded and (bool(site.delegable) or (bool(site.again) and site.again[0][0] <= now))


def pass_on(site: Site, standing: Standing) -> None:
    """Delegate a neighbour's request further, or reject it."""
    if not _delegate(site, standing):
        site.take_out_of_line(standing)
        leases.refuse(site, standing)


def rejected(site: Site, now: Instant, event: DelegationRejected) -> None:
    """The next target is asked (section 4.3, step 2 again); without one, a request that began here waits."""
    standing = site.standings.get(event.id)
    if standing is None or standing.target != event.sender:
        return
    if standing.phase is Phase.CANCELLED:
        leases.refuse(site, standing)
    elif standing.phase is Phase.DELEGATED:
        standing.refused[event.sender] = now
        site.again.append((Instant(now + site.settings.seen_for), standing))
        site.put_in_line(standing, delegable=standing.sender is None and has_target(site, standing))
        if standing.sender is not None:
            pass_on(site, standing)
        elif site.overloaded:
            _delegate(site, standing)


def has_target(site: Site, standing: Standing) -> bool:
    return standing.request.dttl > 0 and any(
        name != standing.sender and name not in standing.refused for name in site.settings.neighbours
    )


def _delegate(site: Site, standing: Standing) -> bool:
    """Whether there was anybody to ask."""
    target = _target(site, standing) if standing.request.dttl > 0 else None
    if target is None:
        site.delegable.remove(standing)
        return False
    site.take_out_of_line(standing)
    standing.phase, standing.target = Phase.DELEGATED, target
    site.turn += 1
    request = standing.request
    site.commands.append(DelegateRequest(target, request._replace(dttl=request.dttl - 1)))
    return True


def _target(site: Site, standing: Standing) -> str | None:
    targets = [
        Target(name, _DISTANCE[relation], site.reported.get(name))
        for name, relation in site.settings.neighbours.items()
        if name != standing.sender and name not in standing.refused
    ]
    ordered = site.target_policy(standing.request.processors, targets, site.turn) if targets else ()
    return ordered[0].site if ordered else None


def _take_up_again(site: Site, now: Instant) -> None:
    """Neighbours have forgotten by now what they refused."""
    while site.again and site.again[0][0] <= now:
        _, standing = site.again.popleft()
        for name in [name for name, when in standing.refused.items() if now - when >= site.settings.seen_for]:
            del standing.refused[name]
        here = site.standings.get(standing.request.id) is standing
        if here and standing.phase is Phase.WAITING and standing.sender is None:  # others are asked for by nobody here
            site.delegable.remove(standing)
            site.delegable.add(standing)
