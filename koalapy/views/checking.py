"""`--check`: whether the clusters, as far as they are known, could ever run a job that is not submitted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from koalapy.answers import jobs as answers
from koalapy.broker.availability import Availability
from koalapy.broker.broker import PolicyFailed, find_placement
from koalapy.broker.fit import Misfit
from koalapy.broker.placement_cache import PlacementCache
from koalapy.broker.shape import shape_of
from koalapy.broker.suitability import EVERY_CLUSTER, Suitability
from koalapy.engine import Engine
from koalapy.model.errors import Reason
from koalapy.model.matching import job_ad
from koalapy.model.request import Request
from koalapy.model.units import Instant
from koalapy.policies.placement import PlacementPolicy
from koalapy.scheduler.schedule import may_be_borrowed, why_never
from koalapy.views.fields import reason
from koalapy.views.jobs import request as request_of
from koalapy.views.matching import match


@dataclass(frozen=True, slots=True)
class Checked:
    """A checked job. `fits`: whether it fits on its clusters when they are idle and all their nodes work.

    `reason`: why it would fail at once. `unknown_clusters`: those on which it depends, and whose size is not known.
    `lacks`: what each of the others lacks, if too few meet its requirements, so that it would wait.
    """

    request: Request
    fits: Literal["yes", "never", "unknown"]
    reason: Reason | None = None
    unknown_clusters: tuple[str, ...] = ()
    lacks: tuple[Misfit, ...] = ()


def check(
    engine: Engine, now: Instant, request: Request, policy: PlacementPolicy, suitability: Suitability = EVERY_CLUSTER
) -> Checked:
    """Check a request against the clusters as the engine knows them, without their load."""
    if request.parameters is not None:
        return _check_sweep(engine, request)
    if request.site is not None:
        return Checked(request, "unknown")
    if request.jobs:
        return _check_flow(request, [check(engine, now, each.request, policy, suitability) for each in request.jobs])
    if failures := [why for each in request.components if (why := suitability.failure(each)) is not None]:
        return Checked(request, "never", failures[0])
    availability = Availability(engine.summaries(now))
    whole = availability.whole()
    answer = find_placement(request, whole, policy, suitability)
    if isinstance(answer, PolicyFailed):
        return Checked(request, "never", answer.reason)
    if answer is not None:
        return Checked(request, "yes")
    borrowed = may_be_borrowed(request, engine.settings, availability)
    if not borrowed and PlacementCache(policy).never_fits(request, shape_of(request), availability):
        return Checked(request, "never", why_never(request, availability.summaries))
    named = {component.cluster for component in request.components}
    doubtful = availability.troubled | availability.size_unknown(anew=True)
    unknown_clusters = tuple(
        summary.name
        for summary in availability.summaries
        if summary.name in doubtful and (None in named or summary.name in named)
    )
    compared = [each for each in match(request, whole, policy, suitability) if job_ad(each.request) is not None]
    unplaced = [each for each in compared if not each.choices] or compared
    unsuited = tuple([misfit for each in unplaced for misfit in each.others])
    return Checked(request, "unknown", unknown_clusters=unknown_clusters, lacks=unsuited)


def _check_flow(request: Request, found: Sequence[Checked]) -> Checked:
    """Check a flow: it fits if each of its jobs does."""
    for each in found:
        if each.reason is not None:
            what = replace(each.reason, message=f"Job {each.request.name} of the flow: {each.reason.message}")
            return Checked(request, "never", what)
    unknown_clusters = tuple(dict.fromkeys(name for each in found for name in each.unknown_clusters))
    doubtful = unknown_clusters or any(each.fits == "unknown" for each in found)
    unsuited = tuple([_in_flow(each.request, misfit) for each in found for misfit in each.lacks])
    return Checked(request, "unknown" if doubtful else "yes", unknown_clusters=unknown_clusters, lacks=unsuited)


def _in_flow(request: Request, misfit: Misfit) -> Misfit:
    return replace(misfit, reason=replace(misfit.reason, message=f"for job {request.name}: {misfit.reason.message}"))


def _check_sweep(engine: Engine, request: Request) -> Checked:
    found = engine.scavenger.may_go(request)
    if isinstance(found, Reason):
        return Checked(request, "never", found)
    if any(found.values()):
        return Checked(request, "yes")
    return Checked(request, "unknown", unknown_clusters=tuple(found))


def answer(found: Iterable[Checked]) -> answers.CheckAnswer:
    """Answer with checked jobs."""
    return {
        "schema": "koala.check/1",
        "jobs": [
            {
                "request": request_of(each.request),
                "parameters": each.request.parameters.count if each.request.parameters else None,
                "fits": each.fits,
                "reason": reason(each.reason) if each.reason else None,
                "unknown_clusters": list(each.unknown_clusters),
                "lacks": lacks_of(each.lacks),
            }
            for each in found
        ],
    }


def lacks_of(found: Iterable[Misfit]) -> list[answers.Lack]:
    """Describe what clusters lack for components."""
    return [{"component": each.component, "cluster": each.cluster, **reason(each.reason)} for each in found]
