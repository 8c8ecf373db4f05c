"""The broker's answer to the scheduler: an allocation, or why there is none (DCS, section 3.4)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from koalapy.broker.fit import lack, wish
from koalapy.information.kis import View, processors_taken
from koalapy.model.errors import Reason
from koalapy.model.request import ComponentRequest, Request
from koalapy.policies.placement import Offer, Placement, PlacementPolicy, Wish

# cluster of each component in order; None: an optional component that is left out
Allocation = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class PolicyFailed:
    """A policy raised, or answered what is no placement: the job's reason."""

    reason: Reason


def place(
    request: Request, views: Sequence[View], policy: PlacementPolicy, without: Collection[str] = ()
) -> Allocation | PolicyFailed | None:
    """An allocation on idle processors, all within one network unless the job's components do not communicate.

    Optional components are left out only if the job does not fit with them. None: it does not fit.
    """
    usable = [view for view in views if view.name not in without and view.trouble is None]
    needed = {index: component for index, component in enumerate(request.components) if not component.optional}
    everything = dict(enumerate(request.components))
    for components in [everything] if len(needed) == len(everything) else [everything, needed]:
        for network in _networks(request, usable):
            answer = _place_within(components, network, policy)
            if isinstance(answer, PolicyFailed):
                return answer
            if answer is not None:
                return tuple(answer.get(index) for index in range(len(request.components)))
    return None


def never_fits(request: Request, views: Sequence[View], policy: PlacementPolicy) -> bool:
    """Whether the job does not fit even on idle clusters. False while one that might take it cannot be asked."""
    named = {component.cluster for component in request.components}
    asked = [view for view in views if None in named or view.name in named]
    if any(view.state is None or view.trouble for view in asked):
        return False
    empty = [replace(view, idle=view.total, state=replace(view.state, free_nodes=())) for view in asked if view.state]
    return place(request, empty, policy) is None


def shortest_queue(request: Request, views: Sequence[View], without: Collection[str] = ()) -> Allocation | None:
    """A batch queue for every component though it is busy: the shortest that fits and whose backlog allows it."""
    chosen: list[str | None] = []
    asked = {view.name: 0 for view in views}
    for component in request.components:
        fitting = [view for view in views if view.name not in without and _may_wait(component, view, asked[view.name])]
        if not fitting:
            return None
        best = min(fitting, key=lambda view: (_queue_length(view), view.backlog + asked[view.name], -view.total))
        asked[best.name] += processors_taken(component, best.settings)
        chosen.append(best.name)
    return tuple(chosen) if _one_network(request, chosen, views) else None


def take(allocation: Allocation, request: Request, views: Iterable[View]) -> list[View]:
    """The views with the allocation's processors off."""
    taken: dict[str, int] = {}
    by_name = {view.name: view for view in views}
    for cluster, component in zip(allocation, request.components, strict=True):
        if cluster is not None:
            taken[cluster] = taken.get(cluster, 0) + processors_taken(component, by_name[cluster].settings)
    return [
        replace(
            view, idle=max(0, view.idle - taken.get(view.name, 0)), promised=view.promised + taken.get(view.name, 0)
        )
        for view in by_name.values()
    ]


def _place_within(
    components: dict[int, ComponentRequest], views: Sequence[View], policy: PlacementPolicy
) -> dict[int, str] | PolicyFailed | None:
    """Named components first (DCS: an ordered request fits or not), then the policy places the others."""
    by_name = {view.name: view for view in views}
    placed: dict[int, str] = {}
    idle = {view.name: view.idle for view in views}
    for index, component in components.items():
        if component.cluster is None:
            continue
        view = by_name.get(component.cluster)
        if view is None or lack(component, replace(view, idle=idle[view.name])) is not None:
            return None
        idle[view.name] -= processors_taken(component, view.settings)
        placed[index] = view.name
    used = set(placed.values())
    offers = [Offer(view.name, idle[view.name], view.name in used) for view in views]
    free = {index: component for index, component in components.items() if component.cluster is None}
    return _ask(free, views, offers, policy, placed) if free else placed


def _ask(
    components: dict[int, ComponentRequest],
    views: Sequence[View],
    offers: Sequence[Offer],
    policy: PlacementPolicy,
    placed: dict[int, str],
) -> dict[int, str] | PolicyFailed | None:
    wishes = [wish(index, component, views) for index, component in components.items()]
    try:
        answer = policy(tuple(wishes), tuple(offers))
        problem = None if answer is None else _problem(answer, wishes, offers)
    except Exception as error:
        problem, answer = f"it raised {type(error).__name__}: {error}", None
    if problem:
        message = f"The placement policy {getattr(policy, '__name__', policy)} failed: {problem}."
        return PolicyFailed(Reason("policy_failed", "ours", message, "Choose another `placement` in the grid file."))
    return None if answer is None else placed | dict(answer)


def _problem(answer: Placement, wishes: Sequence[Wish], offers: Sequence[Offer]) -> str | None:
    """What is wrong with a policy's answer: it must place every wish where there is room."""
    idle = {offer.cluster: offer.idle for offer in offers}
    for each in wishes:
        cluster = answer.get(each.index)
        if cluster is None or cluster not in each.demand:
            return f"component {each.index} cannot go to {cluster}"
        idle[cluster] -= each.demand[cluster]
    overfull = [cluster for cluster, left in idle.items() if left < 0]
    return f"{overfull[0]} has not so many idle processors" if overfull else None


def _networks(request: Request, views: Sequence[View]) -> list[list[View]]:
    """The clusters that components may share: each network of its own, the one with the most idle processors first."""
    if not request.communication or len(request.components) == 1:
        return [list(views)]
    networks: dict[str, list[View]] = {}
    for view in views:
        networks.setdefault(view.settings.network, []).append(view)
    return sorted(networks.values(), key=lambda network: -sum(view.idle for view in network))


def _one_network(request: Request, clusters: Sequence[str | None], views: Sequence[View]) -> bool:
    if not request.communication:
        return True
    return len({view.settings.network for view in views if view.name in clusters}) == 1


def _may_wait(component: ComponentRequest, view: View, asked: int) -> bool:
    """With what its siblings ask there (`asked`) it must fit into the cluster, and into the backlog of ours there."""
    limit = view.total if view.settings.backlog is None else view.settings.backlog
    together = asked + processors_taken(component, view.settings)
    return lack(component, view, now=False) is None and together <= view.total and view.backlog + together <= limit


def _queue_length(view: View) -> int:
    return view.state.waiting_local if view.state else 0
