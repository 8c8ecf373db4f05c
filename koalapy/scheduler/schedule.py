"""The scheduling pass (DCS, section 3.2), which decides which waiting jobs are claimed, rejected or overtaken."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, PolicyFailed, placement_on, shortest_queue
from koalapy.broker.fit import WALLTIME_LIMIT, misfit, misfits, too_long
from koalapy.broker.groups import choices, fits, has_choices, is_spread
from koalapy.broker.placement_cache import PlacementCache
from koalapy.broker.shape import Shape
from koalapy.broker.suitability import EVERY_CLUSTER, Suitability
from koalapy.broker.wait_deadlines import closed_clusters, isolating, may_queue_from
from koalapy.core.startup import NOBODY_AWAITED, StartupGate
from koalapy.core.wait_queue import Position, Waiting, WaitQueue
from koalapy.information.kis import ClusterSummary
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import JobId
from koalapy.model.isolated import TERMINAL, needs_terminal
from koalapy.model.job import Choice, Job
from koalapy.model.lease import Borrow, Wanted, wanted, why_kept, why_not_at_all
from koalapy.model.request import ComponentRequest, Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import Duration, Instant, format_duration
from koalapy.policies.candidates import CandidatePolicy, shortest_queues
from koalapy.policies.delegation import SitePolicies
from koalapy.policies.placement import PlacementPolicy
from koalapy.policies.queueing import QueueingPolicy
from koalapy.policies.vacating import VacatingPolicy, youngest_first
from koalapy.scheduler.blocked_ahead import BlockedAhead, Overtaken


@dataclass(frozen=True, slots=True)
class Policies:
    """The registered policies that the grid file names: of placement, queueing, who is vacated, sites, and races."""

    placement: PlacementPolicy
    queueing: QueueingPolicy
    vacating: VacatingPolicy = youngest_first
    sites: SitePolicies = field(default_factory=SitePolicies)
    candidates: CandidatePolicy = shortest_queues


@fast_frozen
@dataclass(frozen=True, slots=True)
class Claim:
    """Claim these clusters for the job. `patient`: it enters batch queues instead of idle processors."""

    job: JobId
    placement: Placement
    patient: bool = False


@fast_frozen
@dataclass(frozen=True, slots=True)
class ClaimChoice:
    """Claim one of these choices for the job."""

    job: JobId
    choices: tuple[Choice, ...]
    choice: int


@dataclass(frozen=True, slots=True)
class EndChoices:
    """Count a submission failure: after others were refused, no choice of the job is left that fits."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Reject:
    """Fail the job: no retry can succeed."""

    job: JobId
    reason: Reason


Decision = Claim | ClaimChoice | EndChoices | Reject | Overtaken


@fast_frozen
@dataclass(frozen=True, slots=True)
class Pass:
    """The result of one pass.

    `available`: the availability after all decisions are carried out. `end`: the position where the queueing policy
    stopped the pass, None if it never did. `settled`: no job has passed another, and none has a new list of choices to
    be made, so all remaining jobs were refused with `available`.
    """

    decisions: list[Decision]
    available: Availability
    end: Position | None
    settled: bool


def schedule(
    now: Instant,
    queue: WaitQueue,
    availability: Availability,
    cache: PlacementCache,
    settings: Settings,
    policy: QueueingPolicy,
    since: Position | None = None,
    newest: JobId | None = None,
    suitability: Suitability = EVERY_CLUSTER,
    gate: StartupGate = NOBODY_AWAITED,
) -> Pass:
    """Return the decisions of one pass over the wait queue, head first.

    A job that does not fit keeps its position, and no failure is counted.

    The pass examines only jobs that it may decide. With `since`, it begins at that position. Before each job the
    queueing policy is called with the blocked jobs nearer to the head. Once it has refused one, the pass ends.

    Some jobs need clusters that are out of reach, do not suit, or are too small while nodes are down. Under any policy
    that lets jobs pass, others pass them freely: they do not wait for processors that a passing job would take.

    Jobs up to `newest` were submitted before koalad's start. They do not fail for a size that a cluster has shown only
    since. Jobs that the `gate` holds wait for clusters, too.
    """
    queue.let_queue(Instant(now - settings.queue_after))
    queue.recheck(availability.sizes)
    decisions: list[Decision] = []
    ended = False
    awaited = bool(gate.missing)
    stalled = partial(_stalled, now, availability=availability, cache=cache, suitability=suitability, gate=gate)
    ahead = BlockedAhead(queue, stalled)
    end: Position | None = None
    for waiting in queue.candidates(availability.most_idle, availability.most_backlog, since):
        may_fit = availability.may_fit(waiting.minimum)
        if not (may_fit or waiting.recheck or _may_queue(now, waiting, availability, settings)):
            continue
        ahead.advance(waiting.position)
        if not policy(ahead, settings.max_overtakes):
            end = waiting.position
            break
        if awaited and waiting.held_by(gate):
            continue
        decision = _decide(now, waiting, availability, may_fit, cache, settings, newest, suitability)
        if decision is None:
            continue
        if isinstance(decision, Claim):
            availability = availability.after(*decision.placement, decision.patient)
            ahead.overtake()
        elif isinstance(decision, ClaimChoice):
            chosen = decision.choices[decision.choice]
            availability = availability.after(*placement_on(waiting.job.request, chosen))
            ahead.overtake()
        elif isinstance(decision, EndChoices):
            decisions.append(decision)
            end, ended = waiting.position, True  # the job may get a new list before others are examined
            break
        ahead.skip(waiting.position)
        decisions.append(decision)
    queue.mark_feasible(end)
    overtaken = ahead.overtaken
    return Pass([*decisions, *overtaken], availability, end, settled=not overtaken and not ended)


