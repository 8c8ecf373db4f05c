"""Placement policies choose a cluster for each component of a job that does not name one.

A placement policy is `(demands, idle_clusters) -> {component index: cluster} | None`; None: the job does not fit.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from koalapy.model.fast_frozen import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True)
class Demand:
    """A component to place.

    `demand`: the processors that it takes on each cluster where it may go, where exclusive nodes count whole.
    """

    index: int
    processors: int
    demand: Mapping[str, int]


@fast_frozen
@dataclass(frozen=True, slots=True)
class IdleCluster:
    """A cluster's idle processors, less those that are committed. `used`: a component of this job is there."""

    cluster: str
    idle: int
    used: bool = False


PlacementChoice = Mapping[int, str]
PlacementPolicy = Callable[[Sequence[Demand], Sequence[IdleCluster]], PlacementChoice | None]


def worst_fit(demands: Sequence[Demand], idle_clusters: Sequence[IdleCluster]) -> PlacementChoice | None:
    """Balance the load, and avoid reusing clusters as far as possible (DCS, section 2.4).

    Components are placed by decreasing size. N lists the clusters without a component of this job, and Y those with
    one, both by decreasing idle processors. A component goes to the head of N, else to the head of Y; if it fits on
    neither, the job cannot be placed.
    """

    emptiest_first = [each.cluster for each in sorted(idle_clusters, key=attrgetter("idle"), reverse=True)]

    def candidates(idle: Mapping[str, int], used: set[str]) -> Iterable[Iterable[str]]:
        # the idle processors of unused clusters do not change
        yield (cluster for cluster in emptiest_first if cluster not in used) if used else emptiest_first
        yield sorted((cluster for cluster in idle if cluster in used), key=lambda cluster: -idle[cluster])

    return _greedily(demands, idle_clusters, candidates)


def cluster_minimisation(demands: Sequence[Demand], idle_clusters: Sequence[IdleCluster]) -> PlacementChoice | None:
    """Use as few clusters as possible.

    A component joins its siblings where it fits; otherwise it takes the cluster with most idle processors.
    """

    def candidates(idle: Mapping[str, int], used: set[str]) -> Iterable[Iterable[str]]:
        by_idle = sorted(idle, key=lambda cluster: -idle[cluster])
        yield from ([cluster] for cluster in by_idle if cluster in used)
        yield from ([cluster] for cluster in by_idle if cluster not in used)

    return _greedily(demands, idle_clusters, candidates)


def best_fit(demands: Sequence[Demand], idle_clusters: Sequence[IdleCluster]) -> PlacementChoice | None:
    """Leave as few processors idle as possible on a component's cluster, to keep large gaps for large components."""

    def candidates(idle: Mapping[str, int], used: set[str]) -> Iterable[Iterable[str]]:
        yield from ([cluster] for cluster in sorted(idle, key=lambda cluster: idle[cluster]))

    return _greedily(demands, idle_clusters, candidates)


Candidates = Callable[[Mapping[str, int], set[str]], Iterable[Iterable[str]]]


def _greedily(
    demands: Sequence[Demand], idle_clusters: Sequence[IdleCluster], candidates: Candidates
) -> PlacementChoice | None:
    """Place components by decreasing size, each on the first head of a list where it fits.

    Components of equal size are placed in the order of the file.
    """
    idle = {cluster.cluster: cluster.idle for cluster in idle_clusters}
    used = {cluster.cluster for cluster in idle_clusters if cluster.used}
    placement: dict[int, str] = {}
    for demand in sorted(demands, key=_by_size) if len(demands) > 1 else demands:
        chosen = _first_head_that_fits(demand, idle, candidates(idle, used))
        if chosen is None:
            return None
        placement[demand.index] = chosen
        idle[chosen] -= demand.demand[chosen]
        used.add(chosen)
    return placement


def _by_size(demand: Demand) -> tuple[int, int]:
    return -demand.processors, demand.index


def _first_head_that_fits(demand: Demand, idle: Mapping[str, int], lists: Iterable[Iterable[str]]) -> str | None:
    needed = demand.demand
    for clusters in lists:
        for head in clusters:
            if head in needed:
                if needed[head] <= idle[head]:
                    return head
                break
    return None


# These place every job whose components could each have an idle cluster of their own, whatever else is idle.
FIND_CLUSTERS_APART: tuple[PlacementPolicy, ...] = (worst_fit, cluster_minimisation, best_fit)
