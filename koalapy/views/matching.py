"""`koala match` and `koala clusters --ads`: the attributes of clusters, and which of them suit a job."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from koalapy.broker.availability import Availability
from koalapy.broker.fit import Misfit, misfit
from koalapy.broker.groups import choices, free_for
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
from koalapy.model.units import Instant


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


def match(engine: Engine, now: Instant, request: Request, answers: Iterable[Answer]) -> list[MatchedComponent]:
    """Match each component by itself with the present clusters. `answers`: those to `questions`.

    A component that nothing fits on now, and that allows fewer processors, is matched with fewer, step by step.
    """
    summaries = engine.summaries(now)
    matching = Matching()
    matching.look(engine.core.information.clusters, summaries)
    matching.take(now, answers)
    suitability, availability = matching.at(now), Availability(summaries)
    found = []
    for index, wanted in enumerate(request.components):
        component, chosen = _most_that_fits(request, wanted, availability, suitability)
        named = {cluster for each in chosen for cluster, _ in each.clusters}
        others = [
            Misfit(each.name, index, suitability.why_not(component, each.name) or _why_alone_not(component, each))
            for each in summaries
            if each.name not in named and component.cluster in (None, each.name)
        ]
        free = {each.name: free_for(component, each) if component.spread else each.idle for each in summaries}
        found.append(MatchedComponent(index, component, chosen, free, tuple(others)))
    return found


def _most_that_fits(
    request: Request, component: ComponentRequest, availability: Availability, suitability: Suitability
) -> tuple[ComponentRequest, tuple[Choice, ...]]:
    """Return the component with the most processors for which there are choices, and these; else as it is lowered."""
    while True:
        found = choices(replace(request, components=(component,)), availability, suitability)
        lowered = component.lowered()
        if found or lowered is component:
            return component, found
        component = lowered


def _why_alone_not(component: ComponentRequest, summary: ClusterSummary) -> Reason:
    if summary.trouble is not None:
        return summary.trouble
    if component.spread:
        free = counted_as(free_for(component, summary), "processor")
        message = f"it suits, and could give {free}, but no group with it has {component.processors}."
        return Reason("busy", "transient", message)
    found = misfit(component, summary)
    return found or Reason("busy", "transient", "it suits, but there are too many better choices.")
