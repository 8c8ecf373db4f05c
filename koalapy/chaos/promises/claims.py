"""Promises about claims: the queue's order, processors that really exist, and how a claim may end.

A job takes its choices in their order, each once, whole, and only clusters that suit it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from koalapy.chaos.promises import limits
from koalapy.chaos.promises.knowledge import Decided, KnownCluster, shared
from koalapy.chaos.promises.launchers import Launchers
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.change import Change
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.job import Choice, Job
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.world.koalad.matchmaker import NOT_BETA

_IN_TIME = Duration(10 * SECOND)  # a koalad that decides within this time after a barrier's time-out was not delayed


class Claims:
    """The checker of claims. `committed` is called after every commit; `before` are the jobs before it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strict = settings.queue == "fcfs"

    def committed(
        self, change: Change, before: Mapping[JobId, Job], pilots: Mapping[AttemptId, Attempt], decided: Decided
    ) -> None:
        """Check the claims of a change. `pilots`: those before it."""
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            if line.kind == HistoryKind.WORK_STOPPING and line.job in jobs:
                self._check_barrier(line, jobs[line.job], decided)
        for each in change.attempts:
            if each.owner.kind is OwnerKind.SWEEP and each.id not in pilots:
                Launchers(pilots, decided).check_fit(each)
        claimed = [jobs[line.job] for line in change.history if line.kind == HistoryKind.JOB_CLAIMED]
        if not claimed:
            return
        usable = decided.usable
        self._check_order(claimed, jobs, before, usable, decided)
        preempting = {line.job for line in change.history if line.kind == HistoryKind.JOB_PREEMPTS}  # see Preemption
        self._check_idle(claimed, preempting, usable, decided, Launchers(pilots, decided))
        for position, job in enumerate(claimed):
            self._check_network(job, decided)
            if job.patient:
                self._check_backlog(job, {each.id for each in claimed[position + 1 :]}, decided)

    # ---- order

    def _check_order(
        self,
        claimed: Sequence[Job],
        jobs: Mapping[JobId, Job],
        before: Mapping[JobId, Job],
        usable: Mapping[str, KnownCluster],
        decided: Decided,
    ) -> None:
        """Check that overtakes are counted: of each job ahead of a claim that still waits and is not stalled.

        Of a job with requirements or a rank it is not known here whether it is stalled: it or a later one is overtaken.
        So it is with a large one where jobs wait for leases, and with all until each cluster has answered.
        """
        starting = not all(seen.met for seen in decided.knowledge.clusters.values())
        ranks = [_rank(job) for job in claimed]
        promise(ranks == sorted(ranks), Promise.ORDER, "claims are out of order:", *(job.id for job in claimed))
        waiting = sorted((job for job in decided.engine.records.jobs.values() if job.state.queued), key=_rank)
        passed: dict[JobId, int] = {}
        doubtful: set[JobId] = set()
        for job in claimed:
            ahead = [each for each in waiting if _rank(each) < _rank(job)]
            promise(
                not (self._strict and ahead), Promise.ORDER, "job", job.id, "overtakes", *(each.id for each in ahead)
            )
            for each in ahead:
                if starting or is_matched(each) or self._may_be_too_large(each, usable):
                    doubtful.add(each.id)
                elif not _stalled(each, usable, decided.at):
                    passed[each.id] = passed.get(each.id, 0) + 1
                    if any(other.id in doubtful for other in ahead if _rank(other) < _rank(each)):
                        doubtful.add(each.id)
                    break
        for job_id, times in passed.items():
            if job_id not in doubtful:
                self._check_overtaken(jobs.get(job_id), before.get(job_id), job_id, times)
        for job_id in doubtful:
            self._check_bound(jobs.get(job_id))

    def _may_be_too_large(self, job: Job, usable: Mapping[str, KnownCluster]) -> bool:
        return self._settings.borrow is not None and may_be_too_large(job, usable.values())

    def _check_overtaken(self, after: Job | None, before: Job | None, job_id: JobId, times: int) -> None:
        same_place = before is not None and after is not None and before.position == after.position
        expected = times + (before.overtaken if before is not None and same_place else 0)
        found = after.overtaken if after is not None else 0
        promise(found == expected, Promise.ORDER, "job", job_id, "was overtaken", expected, "times, counted are", found)
        self._check_bound(after)

    def _check_bound(self, job: Job | None) -> None:
        found, bound = (0 if job is None else job.overtaken), self._settings.max_overtakes
        words = (0 if job is None else job.id, "was overtaken", found, "times, allowed are", bound)
        promise(found <= bound, Promise.ORDER, "job", *words)

    # ---- processors

    def _check_idle(
        self,
        claimed: Sequence[Job],
        preempting: Collection[JobId],
        usable: Mapping[str, KnownCluster],
        decided: Decided,
        launchers: Launchers,
    ) -> None:
        """Check that commitments not shown yet fit the processors known to be idle; those of sweeps count as idle."""
        for position, job in enumerate(claimed):
            if job.id in preempting:
                continue
            later = {each.id for each in claimed[position + 1 :]}
            for name in dict.fromkeys(each.cluster or "" for each in job.live if not job.patient):
                self._check_cluster(job, name, usable.get(name), later, decided, launchers)

    def _check_cluster(
        self, job: Job, name: str, seen: KnownCluster | None, later: set[JobId], decided: Decided, launchers: Launchers
    ) -> None:
        promise(seen is not None, Promise.PROCESSORS, "job", job.id, "is claimed on", name, "unseen")
        assert seen is not None
        assert seen.state is not None
        records, shown = decided.engine.records, frozenset(seen.state.allocated)
        committed = sum(
            decided.processors.taken(name, each.request)
            for each in records.live(name)
            if each.id.job not in later and each.owner.kind is not OwnerKind.SWEEP
            if tag_of(records.instance, each.id) not in shown
        )
        committed -= shared(seen, decided.engine, decided.processors, later)
        idle = seen.state.idle + launchers.shown(seen)
        promise(committed <= idle, Promise.PROCESSORS, "job", job.id, committed, "of", idle, "idle ones on", name)

    # ---- networks and batch queues

    def _check_network(self, job: Job, decided: Decided) -> None:
        networks = {decided.knowledge.clusters[each.cluster].settings.network for each in job.live}
        apart = job.request.communication and len(networks) > 1
        promise(not apart, Promise.NETWORK, "job", job.id, "communicates, but is claimed in", *sorted(networks))

    def _check_backlog(self, job: Job, later: set[JobId], decided: Decided) -> None:
        """Check a claim of a job that goes into batch queues against the backlog that the grid file allows.

        The backlog counts our jobs that the batch system has shown, and those sent to its queue since.
        """
        for name in dict.fromkeys(each.cluster or "" for each in job.live):
            seen = decided.knowledge.clusters[name]
            waiting, limit = limits.waiting(seen, decided, later), limits.limit(seen, decided)
            promise(
                waiting <= limit, Promise.BACKLOG, "with job", job.id, waiting, "wait on", name, "allowed are", limit
            )

    # ---- optional components

    def _check_barrier(self, line: History, job: Job, decided: Decided) -> None:
        """Check that no barrier time-out is due to optional components alone, if koalad decided in time."""
        if line.details.get("code") != "barrier_timeout" or job.state is not JobState.STOPPING:
            return
        known = decided.engine.core.at_barrier
        late = [each for each in job.present if each.state is not AttemptState.AT_BARRIER or each.id not in known]
        came = [each.at_barrier_at for each in job.present if each.at_barrier_at is not None]
        if not came or not late or not all(each.request.optional for each in late):
            return
        kept_from_it = decided.at >= min(came) + self._settings.barrier_timeout + _IN_TIME
        promise(kept_from_it, Promise.OPTIONAL, "job", job.id, "stops at its barrier for optional components only")


