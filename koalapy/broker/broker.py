"""The broker: it finds placements for the scheduler (DCS, section 3.4)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from koalapy.broker.availability import Availability, backlog_left
from koalapy.broker.fit import misfit
from koalapy.broker.groups import choices, is_spread, of_choice
from koalapy.broker.ranges import Components, most_that_fits
from koalapy.broker.suitability import EVERY_CLUSTER, Ranks, Suitability
from koalapy.information.commitments import processors_taken
from koalapy.information.kis import ClusterSummary
from koalapy.model.errors import Reason
from koalapy.model.job import Choice
from koalapy.model.request import ComponentRequest, Request
from koalapy.policies.placement import Demand, IdleCluster, PlacementChoice, PlacementPolicy


class Placement(NamedTuple):
    """The cluster of each component in order, None for an optional one that is left out.

    `request`: the one that is placed, with as many processors as its components get; one that may be spread has a
    component for each of its clusters.
    """

    clusters: tuple[str | None, ...]
    request: Request


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """The reason of a job whose placement policy raised an error, or returned no valid placement."""

    reason: Reason


def find_placement(
    request: Request,
    availability: Availability,
    policy: PlacementPolicy,
    suitability: Suitability = EVERY_CLUSTER,
) -> Placement | PolicyFailed | None:
    """Place a request on idle processors, all within one network unless its components do not communicate.

    Components with a range get the most processors with which the job fits. Optional components are omitted only if the
    job does not fit with them. A component with a rank gets the suitable cluster of the best rank. Return None if the
    job does not fit. For a component that may be spread, the placement has the clusters of the first choice.
    """
    if is_spread(request):
        groups = choices(request, availability, suitability)
        return placement_on(request, groups[0]) if groups else None
    networks = availability.networks(request)
    for components in _wanted(request):
        place = partial(_place, networks=networks, policy=policy, suitability=suitability)
        found: tuple[Components, dict[int, str] | PolicyFailed] | None = most_that_fits(components, place)
        if found is not None:
            sized, answer = found
            if isinstance(answer, PolicyFailed):
                return answer
            return _placement_of(request, None if sized is components else sized, answer)
    return None


def placement_on(request: Request, choice: Choice) -> Placement:
    """Return the placement of a job of one component on a choice."""
    return Placement(tuple([cluster for cluster, _ in choice.clusters]), of_choice(request, choice))


def shortest_queue(
    request: Request,
    summaries: Sequence[ClusterSummary],
    excluded: Collection[str] = (),
    suitability: Suitability = EVERY_CLUSTER,
) -> Placement | None:
    """Choose a batch queue for every component: the shortest suitable one that fits and whose backlog allows it.

    Components with a range ask for the most processors that a queue takes. Components that communicate go to one
    network. Of the networks that take all of them, the one whose longest chosen queue is shortest is taken. Optional
    components are omitted only if no network takes them too. Return None if no network takes the others.
    """
    networks = Availability(summaries).without(excluded).networks(request)
    for components in _wanted(request):
        found = most_that_fits(components, partial(_shortest_queues, networks=networks, suitability=suitability))
        if found is not None:
            sized, queues = found
            return _placement_of(request, None if sized is components else sized, queues)
    return None


def queues_for(
    component: ComponentRequest, summaries: Sequence[ClusterSummary], suitability: Suitability = EVERY_CLUSTER
) -> list[ClusterSummary]:
    """Return the clusters whose batch queues take the component now: they suit, and their backlog allows it."""
    ranks = suitability.ranks(component)
    suited = summaries if ranks is None else [each for each in summaries if each.name in ranks]
    return [each for each in suited if each.trouble is None and _may_wait(component, each, 0)]


def _wanted(request: Request) -> list[dict[int, ComponentRequest]]:
    """Return all components by their index; and, if some are optional, the others alone."""
    everything = dict(enumerate(request.components))
    for component in request.components:
        if component.optional:
            return [everything, {index: each for index, each in everything.items() if not each.optional}]
    return [everything]


def _placement_of(request: Request, sized: Components | None, placed: Mapping[int, str]) -> Placement:
    """Return a placement. `sized`: the components, if they are not as they ask. `placed`: the cluster of each."""
    clusters = tuple([placed.get(index) for index in range(len(request.components))])
    if sized is None:
        return Placement(clusters, request)
    components = tuple([sized.get(index, each) for index, each in enumerate(request.components)])
    return Placement(clusters, replace(request, components=components))


def _shortest_queues(
    components: Components, networks: Sequence[Availability], suitability: Suitability
) -> dict[int, str] | None:
    chosen = [_queues_within(components, network, suitability) for network in networks]
    found = [queues for queues in chosen if queues is not None]
    return min(found, key=lambda queues: queues[0])[1] if found else None


def _queues_within(
    components: Components, availability: Availability, suitability: Suitability
) -> tuple[int, dict[int, str]] | None:
    """Return the length of the longest chosen queue, and the cluster of each component.

    Return None if a component fits into no queue. Components that name a cluster are placed first, then the others by
    decreasing size. Thus no component takes a queue that one with less choice needs.
    """
    chosen: dict[int, str] = {}
    asked = dict.fromkeys(availability.usable, 0)
    for index, component in sorted(components.items(), key=lambda each: (not each[1].cluster, -each[1].processors)):
        ranks = suitability.ranks(component)
        fitting = [
            summary
            for name, summary in availability.usable.items()
            if (ranks is None or name in ranks) and _may_wait(component, summary, asked[name])
        ]
        if not fitting:
            return None
        best = min(
            fitting, key=lambda summary: (_queue_length(summary), summary.backlog + asked[summary.name], -summary.total)
        )
        asked[best.name] += processors_taken(component, best.settings)
        chosen[index] = best.name
    return max((_queue_length(availability.usable[name]) for name in chosen.values()), default=0), chosen


def _place(
    components: Components, networks: Sequence[Availability], policy: PlacementPolicy, suitability: Suitability
) -> dict[int, str] | PolicyFailed | None:
    """Place the components within the first of the networks that they fit into."""
    for network in networks:
        answer = _place_within(components, network, policy, suitability)
        if answer is not None:
            return answer
    return None


def _place_within(
    components: Components,
    availability: Availability,
    policy: PlacementPolicy,
    suitability: Suitability,
) -> dict[int, str] | PolicyFailed | None:
    """Place the components that name a cluster, then those with a rank, then let the policy place the others.

    Return None if a component does not fit (DCS: an ordered request fits or not).
    """
    placed: dict[int, str] = {}
    left: dict[str, int] = {}
    free: dict[int, ComponentRequest] = {}
    suitable: dict[int, Ranks] = {}
    in_order: Iterable[tuple[int, ComponentRequest]] = components.items()
    if suitability is not EVERY_CLUSTER:
        found = ((index, suitability.ranks(component)) for index, component in in_order)
        suitable = {index: ranks for index, ranks in found if ranks is not None}
        in_order = sorted(in_order, key=lambda each: each[1].cluster is None)
    for index, component in in_order:
        ranks = suitable.get(index)
        if component.cluster is not None:
            names = [component.cluster] if ranks is None or component.cluster in ranks else []
        elif component.rank and ranks is not None:
            names = list(ranks)
        else:
            free[index] = component
            continue
        name = next((each for each in names if _fits_on(component, each, availability, left)), None)
        if name is None:
            return None
        summary = availability.usable[name]
        left[name] = left.get(name, summary.idle) - processors_taken(component, summary.settings)
        placed[index] = name
    return _ask(free, availability, left, policy, placed, suitable) if free else placed


def _fits_on(component: ComponentRequest, name: str, availability: Availability, left: Mapping[str, int]) -> bool:
    """Return whether a component fits on the cluster. `left`: idle processors where others of the job are placed."""
    summary = availability.usable.get(name)
    if summary is None:
        return False
    idle = left.get(name, summary.idle)
    return misfit(component, summary if idle == summary.idle else replace(summary, idle=idle)) is None


def _idle_clusters(availability: Availability, left: dict[str, int]) -> tuple[IdleCluster, ...]:
    if not left:
        return availability.idle_clusters
    return tuple(
        IdleCluster(each.cluster, left[each.cluster], used=True) if each.cluster in left else each
        for each in availability.idle_clusters
    )


def _ask(
    components: dict[int, ComponentRequest],
    availability: Availability,
    left: dict[str, int],
    policy: PlacementPolicy,
    placed: dict[int, str],
    suitable: Mapping[int, Ranks],
) -> dict[int, str] | PolicyFailed | None:
    """Let the policy place the components. `left`: idle processors of the clusters that other components use."""
    demands = tuple(
        [
            Demand(index, each.processors, _suitable_demand(availability.demand(each), suitable.get(index)))
            for index, each in components.items()
        ]
    )
    try:
        answer = policy(demands, _idle_clusters(availability, left))
        problem = None if answer is None else _problem(answer, demands, availability.idle | left)
    except Exception as error:
        problem, answer = f"it raised {type(error).__name__}: {error}", None
    if problem:
        message = f"The placement policy {getattr(policy, '__name__', policy)} failed: {problem}."
        return PolicyFailed(Reason("policy_failed", "ours", message, "Choose another `placement` in the grid file."))
    return None if answer is None else placed | dict(answer)


def _suitable_demand(demand: Mapping[str, int], ranks: Ranks | None) -> Mapping[str, int]:
    return demand if ranks is None else {name: taken for name, taken in demand.items() if name in ranks}


def _problem(answer: PlacementChoice, demands: Sequence[Demand], idle: dict[str, int]) -> str | None:
    """Return the error in a policy's answer; None if the answer is valid.

    A valid answer places every demand on a cluster with enough idle processors.
    """
    for each in demands:
        cluster = answer.get(each.index)
        if cluster is None or cluster not in each.demand:
            return f"component {each.index} cannot go to {cluster}"
        idle[cluster] -= each.demand[cluster]
    overfull = [answer[each.index] for each in demands if idle[answer[each.index]] < 0]
    return f"{overfull[0]} has not so many idle processors" if overfull else None


def _may_wait(component: ComponentRequest, summary: ClusterSummary, asked: int) -> bool:
    """Return whether a component fits into the cluster and its backlog.

    `asked`: processors of the same job that go there too.
    """
    together = asked + processors_taken(component, summary.settings)
    return together <= backlog_left(summary) and misfit(component, summary, now=False) is None


def _queue_length(summary: ClusterSummary) -> int:
    return summary.state.waiting_local if summary.state else 0
