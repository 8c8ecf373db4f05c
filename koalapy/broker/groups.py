"""Groups of clusters for one component: the search of "The EU-CrossGrid Approach for Grid Application Scheduling".

The paper's suitableCEs are the candidates here, in descending rank. Its matchedListCEs and partiallyMatchedCEs are
`matched` and `partial` in `search`. It leaves open which cluster begins a partial group, and the order of members of
equal rank. Its example (figure 2b) needs that a cluster that completed no group begins one. It also needs that the
member that joined last goes before those of its own rank. A group has the rank of its lowest member; the paper gives no
rule for that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from koalapy.broker.availability import Availability
from koalapy.broker.fit import misfit, refusal
from koalapy.broker.ranges import most_that_fits
from koalapy.broker.suitability import Suitability
from koalapy.information.commitments import processors_taken
from koalapy.information.kis import ClusterSummary
from koalapy.model.identity import MAX_COMPONENTS
from koalapy.model.job import Choice
from koalapy.model.request import ComponentRequest, Request

MOST_CHOICES = 100  # that are kept with a job


@dataclass(frozen=True, slots=True)
class Candidate:
    """A suitable cluster, the processors that the component could have there, and its rank."""

    cluster: str
    free: int
    rank: float | None = None


Group = tuple[Candidate, ...]


def search(candidates: Iterable[Candidate], least: int) -> list[Group]:
    """Return the groups with at least so many free processors: those of fewer clusters first, then by their ranks.

    Candidates of equal rank stay in their order. The search is not exhaustive: no group has a part that is enough.
    """
    matched: list[Group] = []
    partial: list[Group] = []
    for each in sorted(candidates, key=lambda candidate: _descending(candidate.rank)):
        if each.free <= 0:
            continue
        if each.free >= least:
            matched.append((each,))
            continue
        completed = False
        for place, group in enumerate(partial):
            joined = _joined(group, each)
            if _free(joined) < least:
                partial[place] = joined
            elif len(joined) <= MAX_COMPONENTS:
                matched.append(joined)
                completed = True
        if not completed:
            partial.append((each,))
    return sorted(matched, key=lambda group: (len(group), _descending(rank_of(group))))


def _joined(group: Group, each: Candidate) -> Group:
    """Return the group with a candidate of no higher rank, which goes before those of its own rank."""
    place = next((place for place, member in enumerate(group) if member.rank == each.rank is not None), len(group))
    return (*group[:place], each, *group[place:])


def rank_of(group: Group) -> float | None:
    """Return the rank of a group's lowest member; None if a member has none."""
    ranks = [each.rank for each in group if each.rank is not None]
    return min(ranks) if len(ranks) == len(group) else None


def has_choices(request: Request) -> bool:
    """Return whether a list of choices is made for the job: it has one component, with a rank or to be spread."""
    return len(request.components) == 1 and bool(request.components[0].rank or request.components[0].spread)


def is_spread(request: Request) -> bool:
    """Return whether the job may run on a group of clusters."""
    return len(request.components) == 1 and request.components[0].spread


def choices(request: Request, availability: Availability, suitability: Suitability) -> tuple[Choice, ...]:
    """Return the clusters or groups of clusters that the job's component fits on now, the first choice first.

    A component with a range gets the most processors with which it fits anywhere. Those of a group are taken of its
    clusters in the order of their ranks. All its clusters are of one network, unless the job's components do not
    communicate.
    """
    (component,) = request.components
    found = most_that_fits({0: component}, lambda sized: _choices(request, sized[0], availability, suitability))
    return () if found is None else found[1]


def _choices(
    request: Request, component: ComponentRequest, availability: Availability, suitability: Suitability
) -> tuple[Choice, ...] | None:
    """Return the choices for the component with just so many processors; None if there is none."""
    found: list[Choice] = []
    for candidates in _by_network(request, _candidates(component, availability, suitability)):
        if component.spread:
            groups = search([each for each, _ in candidates], component.processors)
            found += [_choice(group, component.processors) for group in groups]
        else:
            found += [
                Choice(((each.cluster, component.processors),), each.rank)
                for each, _ in candidates
                if each.free >= component.processors
            ]
    found.sort(key=lambda choice: (len(choice.clusters), _descending(choice.rank)))
    return tuple(found[:MOST_CHOICES]) or None


def fits(request: Request, choice: Choice, availability: Availability) -> bool:
    """Return whether a choice that was made before fits now."""
    (component,) = request.components
    for cluster, processors in choice.clusters:
        summary = availability.usable.get(cluster)
        if summary is None or misfit(replace(component, processors=processors), summary) is not None:
            return False
    return True


def of_choice(request: Request, choice: Choice) -> Request:
    """Return the request with the processors of the choice, and a component for each of its clusters.

    A choice of one cluster with all processors that are wanted leaves the request as it is.
    """
    (component,) = request.components
    if len(choice.clusters) == 1:
        ((_, processors),) = choice.clusters
        sized = component if processors == component.processors else replace(component, processors=processors)
        return request if sized is component else replace(request, components=(sized,))
    parts = [
        replace(component, cluster=cluster, processors=processors, spread=False, most=None, least=None)
        for cluster, processors in choice.clusters
    ]
    return replace(request, components=tuple(parts))


def _choice(group: Group, wanted: int) -> Choice:
    taken, left = [], wanted
    for each in group:
        taken.append((each.cluster, min(each.free, left)))
        left -= taken[-1][1]
    return Choice(tuple(taken), rank_of(group))


def _candidates(
    component: ComponentRequest, availability: Availability, suitability: Suitability
) -> list[tuple[Candidate, ClusterSummary]]:
    """Return the suitable clusters that can be used, with what the component could have there."""
    ranks = suitability.ranks(component)
    found = []
    for name, summary in availability.usable.items():
        if (ranks is None or name in ranks) and component.cluster in (None, name):
            rank = None if ranks is None else ranks[name]
            found.append((Candidate(name, free_for(component, summary), rank), summary))
    return found


def free_for(component: ComponentRequest, summary: ClusterSummary) -> int:
    """Return the most processors that a component like this one, of any size, could have on the cluster now."""
    if not component.spread:
        return component.processors if misfit(component, summary) is None else 0
    if summary.settings.only_named or refusal(component, summary) is not None:
        return 0
    most = min(summary.idle, summary.largest)
    if summary.state is not None and summary.state.largest_idle is not None:
        most = min(most, summary.state.largest_idle)
    most -= most % component.threads_per_process
    while most > 0 and processors_taken(replace(component, processors=most), summary.settings) > summary.idle:
        most -= component.threads_per_process  # whole nodes are taken, and the last one is not whole
    return max(0, most)


def _by_network(
    request: Request, candidates: Sequence[tuple[Candidate, ClusterSummary]]
) -> list[list[tuple[Candidate, ClusterSummary]]]:
    if not request.communication:
        return [list(candidates)]
    networks: dict[str, list[tuple[Candidate, ClusterSummary]]] = {}
    for each in candidates:
        networks.setdefault(each[1].settings.network, []).append(each)
    return list(networks.values())


def _free(group: Group) -> int:
    return sum(each.free for each in group)


def _descending(rank: float | None) -> tuple[bool, float]:
    """Return a key that sorts larger ranks first, and None last."""
    return rank is None, -(rank or 0.0)