def _rank(job: Job) -> tuple[int, int]:
    """Return the job's rank in the wait queue, which a claim does not change."""
    return job.request.priority, job.position


def is_matched(job: Job) -> bool:
    """Return whether the clusters that the job may have depend on its requirements, or their order on its rank."""
    return any(each.requirements or each.rank or each.spread for each in job.request.components)


def may_be_too_large(job: Job, clusters: Iterable[KnownCluster]) -> bool:
    """Return whether the job may be too large for all these clusters, while some of their nodes are down.

    One whose components communicate needs clusters of one network, which those that it names must be in.
    """
    components = job.request.components
    totals = {(each.settings.network, each.settings.name): each.state.total for each in clusters if each.state}
    if not job.request.communication or len(components) == 1:
        return _is_short(components, {name: total for (_, name), total in totals.items()})
    networks = {network for network, _ in totals}
    within = [{name: total for (of, name), total in totals.items() if of == network} for network in networks]
    named: Counter[str] = Counter()
    for each in components:
        if each.cluster is not None and not each.optional:
            named[each.cluster] += each.processors
    return all(
        _is_short(components, there) or any(asked > there.get(name, 0) // 2 for name, asked in named.items())
        for there in within
    )


def _is_short(components: Sequence[ComponentRequest], totals: Mapping[str, int]) -> bool:
    """Return whether the components ask for more than half of all processors, or the largest half of a cluster's."""
    asked = [each.processors for each in components]
    return max(asked) > max(totals.values(), default=0) // 2 or sum(asked) > sum(totals.values()) // 2


def _stalled(job: Job, usable: Mapping[str, KnownCluster], now: Instant) -> bool:
    """Return whether the job waits for a cluster, not for processors."""
    left = usable.keys() - {name for name, until in job.excluded if now < until}
    needed = {each.cluster for each in job.request.components if each.cluster and not each.optional}
    return not left or bool(needed - left)


class Choices:
    """The checker of choices. `committed` is called after every commit."""

    def __init__(self) -> None:
        self._taken: dict[JobId, int] = {}  # the place of the choice on which a job was claimed last
        self._refused: dict[JobId, int] = {}  # the place of the choice on which a job could not start

    def committed(self, change: Change) -> None:
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            if line.kind == HistoryKind.WORK_STOPPING and line.details.get("outcome") == "next_choice":
                self._refused[line.job] = self._taken[line.job]
            elif line.kind == HistoryKind.CHOICES_MADE:
                self._refused.pop(line.job, None)
            elif line.kind == HistoryKind.JOB_CLAIMED:
                self._check_claim(jobs[line.job])

    def _check_claim(self, job: Job) -> None:
        for each in job.present:
            unsuited = each.request.requirements == NOT_BETA and each.cluster == "beta"
            promise(not unsuited, Promise.CHOICES, "job", job.id, "is claimed on beta, which does not suit")
        if not job.choices:
            return
        chosen = job.choices[job.choice]
        self._taken[job.id] = job.choice
        refused = self._refused.pop(job.id, None)
        in_order = refused is None or job.choice > refused
        promise(in_order, Promise.CHOICES, "job", job.id, "takes choice", job.choice, "after", refused)
        skipped = [each for each in job.choices[: job.choice] if each.refused is None]
        promise(not skipped and chosen.refused is None, Promise.CHOICES, "job", job.id, "leaves out a choice")
        claimed = tuple((each.cluster, each.processors) for each in job.present)
        promise(claimed == chosen.clusters, Promise.CHOICES, "job", job.id, "is claimed on", claimed, "of", chosen)
        asked, given = job.written or job.request, sum(count for _, count in chosen.clusters)
        enough = asked.smallest().processors <= given <= asked.processors
        promise(enough, Promise.CHOICES, "job", job.id, "gets", given, "of", asked.processors, "processors")
        ordered = all(_key(one) <= _key(other) for one, other in zip(job.choices, job.choices[1:], strict=False))
        promise(ordered, Promise.CHOICES, "job", job.id, "has choices out of order")


def _key(choice: Choice) -> tuple[int, bool, float]:
    return len(choice.clusters), choice.rank is None, -(choice.rank or 0.0)
