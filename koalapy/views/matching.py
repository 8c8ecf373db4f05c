"""`koala match` and `koala clusters --ads`: the attributes of clusters, and which of them suit a job."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from koalapy.answers import clusters as answers
from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, find_placement
from koalapy.broker.fit import Misfit, misfit, refusal
from koalapy.broker.groups import choices, free_for, is_spread
from koalapy.broker.suitability import Suitability
from koalapy.core.matching import Matching
from koalapy.engine import Engine
from koalapy.information.ads import cluster_ad
from koalapy.information.kis import ClusterSummary
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.job import Choice
from koalapy.model.matching import Answer, ClusterAd, Question, job_ad
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.textfile.classad import attributes_read
from koalapy.model.units import Instant
from koalapy.policies.placement import PlacementPolicy
from koalapy.views.fields import reason


@dataclass(frozen=True, slots=True)
class MatchedComponent:
    """A component, the clusters or groups of clusters that it fits on now, and why it does not fit on the others.

    `free`: by cluster, the processors that it could have there.
    """

    index: int
    request: ComponentRequest
    choices: tuple[Choice, ...]
    free: dict[str, int]
    others: tuple[Misfit, ...]


def ads(engine: Engine, now: Instant) -> tuple[ClusterAd, ...]:
    """Return the present ads of the grid's clusters."""
    known = engine.core.information.clusters
    return tuple([cluster_ad(known[summary.name], summary) for summary in engine.summaries(now)])


def questions(request: Request, clusters: tuple[ClusterAd, ...]) -> list[Question]:
    """Return what must be compared to match a request: each ad of its components once."""
    found = dict.fromkeys(ad for each in request.components if (ad := job_ad(each)) is not None)
    return [Question(each, clusters) for each in found]


def compared(engine: Engine, now: Instant, found: Iterable[Answer]) -> Suitability:
    """Return which of the present clusters suit, by the answers (`found`) to `questions`."""
    matching = Matching()
    matching.look(engine.core.information.clusters, engine.summaries(now))
    matching.take(now, found)
    return matching.at(now)


def match(
    request: Request, availability: Availability, policy: PlacementPolicy, suitability: Suitability
) -> list[MatchedComponent]:
    """Match each component by itself with the clusters.

    A component with a range is matched with the processors that it would get in its job. If the job as a whole does not
    fit, it is matched with the most that it would get alone.
    """
    whole = find_placement(request, availability, policy, suitability)
    placed = whole.request if isinstance(whole, Placement) and not is_spread(request) else request
    summaries = availability.summaries
    found = []
    for index, wanted in enumerate(placed.components):
        chosen = choices(replace(request, components=(wanted,)), availability, suitability)
        component = wanted.smallest()
        if chosen:
            component = replace(wanted, processors=sum(processors for _, processors in chosen[0].clusters))
        named = {cluster for each in chosen for cluster, _ in each.clusters}
        others = [
            Misfit(each.name, index, suitability.why_not(component, each.name) or _why_alone_not(component, each))
            for each in summaries
            if each.name not in named and component.cluster in (None, each.name)
        ]
        free = {each.name: free_for(component, each) if component.spread else each.idle for each in summaries}
        found.append(MatchedComponent(index, component, chosen, free, tuple(others)))
    return found


def _why_alone_not(component: ComponentRequest, summary: ClusterSummary) -> Reason:
    if summary.trouble is not None:
        return summary.trouble
    if (refused := refusal(component, summary)) is not None:
        return refused
    if component.spread:
        free = counted_as(free_for(component, summary), "processor")
        message = f"it suits, and could give {free}, but no group with it has {component.processors}."
        return Reason("busy", "transient", message)
    found = misfit(component, summary)
    return found or Reason("busy", "transient", "it suits, but there are too many better choices.")


def ads_answer(found: Iterable[ClusterAd]) -> answers.AdsAnswer:
    """Answer with the ads of clusters."""
    return {"schema": "koala.ads/1", "ads": [_ad(each) for each in found]}


def _ad(found: ClusterAd) -> answers.ClusterAd:
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in found.attributes}
    return {"cluster": found.cluster, "attributes": attributes}


def answer(request: Request, found: Iterable[MatchedComponent], clusters: Sequence[ClusterAd]) -> answers.MatchAnswer:
    """Answer with what suits each component of a request. `clusters`: the ads that they were compared with."""
    named = {each.cluster: {name.casefold() for name, _ in each.attributes} for each in clusters}
    return {
        "schema": "koala.match/1",
        "name": request.name,
        "components": [
            {
                "index": each.index,
                "processors": each.request.processors,
                "requirements": each.request.requirements or None,
                "rank": each.request.rank or None,
                "choices": [choice(one, each.free) for one in each.choices],
                "others": [
                    {
                        "cluster": one.cluster,
                        "reason": reason(one.reason),
                        "missing": [
                            name
                            for name in attributes_read(each.request.requirements)
                            if name.casefold() not in named.get(one.cluster, ())
                        ],
                    }
                    for one in each.others
                ],
            }
            for each in found
        ],
    }


def choice(found: Choice, free: Mapping[str, int] | None = None) -> answers.Choice:
    """Describe a choice. `free`: what the job could have on each cluster."""
    clusters: list[answers.ChosenCluster] = [
        {"cluster": cluster, "processors": processors, "free": None if free is None else free[cluster]}
        for cluster, processors in found.clusters
    ]
    return {"clusters": clusters, "rank": found.rank, "refused": reason(found.refused) if found.refused else None}