def _decide(
    now: Instant,
    waiting: Waiting,
    availability: Availability,
    may_fit: bool,
    cache: PlacementCache,
    settings: Settings,
    newest: JobId | None,
    suitability: Suitability,
) -> Decision | None:
    job, shape = waiting.job, waiting.shape
    if suitability is not EVERY_CLUSTER:
        failures = [why for each in job.request.components if (why := suitability.failure(each)) is not None]
        if failures:
            return Reject(job.id, failures[0])
    if needs_terminal(job.request) and (reason := _why_no_terminal(job.request, availability)) is not None:
        return Reject(job.id, reason)
    excluded = closed_clusters(now, job, availability.summaries)
    if may_fit:
        decision = start(job, shape, availability, cache, excluded, suitability)
        if decision is not None:
            return decision
    too_small = waiting.recheck and not may_be_borrowed(job.request, settings, availability)
    if too_small and cache.never_fits(job.request, shape, availability, anew=newest is None or job.id > newest):
        return Reject(job.id, why_never(job.request, availability.summaries))
    if not _may_queue(now, waiting, availability, settings):
        return None
    placement = shortest_queue(job.request, availability.summaries, excluded, suitability)
    return Claim(job.id, placement, patient=True) if placement is not None else None


def _why_no_terminal(request: Request, availability: Availability) -> Reason | None:
    """Return why an interactive job cannot run on a cluster that it names; None if it names none that isolates."""
    isolating_ones = isolating(availability.summaries)
    named = [each.cluster for each in request.components if each.cluster in isolating_ones]
    return TERMINAL.on(named[0]) if named and named[0] is not None else None


def may_be_borrowed(request: Request, settings: Settings, availability: Availability) -> bool:
    """Return whether neighbouring sites may serve a job that is too large for this one, or the rest of it."""
    borrow = settings.borrow
    if borrow is None:
        return False
    want = wanted(request, settings.barrier_timeout)
    if isinstance(want, Wanted) and (borrow.processors is None or want.processors <= borrow.processors):
        return True
    return _may_be_borrowed_in_part(request, borrow, availability)


def _may_be_borrowed_in_part(request: Request, borrow: Borrow, availability: Availability) -> bool:
    """Return whether the clusters and a lease may serve the job together, as far as their sizes alone show that."""
    if why_not_at_all(request) is not None or (request.communication and not borrow.networks):
        return False
    needed = [each.smallest() for each in request.components if not each.optional]
    kept = [each for each in needed if why_kept(each) is not None]
    if len(kept) == len(needed) or (len(request.components) == 1 and not is_spread(request)):
        return False
    there = availability.whole()
    lacking = sum(each.processors for each in needed) - sum(there.idle.values())
    if borrow.processors is not None and lacking > borrow.processors:
        return False
    return all(any(misfit(each, summary, now=False) is None for summary in there.usable.values()) for each in kept)


def start(
    job: Job,
    shape: Shape,
    availability: Availability,
    cache: PlacementCache,
    excluded: frozenset[str],
    suitability: Suitability,
) -> Decision | None:
    """Return how the job starts on idle processors, or why it cannot be placed; None if it does not fit."""
    if has_choices(job.request):
        return _choose(job, availability.without(excluded), suitability)
    placement = cache.find_placement(job.request, shape, availability, excluded, suitability)
    if isinstance(placement, PolicyFailed):
        return Reject(job.id, placement.reason)
    return None if placement is None else Claim(job.id, placement)


