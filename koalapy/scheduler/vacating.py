"""Preemption: a job of high priority that does not fit takes the processors of running jobs of low priority.

This is the Scheduling Agent of "The EU-CrossGrid Approach for Grid Application Scheduling". Nobody is vacated for a job
that does not start: a job is claimed in the step in which others are vacated for it, and only if it fits without them.
Its claim commits their processors, so that nobody else is placed there. Where a batch system gives the processors of a
suspended job to others, jobs are suspended instead, if the grid file allows it. A suspended job has its processors
committed until it goes on, so that no job is placed anew on those that it needs.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from koalapy.broker.availability import Availability
from koalapy.broker.placement_cache import PlacementCache
from koalapy.broker.suitability import EVERY_CLUSTER, Suitability
from koalapy.broker.wait_deadlines import closed_clusters
from koalapy.core.core import Core
from koalapy.core.wait_queue import Waiting
from koalapy.information.commitments import processors_taken
from koalapy.information.kis import ClusterSummary, evolve_summary
from koalapy.model.attempt import Attempt
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import MAX_ATTEMPTS, JobId
from koalapy.model.job import Job
from koalapy.model.settings import Preempt, PreemptBy
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import Instant
from koalapy.policies.queueing import Blocked
from koalapy.policies.vacating import RunningJob, VacatingPolicy, vacating_error
from koalapy.scheduler.schedule import Claim, ClaimChoice, Policies, start

_MOST_TRIES = MAX_ATTEMPTS // 2  # of a component; the attempts that are left are for failures
MOST_SUSPENSIONS = 3  # of one try of a job, which then runs to its end


@fast_frozen
@dataclass(frozen=True, slots=True)
class Preempted:
    """Vacate or suspend the jobs, and claim their processors for another one."""

    claim: Claim | ClaimChoice
    vacated: tuple[JobId, ...]
    suspended: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyError:
    """The vacating policy failed for this job, so that nobody is vacated."""

    job: JobId
    message: str


def decide(core: Core, now: Instant, policies: Policies) -> Iterator[Preempted | PolicyError]:
    """Yield who makes room for the jobs at the head of the wait queue; each must be carried out before the next.

    A job that waits keeps those behind it from preempting. One that waits for a cluster, not for processors, does not,
    if the queueing policy lets jobs pass.
    """
    rules = core.settings.preempt
    if rules.how is PreemptBy.OFF:
        return
    stalled_may_be_passed = policies.queueing([Blocked(0, -1)], core.settings.max_overtakes)
    for position in [each for each in core.queue.order if each.priority <= rules.highest]:
        waiting = core.queue.at(position)
        if not may_preempt(waiting.job, rules):
            return
        if waiting.held_by(core.startup_gate):
            if stalled_may_be_passed:
                continue
            return
        clusters = _Clusters(core, now, waiting, policies)
        if clusters.fits_now():
            return
        found = clusters.victims(rules, policies.vacating)
        if found is not None:
            yield found
        if not isinstance(found, Preempted) and not (clusters.is_stalled and stalled_may_be_passed):
            return


def may_preempt(job: Job, rules: Preempt) -> bool:
    """Return whether others may be vacated for the job. They are once at most until it has started."""
    return (
        rules.how is not PreemptBy.OFF
        and job.request.priority <= rules.highest
        and (rules.users is None or job.owner in rules.users)
        and not job.preempted
        and job.request.pilot is None
        and may_be_tried_again(job)
    )


def may_be_tried_again(job: Job) -> bool:
    """Return whether the job has attempts left for tries that are not its own fault."""
    return max(job.numbers, default=0) < _MOST_TRIES


def jobs_in_the_way(
    core: Core, now: Instant, waiting: Waiting, policies: Policies, jobs: Sequence[Job]
) -> frozenset[JobId] | None:
    """Return the fewest of the first of these running jobs without which the waiting job fits.

    None are needed if it fits once those have left that are leaving now. None: it would not fit without all of them.
    """
    clusters = _Clusters(core, now, waiting, policies)
    if clusters.fits_soon():
        return frozenset()
    needed = clusters.needed([_Victim(each, tuple(each.live)) for each in jobs])
    return frozenset(each.job.id for each in needed) or None


@dataclass(frozen=True, slots=True)
class _Victim:
    """A job that may be vacated, with its live attempts."""

    job: Job
    attempts: tuple[Attempt, ...]


class _Clusters:
    """The clusters for one waiting job: as they are, and as they would be without some of the jobs there."""

    def __init__(self, core: Core, now: Instant, waiting: Waiting, policies: Policies) -> None:
        self._core, self._job, self._shape = core, waiting.job, waiting.shape
        self._suitability: Suitability = core.matching.at(now) if core.queue.ads else EVERY_CLUSTER
        self._cache = PlacementCache(policies.placement)
        self._summaries = core.information.summaries(now)
        self._present = Availability(self._summaries)
        self._excluded = closed_clusters(now, waiting.job, self._summaries)
        usable = {name for name in self._present.usable if name not in self._excluded}
        self._usable = usable
        self._idle: dict[str, int] = {}  # by cluster on which jobs may be vacated, less what others' jobs wait for
        self._leaving: dict[str, list[Attempt]] = {}
        for name in usable:
            summary = self._present.usable[name]
            if summary.state is not None and summary.state.measured_at >= (waiting.job.waiting_since or 0):
                self._look(summary)

    def _look(self, summary: ClusterSummary) -> None:
        """Count what will be idle on a cluster that was measured since the job began to wait."""
        assert summary.state is not None
        there = self._core.records.live(summary.name)
        leaving = [each for each in there if each.cancelling and each.launcher is None and each.stuck is None]
        self._leaving[summary.name] = leaving
        ended = self._core.information.commitments.ended_on(summary.name)
        state = summary.state
        self._idle[summary.name] = state.idle - summary.committed + ended - state.wanted_local

    @property
    def is_stalled(self) -> bool:
        """Return whether no idle processors could start the job now, since it needs a cluster that cannot be used."""
        named = {each.cluster for each in self._job.request.components if each.cluster and not each.optional}
        return not self._usable or not named <= self._usable

    def fits_now(self) -> bool:
        return self._start(self._present) is not None

    def fits_soon(self) -> bool:
        return self._start(self._without(())) is not None

    def victims(self, rules: Preempt, policy: VacatingPolicy) -> Preempted | PolicyError | None:
        """Return the fewest of the policy's first jobs without which the job fits; None if it needs none, or more."""
        if self.fits_soon():
            return None
        victims = {each.job.id: each for each in self._candidates(rules)}
        running = [_as_running(each) for each in victims.values()]
        try:
            answer = policy(running)
            problem = vacating_error(answer, running)
        except Exception as error:
            problem, answer = f"it raised {type(error).__name__}: {error}", ()
        if problem:
            name = getattr(policy, "__name__", policy)
            return PolicyError(self._job.id, f"The vacating policy {name} failed: {problem}.")
        chosen = self.needed([victims[JobId(each.job)] for each in answer])
        claim = self._start(self._without(chosen)) if chosen else None
        if claim is None:
            return None
        pausing = [each for each in chosen if rules.how is PreemptBy.SUSPEND and _may_be_suspended(each, self._present)]
        suspended = tuple([each.job.id for each in pausing])
        return Preempted(claim, tuple([each.job.id for each in chosen if each.job.id not in suspended]), suspended)

    def _candidates(self, rules: Preempt) -> list[_Victim]:
        """Return the jobs that could be vacated now."""
        jobs = self._core.records.jobs
        there = {each.id.job: None for name in self._idle for each in self._core.records.live(name)}
        found = [_Victim(jobs[each], tuple(jobs[each].live)) for each in sorted(there) if each in jobs]
        return [each for each in found if _may_be_vacated(each, rules, self._present)]

    def needed(self, ordered: Sequence[_Victim]) -> list[_Victim]:
        """Return the shortest first part without which the job fits, less those that it does not need."""
        if self._start(self._without(ordered)) is None:
            return []
        least, most = 1, len(ordered)
        while least < most:
            middle = (least + most) // 2
            if self._start(self._without(ordered[:middle])) is None:
                least = middle + 1
            else:
                most = middle
        chosen = list(ordered[:least])
        for each in reversed(ordered[: least - 1]):
            fewer = [other for other in chosen if other is not each]
            if self._start(self._without(fewer)) is not None:
                chosen = fewer
        return chosen

    def _start(self, availability: Availability) -> Claim | ClaimChoice | None:
        found = start(self._job, self._shape, availability, self._cache, self._excluded, self._suitability)
        return found if isinstance(found, Claim | ClaimChoice) else None

    def _without(self, victims: Sequence[_Victim]) -> Availability:
        """Return the availability once these jobs have left, and those that are leaving now."""
        freed: dict[str, list[Attempt]] = {name: list(leaving) for name, leaving in self._leaving.items()}
        for victim in victims:
            for each in victim.attempts:
                if each.cluster in freed and not each.cancelling:
                    freed[each.cluster].append(each)
        return Availability(
            [
                _with_idle(each, self._idle[each.name], freed[each.name]) if each.name in self._idle else each
                for each in self._summaries
            ]
        )


