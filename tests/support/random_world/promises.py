"""What is promised, each by its name: of every commit, of the programs in the world, and of the engine at rest."""

from collections.abc import Iterable
from typing import Protocol

from koalapy.broker.availability import Availability
from koalapy.broker.broker import find_placement
from koalapy.coallocation import barrier, deadlock
from koalapy.engine import Engine
from koalapy.information.commitments import processors_taken
from koalapy.model.change import Change, Snapshot
from koalapy.model.commands import CancelAttempt, CollectOutput, Command, ReleaseAttempt, SubmitAttempt
from koalapy.model.events import BatchStatusSeen, ClusterConnected, Event, WrapperReported
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.job import History, Job, Outcome, job_value
from koalapy.model.settings import Settings
from koalapy.model.states import JOB_TRANSITIONS, JobState
from koalapy.model.units import Instant

from . import indices
from .cluster import Cluster, promise

STATE_AFTER = {
    "job_submitted": JobState.WAITING,
    "job_claimed": JobState.CLAIMING,
    "job_released": JobState.RUNNING,
    "job_stopping": JobState.STOPPING,
    "job_requeued": JobState.WAITING,
    "job_unheld": JobState.WAITING,
    "job_held": JobState.HELD,
    "job_done": JobState.DONE,
    "job_failed": JobState.FAILED,
    "job_cancelled": JobState.CANCELLED,
}


class Grid(Protocol):
    """What the promises are about."""

    settings: Settings
    clusters: dict[str, Cluster]
    engine: Engine
    decided_at: Instant  # what is committed was decided then
    handled_at: Instant  # by this engine, 0 for never


