"""The part of a job for which processors are borrowed, so that its other components run on this site's own.

Nothing is held for the job meanwhile: the part is what it lacks now. The broker itself is asked whether the job would
fit beside a lease of some size. So its policy places the job once that lease is there.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, find_placement
from koalapy.broker.groups import free_for, is_spread
from koalapy.broker.suitability import EVERY_CLUSTER, Suitability
from koalapy.information.kis import ClusterSummary
from koalapy.model.cluster import ClusterSettings
from koalapy.model.lease import why_kept, why_not_at_all
from koalapy.model.request import ComponentRequest, Request
from koalapy.policies.placement import PlacementPolicy

LEASE = "~"  # a lease that is not there yet; no cluster is called so
_MOST_SIZES = 32  # of a lease, that are tried for one job
_MOST_SUMS = 4096


class Part(NamedTuple):
    """The part of a job that a lease is to serve.

    `processors`: of the lease. `components`: those that it is for, by their indices. `kept`: the clusters of the other
    processors. `available`: what is left idle of this site's clusters beside those.
    """

    processors: int
    components: tuple[int, ...]
    kept: tuple[str, ...]
    available: Availability


def is_divisible(request: Request) -> bool:
    """Return whether some of the job's processors may be borrowed, and others be this site's own."""
    if why_not_at_all(request) is not None:
        return False
    return is_spread(request) or len(request.components) > 1


def smallest_part(
    request: Request,
    own: Availability,
    network: str,
    policy: PlacementPolicy,
    suitability: Suitability = EVERY_CLUSTER,
    most: int | None = None,
    isolation: tuple[str, ...] | None = None,
) -> Part | None:
    """Return the part with the fewest processors beside which the job fits on its site's own clusters.

    Components with a range ask for their least processors. None if each part has more than `most` processors, if the
    job would fit without any, or if nothing of it would be kept. `network`, `isolation`: those of the lease.
    """
    request = request.smallest()
    if not is_divisible(request) or _place(request, own, policy, suitability) is not None:
        return None
    sizes = _sizes_of_spread(request, own, network) if is_spread(request) else _sizes(request, own)
    for processors in sizes[:_MOST_SIZES]:
        if most is not None and processors > most:
            return None
        part = part_of(request, own, network, processors, policy, suitability, isolation)
        if part is not None:
            return part if part.kept else None
    return None


def part_of(
    request: Request,
    own: Availability,
    network: str,
    processors: int,
    policy: PlacementPolicy,
    suitability: Suitability = EVERY_CLUSTER,
    isolation: tuple[str, ...] | None = None,
) -> Part | None:
    """Return the part that a lease of so many processors serves; None if the job does not fit beside it."""
    beside = Availability([*own.summaries, a_lease(network, processors, isolation)])
    found = _place(request.smallest(), beside, policy, suitability)
    if found is None:
        return None
    placement, divided = found
    there = [index for index, cluster in enumerate(placement) if cluster == LEASE]
    if not there or not all(_is_lendable(divided.components[index]) for index in there):
        return None
    kept = tuple([None if cluster == LEASE else cluster for cluster in placement])
    return Part(
        processors=sum([divided.components[index].processors for index in there]),
        components=(0,) if is_spread(request) else tuple(there),
        kept=tuple(dict.fromkeys([each for each in kept if each is not None])),
        available=own.after(kept, divided),
    )


def a_lease(network: str, processors: int, isolation: tuple[str, ...] | None = None) -> ClusterSummary:
    """Return a lease of so many processors, all of them idle, as the broker will see it."""
    settings = ClusterSettings(name=LEASE, batch="allocation", network=network, isolation=isolation)
    return ClusterSummary(
        name=LEASE, settings=settings, total=processors, idle=processors, committed=0, backlog=0, trouble=None,
        state=None,
    )  # fmt: skip


def _place(
    request: Request, availability: Availability, policy: PlacementPolicy, suitability: Suitability
) -> Placement | None:
    """Return the placement; None if the job does not fit."""
    placement = find_placement(request, availability, policy, suitability)
    return placement if isinstance(placement, Placement) else None


def _is_lendable(component: ComponentRequest) -> bool:
    """Return whether a lease can serve the component, as it is written or as a part of one that may be spread."""
    named = None if component.cluster == LEASE else component.cluster
    return why_kept(replace(component, cluster=named)) is None


def _sizes(request: Request, own: Availability) -> list[int]:
    """Return the sizes of leases that could serve some of the components, the smallest first."""
    needed = sum(each.processors for each in request.components if not each.optional)
    least = max(1, needed - sum(own.idle.values()))
    return [each for each in sorted(_sums(filter(_is_lendable, request.components))) if each >= least]


def _sums(components: Iterable[ComponentRequest]) -> set[int]:
    """Return the sums of all subsets of the sizes of components; of very many different ones only some."""
    sums = {0}
    for each in components:
        if len(sums) < _MOST_SUMS:
            sums |= {before + each.processors for before in sums}
    return sums


def _sizes_of_spread(request: Request, own: Availability, network: str) -> list[int]:
    """Return the sizes of leases that have what this site's clusters lack for a component that may be spread."""
    (component,) = request.components
    there = [each for each in own.usable.values() if not request.communication or each.settings.network == network]
    lacking = component.processors - sum(free_for(component, each) for each in there)
    unit = component.processors_per_node or component.threads_per_process
    least = max(1, -(-lacking // unit)) * unit
    return list(range(least, component.processors, unit))[:_MOST_SIZES]