def _may_be_vacated(victim: _Victim, rules: Preempt, present: Availability) -> bool:
    """Return whether all that is left of the job can be ended now, and the job started again later.

    A pilot is not vacated, since other jobs run in it; nor is a job whose output is being fetched. A job that is
    suspended goes on before anybody else may preempt it, and one that was suspended often runs to its end.
    """
    job = victim.job
    if job.state not in (JobState.CLAIMING, JobState.RUNNING) or job.collecting:
        return False
    if job.request.priority < rules.lowest or job.request.pilot is not None:
        return False
    if job.suspended_for is not None or job.suspensions >= MOST_SUSPENSIONS:
        return False
    if not may_be_tried_again(job):
        return False
    for each in victim.attempts:
        lost = each.state is AttemptState.UNKNOWN or each.unknown_since is not None or each.stuck is not None
        if lost or each.cluster not in present.usable:
            return False
        if each.state is AttemptState.SUSPENDED and present.usable[each.cluster].settings.frees_when_suspended:
            return False  # it is about to go on
    return True


def _may_be_suspended(victim: _Victim, present: Availability) -> bool:
    """Return whether all programs of the job run where others get the processors of a suspended job."""
    return all(
        each.state is AttemptState.RUNNING
        and not each.cancelling
        and present.usable[each.cluster].settings.frees_when_suspended
        for each in victim.attempts
    )


def _as_running(victim: _Victim) -> RunningJob:
    job = victim.job
    return RunningJob(
        job=job.id,
        owner=job.owner,
        priority=job.request.priority,
        processors=sum([each.processors for each in victim.attempts]),
        began_at=job.started_at or job.claimed_at or job.submitted_at,
    )


def _with_idle(summary: ClusterSummary, idle: int, freed: Sequence[Attempt]) -> ClusterSummary:
    """Return the summary with so many idle processors, and those of attempts.

    How the batch system divides these over its nodes is known by the number of nodes only.
    """
    state = summary.state
    assert state is not None
    nodes: Counter[int] = Counter(dict(state.free_nodes))
    more = 0
    for each in freed:
        taken = processors_taken(each.request, summary.settings)
        more += taken
        if state.free_nodes or not state.idle:
            count = max(1, len(each.nodes))
            nodes[taken // count] += count
    largest = None if state.largest_idle is None else state.largest_idle + more
    after = replace(state, free_nodes=tuple(sorted(nodes.items())), largest_idle=largest)
    return evolve_summary(summary, {"state": after, "idle": max(0, idle + more)})