class Promises:
    """`of_commit` is asked before the store keeps a change, `of_world` and `of_engine` after every step."""

    def __init__(self, grid: Grid, fcfs: bool) -> None:
        self._grid, self._fcfs = grid, fcfs
        self._jobs: dict[JobId, Job] = {}
        self._states: dict[JobId, JobState] = {}
        self._holds: set[JobId] = set()
        self._submitted: set[AttemptId] = set()
        self._released: set[AttemptId] = set()
        self._cancelled: set[AttemptId] = set()
        self._connected_at: dict[str, Instant] = {}
        self._last_number = 0  # of the outbox
        self._collected: set[JobId] = set()
        self._heard: dict[AttemptId, str] = {}  # the last word of wrapper or batch system

    def of_events(self, events: Iterable[Event]) -> None:
        """What koalad is told, before it is."""
        for event in events:
            if isinstance(event, BatchStatusSeen):
                self._heard[event.attempt] = event.state
            elif isinstance(event, WrapperReported):
                self._heard[event.attempt] = event.phase
            elif isinstance(event, ClusterConnected):
                self._connected_at[event.cluster] = self._grid.decided_at

    # ---- of every commit

    def of_doubt(self, command: Command) -> None:
        """What is sent again after a reconnect."""
        if isinstance(command, SubmitAttempt | ReleaseAttempt):
            promise(command.attempt not in self._cancelled, "nothing is asked of the cancelled", command.attempt)

    def of_commit(self, change: Change) -> None:
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            self._follow(line)
            self._lost(line)
        for job in jobs.values():
            self._bounds(job)
        for entry in change.sent:
            promise(entry.number > self._last_number, "numbers of the outbox grow", entry)
            self._last_number = entry.number
            self._command(entry.command, jobs)
        self._over(change)
        self._queue_order(change, jobs)
        self._jobs |= jobs

    def _follow(self, line: History) -> None:
        """Of all states that a commit goes through, not of the last alone."""
        if line.kind == "job_stopping":
            (self._holds.add if line.details["outcome"] == "hold" else self._holds.discard)(line.job)
        after = STATE_AFTER.get(line.kind)
        if line.kind == "job_requeued" and line.job in self._holds:
            after = JobState.HELD
        before = self._states.get(line.job)
        if after is None:
            return
        promise(before is None or after in JOB_TRANSITIONS[before], "transitions are the table's", (line, before))
        self._states[line.job] = after

    def _lost(self, line: History) -> None:
        """No sign of it is said only of what was missing on a cluster that was in reach for so long."""
        if line.kind != "component_ended" or "no sign" not in str(line.details.get("message")):
            return
        grid, index = self._grid, line.details["component"]
        attempt = AttemptId(line.job, index, line.details["attempt"])
        limit = self._connected_at[line.details["cluster"]] + grid.settings.orphan_timeout + grid.settings.grace
        promise(self._heard.get(attempt) == "missing", "what is lost was missing", (attempt, self._heard.get(attempt)))
        promise(grid.decided_at >= limit, "what is lost was in reach", attempt)

    def _bounds(self, job: Job) -> None:
        limits, before = self._grid.settings, self._jobs.get(job.id)
        promise(before is None or not before.state.final, "final is final", job.id)
        promise(job.state is self._states[job.id], "history and record agree", (job.id, job.state))
        promise(job.submission_failures <= limits.max_submission_failures, "submission failures are bounded", job.id)
        promise(job.completion_failures <= limits.max_completion_failures + 1, "completions are bounded", job.id)
        promise(job.overtaken <= limits.max_overtakes, "overtakes are bounded", job.id)
        promise(job.state.active or not job.live, "only what is active lives", job.id)
        promise(not job.state.final or job.finished_at is not None, "over has an instant", job.id)
        released = all(each.released_at is not None for each in job.present)
        promise(job.state is not JobState.RUNNING or released, "who runs has been released", job.id)
        same = before is None or before.state is not JobState.STOPPING or job.state is not JobState.STOPPING
        same = same or job.outcome in (before and before.outcome, Outcome.CANCELLED)
        promise(same, "the first outcome counts, or its user's", job.id)
        promise(job.state is not JobState.DONE or job.reason is None, "done needs no reason", job.id)
        promise(job.state is not JobState.FAILED or job.reason is not None, "failed has a reason", job.id)

    def _command(self, command: Command, jobs: dict[JobId, Job]) -> None:
        if isinstance(command, SubmitAttempt):
            promise(command.attempt not in self._submitted, "an attempt is submitted once", command.attempt)
            self._no_other_runs(command.attempt)
            self._submitted.add(command.attempt)
        elif isinstance(command, ReleaseAttempt):
            self._all_have_come(jobs[command.attempt.job])
            self._released.add(command.attempt)
        elif isinstance(command, CancelAttempt):
            once = command.force or command.attempt not in self._cancelled
            promise(once, "an attempt is cancelled once", command.attempt)
            self._cancelled.add(command.attempt)
        elif isinstance(command, CollectOutput):
            promise(command.job not in self._collected, "output is collected once", command.job)
            self._collected.add(command.job)

    def _no_other_runs(self, attempt: AttemptId) -> None:
        for cluster in self._grid.clusters.values():
            for trace in cluster.traces.values():
                same = trace.attempt[:2] == attempt[:2] and trace.attempt in self._released
                promise(not (same and trace.may_run), "the next attempt waits", (attempt, trace.attempt))

    def _all_have_come(self, job: Job) -> None:
        for each in job.present:
            attempt = each.id
            reached = self._grid.engine.core.information.is_connected(each.cluster)
            promise(reached, "nobody is released who cannot be told", attempt)
            trace = self._grid.clusters[each.cluster].traces.get(attempt)
            assert trace is not None, "broken: all were submitted"
            assert trace.command is not None
            promise("at_barrier" in trace.at, "all are at the barrier", attempt)
            leaves = trace.at["at_barrier"] + trace.command.barrier_timeout
            promise(self._grid.decided_at < leaves, "nobody is released who has left", attempt)

    def _over(self, change: Change) -> None:
        """Nothing of a job that is over is left, but debts."""
        debts = {debt.attempt for debt in change.debts} | self._grid.engine.records.debts.keys()
        over = {job.id for job in change.jobs if job.state.final}
        for cluster in self._grid.clusters.values():
            for trace in cluster.ours():
                left = trace.attempt.job in over and trace.attempt not in debts
                promise(not left, "nothing is left of what is over", trace.attempt)

    # ---- of every claim

    def _queue_order(self, change: Change, jobs: dict[JobId, Job]) -> None:
        """A claim passes whoever is nearer to the head and still waits after it."""
        passed: dict[JobId, int] = {}
        claimed = [jobs[line.job] for line in change.history if line.kind == "job_claimed"]
        for place, job in enumerate(claimed):
            ahead = self._ahead_of(job)
            promise(not (self._fcfs and ahead), "nobody passes anybody", (job.id, [each.id for each in ahead]))
            blocked = [each.id for each in ahead if not self._stalled(each)]
            if blocked:
                passed[blocked[0]] = passed.get(blocked[0], 0) + 1
            if not job.patient:
                self._fits(job, {each.id for each in claimed[place + 1 :]})
        for job_id, times in passed.items():
            after, before = jobs[job_id], self._jobs.get(job_id)
            counted = before.overtaken if before is not None and before.position == after.position else 0
            promise(after.overtaken == counted + times, "who is passed is counted", (job_id, after.overtaken))

    def _ahead_of(self, job: Job) -> list[Job]:
        waiting = [each for each in self._grid.engine.records.jobs.values() if each.state.queued]
        ordered = sorted(waiting, key=lambda each: (each.request.priority, each.position))
        return [
            each for each in ordered if (each.request.priority, each.position) < (job.request.priority, job.position)
        ]

    def _stalled(self, job: Job) -> bool:
        """It waits for a cluster, not for processors."""
        out = {name for name, until in job.excluded if self._grid.decided_at < until}
        usable = {
            summary.name for summary in self._grid.engine.summaries(self._grid.decided_at) if summary.trouble is None
        } - out
        needed = {each.cluster for each in job.request.components if each.cluster and not each.optional}
        return not usable or bool(needed - usable) or self._too_small(job)

    def _too_small(self, job: Job) -> bool:
        """Whether all clusters that may take it can be asked, and would not now if nobody else were there."""
        availability = Availability(self._grid.engine.summaries(self._grid.decided_at))
        named = {each.cluster for each in job.request.components}
        if any(None in named or name in named for name in availability.troubled):
            return False
        return find_placement(job.request, availability.emptied(), self._grid.policies.placement) is None

    def _fits(self, job: Job, later: set[JobId]) -> None:
        """Promised is no more than what was known to be idle."""
        records = self._grid.engine.records
        summaries = {summary.name: summary for summary in self._grid.engine.summaries(self._grid.decided_at)}
        for name in {attempt.cluster for attempt in job.live}:
            summary = summaries[name]
            assert summary.state is not None, "broken: claims are on clusters that are known"
            promise(summary.trouble is None, "claims are on clusters in reach", (job.id, summary.trouble))
            committed = sum(
                processors_taken(each.request, summary.settings)
                for each in records.live(name)
                if each.id.job not in later and tag_of(records.instance, each.id) not in summary.state.allocated
            )
            promise(committed <= summary.state.idle, "no more is promised than is idle", (job.id, name, committed))

    # ---- of the world

    def of_world(self) -> None:
        running: set[tuple[int, int]] = set()
        for cluster in self._grid.clusters.values():
            for trace in cluster.traces.values():
                promise(trace.runs <= 1, "no program runs twice", trace.attempt)
                promise(not trace.runs or trace.attempt in self._released, "who runs was released", trace.attempt)
                if trace.running:
                    promise(trace.attempt[:2] not in running, "one attempt runs at a time", trace.attempt)
                    running.add(trace.attempt[:2])

    def of_engine(self, kept: Snapshot) -> None:
        """The store holds what the engine knows, and time alone makes no busy loop."""
        records = self._grid.engine.records
        jobs = tuple(job_value(job) for _, job in sorted(records.jobs.items()))
        promise(kept.jobs == jobs, "the store has the jobs")
        promise({debt.attempt: debt for debt in kept.debts} == records.debts, "the store has the debts")
        promise(kept.counters == records.counters, "the store has the counters")
        indices.check(self._grid.engine, self._grid.settings, self._grid.policies, self._grid.handled_at)
        circle = deadlock.job_to_give_back(self._grid.engine.core)
        promise(circle is None, "nobody holds in a circle", circle)
        for job in jobs:
            waits = job.state is JobState.CLAIMING and not job.patient
            promise(not waits or barrier.deadline(job, self._grid.settings), "no claim is for ever", job.id)


def _order(job: Job) -> tuple[int, int]:
    """Return what orders the wait queue."""
    return job.request.priority, job.position
