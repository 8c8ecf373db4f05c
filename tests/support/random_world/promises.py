"""The promises, each with a name: about every commit, the programs in the world, and the engine between steps."""

from collections.abc import Iterable
from typing import Protocol

from koalapy.broker.availability import Availability
from koalapy.broker.broker import find_placement
from koalapy.chaos.promises.jobs import Jobs
from koalapy.coallocation import barrier, deadlock
from koalapy.engine import Engine
from koalapy.information.commitments import processors_taken
from koalapy.model.attempt import attempt_value
from koalapy.model.change import Change, Snapshot
from koalapy.model.commands import CancelAttempt, CollectOutput, Command, ReleaseAttempt, SubmitAttempt
from koalapy.model.events import BatchStatusSeen, ClusterConnected, Event, WrapperReported
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.job import History, Job, Outcome, job_value
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore

from . import indices
from .cluster import Cluster, promise


class Grid(Protocol):
    """The parts of the random world that the promises read."""

    settings: Settings
    policies: Policies
    clusters: dict[str, Cluster]
    engine: Engine
    store: MemoryStore
    decided_at: Instant  # the instant of the decision that is committed
    handled_at: Instant  # when this engine handled a batch last, 0 for never


class Promises:
    """`of_commit` is called before the store keeps a change, `of_world` and `of_engine` after every step.

    The promises about a job's record are those of chaos.
    """

    def __init__(self, grid: Grid, fcfs: bool) -> None:
        self._grid, self._fcfs = grid, fcfs
        self._jobs: dict[JobId, Job] = {}
        self._records = Jobs(grid.settings)
        self._submitted: set[AttemptId] = set()
        self._released: set[AttemptId] = set()
        self._cancelled: set[AttemptId] = set()
        self._connected_at: dict[str, Instant] = {}
        self._last_number = 0  # of the outbox
        self._collected: set[JobId] = set()
        self._last_states: dict[AttemptId, str] = {}  # by the last report or batch status

    def of_events(self, events: Iterable[Event]) -> None:
        """Note the events of a batch before koalad handles them."""
        for event in events:
            if isinstance(event, BatchStatusSeen):
                self._last_states[event.attempt] = event.state
            elif isinstance(event, WrapperReported):
                self._last_states[event.attempt] = event.phase
            elif isinstance(event, ClusterConnected):
                self._connected_at[event.cluster] = self._grid.decided_at

    # ---- about every commit

    def of_doubt(self, command: Command) -> None:
        """Check a command that is sent again after a reconnect."""
        if isinstance(command, SubmitAttempt | ReleaseAttempt):
            promise(
                command.attempt not in self._cancelled, "a cancelled attempt gets no other command", command.attempt
            )

    def of_commit(self, change: Change) -> None:
        jobs = {job.id: job for job in change.jobs}
        self._records.committed(change, self._jobs)
        for line in change.history:
            self._check_lost(line)
        for job in jobs.values():
            self._check_job(job)
        for entry in change.sent:
            promise(entry.number > self._last_number, "numbers of the outbox grow", entry)
            self._last_number = entry.number
            self._command(entry.command, jobs)
        self._check_final_jobs(change)
        self._queue_order(change, jobs)
        self._jobs |= jobs

    def _check_lost(self, line: History) -> None:
        """Check that a lost attempt was missing, on a cluster that was reachable for the whole time-out."""
        if line.kind != "attempt_ended" or "no sign" not in str(line.details.get("message")):
            return
        grid, index = self._grid, line.details["component"]
        attempt = AttemptId(line.job, index, line.details["attempt"])
        limit = self._connected_at[line.details["cluster"]] + grid.settings.orphan_timeout + grid.settings.grace
        promise(
            self._last_states.get(attempt) == "missing",
            "a lost attempt was missing",
            (attempt, self._last_states.get(attempt)),
        )
        promise(grid.decided_at >= limit, "the cluster of a lost attempt was reachable", attempt)

    def _check_job(self, job: Job) -> None:
        """Check the promises about a job's record that chaos does not check."""
        before = self._jobs.get(job.id)
        promise(job.overtaken <= self._grid.settings.max_overtakes, "overtakes are bounded", job.id)
        released = all(each.released_at is not None for each in job.present)
        promise(job.state is not JobState.RUNNING or released, "a running job has been released", job.id)
        same = before is None or before.state is not JobState.STOPPING or job.state is not JobState.STOPPING
        same = same or job.outcome in (before and before.outcome, Outcome.CANCELLED)
        promise(same, "the first outcome counts, or a user's cancel", job.id)

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
            promise(reached, "no attempt on an unreachable cluster is released", attempt)
            trace = self._grid.clusters[each.cluster].traces.get(attempt)
            assert trace is not None, "broken: all were submitted"
            assert trace.command is not None
            promise("at_barrier" in trace.at, "all are at the barrier", attempt)
            leaves = trace.at["at_barrier"] + trace.command.barrier_timeout
            promise(self._grid.decided_at < leaves, "no attempt that left its barrier is released", attempt)

    def _check_final_jobs(self, change: Change) -> None:
        """Check that final jobs have no batch jobs left, except pending cancels and those on a cluster that left."""
        pending_cancels = {
            each.id for each in change.attempts if each.is_pending_cancel
        } | self._grid.engine.records.pending_cancels.keys()
        final = {job.id for job in change.jobs if job.state.final}
        for name, cluster in self._grid.clusters.items():
            if name not in self._grid.engine.core.information.clusters:
                continue
            for trace in cluster.ours():
                left = trace.attempt.job in final and trace.attempt not in pending_cancels
                promise(not left, "a final job has no batch job left", trace.attempt)

    # ---- about every claim

    def _queue_order(self, change: Change, jobs: dict[JobId, Job]) -> None:
        """Check that a claim overtakes every job that is ahead of it and still waits."""
        passed: dict[JobId, int] = {}
        claimed = [jobs[line.job] for line in change.history if line.kind == "job_claimed"]
        for place, job in enumerate(claimed):
            ahead = self._ahead_of(job)
            promise(
                not (self._fcfs and ahead), "under FCFS no job overtakes another", (job.id, [each.id for each in ahead])
            )
            blocked = [each.id for each in ahead if not self._stalled(each)]
            if blocked:
                passed[blocked[0]] = passed.get(blocked[0], 0) + 1
            if not job.patient:
                self._fits(job, {each.id for each in claimed[place + 1 :]})
        for job_id, times in passed.items():
            after, before = jobs[job_id], self._jobs.get(job_id)
            counted = before.overtaken if before is not None and before.position == after.position else 0
            promise(after.overtaken == counted + times, "overtakes are counted", (job_id, after.overtaken))

    def _ahead_of(self, job: Job) -> list[Job]:
        waiting = [each for each in self._grid.engine.records.jobs.values() if each.state.queued]
        ordered = sorted(waiting, key=lambda each: (each.request.priority, each.position))
        return [
            each for each in ordered if (each.request.priority, each.position) < (job.request.priority, job.position)
        ]

    def _stalled(self, job: Job) -> bool:
        """Whether the job waits for a cluster, not for processors."""
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
        """Check that the commitments do not exceed the processors known to be idle."""
        records = self._grid.engine.records
        summaries = {summary.name: summary for summary in self._grid.engine.summaries(self._grid.decided_at)}
        for name in {attempt.cluster for attempt in job.live}:
            summary = summaries[name]
            assert summary.state is not None, "broken: claims are on clusters that are known"
            promise(summary.trouble is None, "claims are on reachable clusters", (job.id, summary.trouble))
            committed = sum(
                processors_taken(each.request, summary.settings)
                for each in records.live(name)
                if each.id.job not in later and tag_of(records.instance, each.id) not in summary.state.allocated
            )
            promise(committed <= summary.state.idle, "no more is committed than is idle", (job.id, name, committed))

    # ---- about the world

    def of_world(self) -> None:
        running: set[tuple[int, int]] = set()
        for cluster in self._grid.clusters.values():
            for trace in cluster.traces.values():
                promise(trace.runs <= 1, "no program runs twice", trace.attempt)
                promise(
                    not trace.runs or trace.attempt in self._released, "a running program was released", trace.attempt
                )
                if trace.running:
                    promise(trace.attempt[:2] not in running, "one attempt runs at a time", trace.attempt)
                    running.add(trace.attempt[:2])

    def of_leave(self, name: str) -> None:
        """Check that nothing of a cluster that has left is in the engine."""
        engine = self._grid.engine
        promise(not engine.records.live(name), "nothing lives on a cluster that has left", name)
        held = [each for each in engine.records.pending_cancels.values() if each.cluster == name]
        promise(not held, "nothing is cancelled on a cluster that has left", held)
        sent = [entry for entry in self._grid.store.load().outbox if getattr(entry.command, "cluster", None) == name]
        promise(not sent, "nothing is sent to a cluster that has left", sent)

    def of_engine(self, kept: Snapshot) -> None:
        """Check that the store holds the engine's records, and that no deadlock and no endless claim remains."""
        records = self._grid.engine.records
        jobs = tuple(job_value(job) for _, job in sorted(records.jobs.items()))
        promise(kept.jobs == jobs, "the store has the jobs")
        promise(
            list(kept.pending_cancels) == [attempt_value(row) for _, row in sorted(records.pending_cancels.items())],
            "the store has the pending cancels",
        )
        promise(kept.counters == records.counters, "the store has the counters")
        indices.check(self._grid.engine, self._grid.settings, self._grid.policies, self._grid.handled_at)
        circle = deadlock.job_to_give_back(self._grid.engine.core)
        promise(circle is None, "no deadlock remains", circle)
        for job in jobs:
            waits = job.state is JobState.CLAIMING and not job.patient
            promise(not waits or barrier.deadline(job, self._grid.settings), "every claim has a deadline", job.id)


def _order(job: Job) -> tuple[int, int]:
    """Return what orders the wait queue."""
    return job.request.priority, job.position