def _choose(job: Job, availability: Availability, suitability: Suitability) -> Decision | None:
    """Choose the first of the job's choices that fits; make a list of them if it has none.

    No list is made before a cluster that has just connected is measured and compared: it may be the best one. No list
    ends before it is measured.
    """
    if not job.choices:
        (component,) = job.request.components
        if availability.unmeasured or not suitability.is_settled(component):
            return None
        found = choices(job.request, availability, suitability)
        return ClaimChoice(job.id, found, 0) if found else None
    for place, each in enumerate(job.choices):
        if each.refused is None and fits(job.request, each, availability):
            return ClaimChoice(job.id, job.choices, place)
    return None if availability.unmeasured else EndChoices(job.id)


def _may_queue(now: Instant, waiting: Waiting, availability: Availability, settings: Settings) -> bool:
    """Return whether the job may enter batch queues by now, and some batch queue would take its largest component."""
    if waiting.job.request.when_busy is not WhenBusy.QUEUE:
        return False
    since = may_queue_from(waiting.job, settings)
    return since is not None and now >= since and waiting.minimum.largest <= availability.most_backlog


def _stalled(
    now: Instant,
    waiting: Waiting,
    availability: Availability,
    cache: PlacementCache,
    suitability: Suitability,
    gate: StartupGate,
) -> bool:
    """Return whether no change of idle processors could start the job now.

    There are four cases: the gate holds it; every usable cluster is excluded; a required component names a cluster that
    is excluded or not usable; all clusters that may take the job, since they suit, are usable and too small.
    """
    if waiting.held_by(gate):
        return True
    job = waiting.job
    excluded = closed_clusters(now, job, availability.summaries)
    if excluded.issuperset(availability.usable):
        return True
    for name, _ in waiting.minimum.named:
        if name not in availability.usable or name in excluded:
            return True
    return cache.too_small(job.request, waiting.shape, availability, suitability)


def _smaller(request: Request, summaries: Sequence[ClusterSummary]) -> str:
    """Return the advice for a job that is too large. Splitting a component helps only if the sum fits the grid."""
    if request.smallest().processors > sum((summary.whole or summary.size)[0] for summary in summaries):
        return "Ask for fewer processors: the whole grid has not as many."
    return "Ask for fewer processors, or split it into more components."


def why_never(request: Request, summaries: Sequence[ClusterSummary]) -> Reason:
    """Return the reason of a job that never fits."""
    names = [summary.name for summary in summaries]
    for index, component in enumerate(request.components):
        if component.cluster is not None and component.cluster not in names:
            message = f"Component {index} names the cluster {component.cluster}, which is not in the grid any more."
            return Reason("no_such_cluster", "request", message, "Name another one, or none.")
    if (reason := _too_long(request, summaries)) is not None:
        return reason
    sizes = ", ".join(f"{summary.name} has {(summary.whole or summary.size)[0]}" for summary in summaries)
    lacks = misfits(dict(enumerate(request.components)), summaries)
    found = [each for each in lacks if each.reason.code == "too_large"]
    held = [each for each in lacks if each.reason.code in ("isolated", "pilot_lacks")]
    if held and not found:
        return held[0].reason.on(held[0].cluster)
    least = request.smallest()
    asked = counted_as(" + ".join(str(component.processors) for component in least.components), "processor")
    asked = asked if least is request else f"at least {asked}"
    which = f"component {found[0].component}" if found else "the job"
    return Reason(
        "too_large",
        "request",
        f"{which[0].upper()}{which[1:]} never fits: the job asks for {asked}; {sizes}.",
        _smaller(request, summaries),
    )


def _too_long(request: Request, summaries: Sequence[ClusterSummary]) -> Reason | None:
    """Return the reason of a job with a component that all clusters large enough refuse for its walltime; else None."""
    for index, component in enumerate(request.components):
        large = [each for each in summaries if _is_large_enough(each, component)]
        limits = {each.name: each.walltime_limit for each in large if too_long(component, each) is not None}
        if not large or len(limits) < len(large):
            continue
        longest = max(limit for limit in limits.values() if limit is not None)
        where = " and ".join(name for name, limit in limits.items() if limit == longest)
        message = (
            f"Component {index} never fits: it asks for a walltime of {format_duration(component.walltime)}, and the "
            f"longest that fits is {format_duration(longest)}, on {where}."
        )
        return Reason(WALLTIME_LIMIT, "request", message, "Lower `walltime`, or name another `queue`.")
    return None


def _is_large_enough(summary: ClusterSummary, component: ComponentRequest) -> bool:
    """Return whether the cluster with all its nodes could run the component, if it were short."""
    if component.spread:
        return summary.trouble is None and not summary.settings.only_named
    reason = misfit(replace(component.smallest(), walltime=Duration(0)), summary, now=False)
    return reason is None or reason.code == "smaller"
