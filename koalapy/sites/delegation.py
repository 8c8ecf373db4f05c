"""The delegation algorithm (SC'07, section 4.4): what part of the load to delegate, and to whom."""

from koalapy.model.units import Instant
from koalapy.policies.delegation import Target
from koalapy.sites import leases, reports
from koalapy.sites.network import Relation
from koalapy.sites.site import Phase, Site, Standing
from koalapy.sites.words import DelegateRequest, DelegationRejected, FreeReported

_DISTANCE = {Relation.CHILD: 0, Relation.SIBLING: 1, Relation.PARENT: 2}


def cycle(site: Site, now: Instant) -> None:
    """Hand on what was leased; then delegate, in the policy's order, until the load is below the threshold.

    What this site can serve itself is not delegated (section 4.3, step 2). Each cycle begins a new round: whoever
    refused a request before may have room now.
    """
    leases.hand_on(site, now)
    hopeless = float("inf")  # so many processors nobody has
    for standing in site.delegable:
        if hopeless <= 1 or not site.overloaded or not _hope(site):
            return
        if standing.request.processors < hopeless and standing.request.id not in site.expecting:
            _begin_round(standing)
            if not _delegate(site, standing):
                hopeless = standing.request.processors


def is_due(site: Site) -> bool:
    """Whether a cycle may find something to do."""
    return bool(site.handing_on) or (len(site.delegable) > 0 and site.overloaded and _hope(site))


def pass_on(site: Site, standing: Standing) -> None:
    """Delegate a neighbour's request, which is not in line, further, or reject it."""
    if not _ask(site, standing):
        leases.refuse(site, standing)


def rejected(site: Site, now: Instant, event: DelegationRejected) -> None:
    """The next target is asked (section 4.3, step 2 again); without one, a request that began here waits."""
    reports.reported(site, now, FreeReported(event.sender, event.processors))
    standing = site.standings.get(event.id)
    if standing is None or standing.target != event.sender or not standing.awaits_answer:
        return
    site.asked[event.sender] -= standing.request.processors
    if standing.phase is Phase.CANCELLED:
        leases.refuse(site, standing)
        return
    standing.refused.add(event.sender)
    if standing.sender is not None:
        pass_on(site, standing)
        return
    site.put_in_line(standing, delegable=True)
    if site.overloaded:
        _delegate(site, standing)


def may_be_delegated(site: Site, standing: Standing) -> bool:
    return standing.request.dttl > 0 and any(name != standing.sender for name in site.settings.neighbours)


def _begin_round(standing: Standing) -> None:
    if standing.refused:
        standing.refused.clear()
        standing.request = standing.request._replace(round=standing.request.round + 1)


def _delegate(site: Site, standing: Standing) -> bool:
    """What waits here leaves its line. Whether there was anybody to ask."""
    asked = _ask(site, standing)
    if asked:
        site.take_out_of_line(standing)
    return asked


def _ask(site: Site, standing: Standing) -> bool:
    target = _target(site, standing) if standing.request.dttl > 0 else None
    if target is None:
        return False
    standing.phase, standing.target = Phase.DELEGATED, target
    request = standing.request
    site.asked[target] += request.processors
    site.turn += 1
    site.commands.append(DelegateRequest(target, request._replace(dttl=request.dttl - 1)))
    return True


def _target(site: Site, standing: Standing) -> str | None:
    """Those that are known to have too little are not asked: that would only cost time."""
    processors, refused = standing.request.processors, standing.refused
    targets = [
        Target(name, _DISTANCE[relation], free)
        for name, relation in site.settings.neighbours.items()
        if ((free := _free(site, name)) is None or free >= processors)
        and name != standing.sender
        and name not in refused
    ]
    ordered = site.target_policy(processors, targets, site.turn) if targets else ()
    return ordered[0].site if ordered else None


def _free(site: Site, name: str) -> int | None:
    said = site.reported.get(name)
    return None if said is None else said - site.asked[name]


def _hope(site: Site) -> bool:
    """Whether any neighbour may have a processor."""
    for name in site.settings.neighbours:
        free = _free(site, name)
        if free is None or free > 0:
            return True
    return False
