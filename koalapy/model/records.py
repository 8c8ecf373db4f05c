"""The engine's records: jobs that are not final, pending cancels and counters, with all changes of one step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from koalapy.model.change import Snapshot
from koalapy.model.commands import Command, Hint
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import FIRST_LAUNCHER, MAX_JOBS, AttemptId, InstanceId, JobId
from koalapy.model.index import Index, Keys, LifeIndex, LiveAttempts, moves_of
from koalapy.model.job import Component, Counters, Debt, History, Job, replace_counters
from koalapy.model.learned import Learned
from koalapy.model.sweep import ResultBatch
from koalapy.model.units import Instant
from koalapy.model.usage import BatchSpan, Usage, usage_of_try


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one batch of events. Commands and hints are carried out once the rest is committed."""

    commands: tuple[Command, ...] = ()
    hints: tuple[Hint, ...] = ()
    jobs: tuple[Job, ...] = ()
    debts: tuple[Debt, ...] = ()
    settled: tuple[AttemptId, ...] = ()
    counters: Counters | None = None
    history: tuple[History, ...] = ()
    results: tuple[ResultBatch, ...] = ()
    learned: Learned | None = None
    usage: tuple[Usage, ...] = ()
    accounted: tuple[BatchSpan, ...] = ()
    new: tuple[JobId, ...] = ()  # ids given out for the first time
    removed: tuple[JobId, ...] = ()  # pruned jobs


class Records:
    """Jobs, pending cancels and counters. `take` returns the changes since its last call, and drops final jobs.

    `indices` and `life_indices` of other rooms receive every change of a job, the snapshot's jobs first, as those of
    the records do.
    """

    def __init__(
        self, snapshot: Snapshot, indices: Sequence[Index] = (), life_indices: Sequence[LifeIndex] = ()
    ) -> None:
        self.instance: InstanceId = snapshot.instance
        self.counters = snapshot.counters
        self.jobs: dict[JobId, Job] = {}
        self.debts: dict[AttemptId, Debt] = {debt.attempt: debt for debt in snapshot.debts}
        self._keys, self._live = Keys(), LiveAttempts()
        self._indices = tuple(indices)
        self._life_indices: tuple[LifeIndex, ...] = (self._live, *life_indices)
        self._clear()
        for job in snapshot.jobs:
            self.jobs[job.id] = job
            self._update_indices(None, job)

    def put(self, job: Job) -> Job:
        """Put the job in place of its earlier version. The usage of a try is entered as the try ends."""
        before = self.jobs.get(job.id)
        if before is not None and before.state.active and not job.state.active:
            self._usage += usage_of_try(before, job)
        self.jobs[job.id] = self._changed[job.id] = job
        self._update_indices(before, job)
        return job

    def remove(self, job: Job) -> None:
        """Remove a final job, which is not in `jobs` any more, from the store; its key may be used again."""
        self._removed.append(job.id)
        self._keys.removed(job)

    def note(self, now: Instant, job: JobId, kind: str, **details: Any) -> None:
        self._history.append(History(job=job, at=now, kind=kind, details=details))

    def note_attempt(self, now: Instant, attempt: AttemptId, cluster: str | None, kind: str, **details: Any) -> None:
        """Add a line about an attempt to its job's history."""
        where = {"component": attempt.component, "attempt": attempt.number, "cluster": cluster}
        self._history.append(History(job=attempt.job, at=now, kind=kind, details=where | details))

    def result(self, batch: ResultBatch) -> None:
        self._results.append(batch)

    def learn(self, learned: Learned) -> None:
        """Replace what was learned before."""
        self._learned: Learned | None = learned

    def account(self, span: BatchSpan) -> None:
        """Replace the estimated usage of an attempt; without a usage entry of the attempt, nothing happens."""
        self._accounted.append(span)

    def command(self, command: Command) -> None:
        self._commands.append(command)

    def hint(self, hint: Hint) -> None:
        self._hints.append(hint)

    def owe(self, debt: Debt) -> None:
        self.debts[debt.attempt] = debt
        self._debts[debt.attempt] = debt

    def settle(self, attempt: AttemptId) -> Debt | None:
        """Remove the pending cancel of an attempt and return it; None if there was none."""
        debt = self.debts.pop(attempt, None)
        if debt is not None:
            self._settled.append(attempt)
            self._debts.pop(attempt, None)
        return debt

    def new_job_id(self) -> JobId | None:
        """Return an id that no job has had; None if all are used up, as the next would be a Launcher's."""
        number = self.counters.next_job
        if number >= FIRST_LAUNCHER:
            return None
        self.counters = replace_counters(self.counters, {"next_job": number + 1})
        return self._given(number)

    def new_launcher_id(self) -> JobId | None:
        """Return an id that no Launcher has had; None if all are used up, as the next would not fit into a tag."""
        number = self.counters.next_launcher
        if number >= MAX_JOBS:
            return None
        self.counters = replace_counters(self.counters, {"next_launcher": number + 1})
        return self._given(number)

    def _given(self, number: int) -> JobId:
        self._counted = True
        self._new.append(JobId(number))
        return JobId(number)

    def count(self, counters: Counters) -> None:
        self.counters = counters
        self._counted = True

    def new_tail_position(self) -> int:
        """Return the next position at the tail of the wait queue."""
        position = self.counters.next_position
        self.counters = replace_counters(self.counters, {"next_position": position + 1})
        self._counted = True
        return position

    def has_key(self, owner: str, key: str) -> bool:
        """Return whether a job of this key exists, or ended so lately that somebody may still ask for it by the key."""
        return (owner, key) in self._keys

    def attempt(self, attempt: AttemptId) -> Component | None:
        """Return the component whose present attempt this is; None for an earlier attempt."""
        found = self.component(attempt)
        return found[1] if found is not None else None

    def put_attempt(self, attempt: AttemptId, after: Component) -> Component:
        """Put the new version of a present attempt in place of the earlier one."""
        self.put(self.jobs[attempt.job].with_component(after))
        return after

    def component(self, attempt: AttemptId) -> tuple[Job, Component] | None:
        """Return the job and component whose present attempt this is; None for an earlier attempt."""
        job = self.jobs.get(attempt.job)
        if job is None or not attempt.component < len(job.components):
            return None
        component = job.components[attempt.component]
        return (job, component) if component.attempt == attempt.number else None

    def live(self, cluster: str) -> Iterator[tuple[Job, Component]]:
        """Yield the job and component of every attempt that may have a batch job on the cluster, in order.

        Pending cancels are left out.
        """
        for attempt in self._live.on(cluster):
            job = self.jobs[attempt.job]
            yield job, job.components[attempt.component]

    def take(self) -> Step:
        step = Step(
            commands=tuple(self._commands),
            hints=tuple(self._hints),
            jobs=tuple(self._changed.values()),
            debts=tuple(self._debts.values()),
            settled=tuple(self._settled),
            counters=self.counters if self._counted else None,
            history=tuple(self._history),
            results=tuple(self._results),
            learned=self._learned,
            usage=tuple(self._usage),
            accounted=tuple(self._accounted),
            new=tuple(self._new),
            removed=tuple(self._removed),
        )
        for job in step.jobs:
            if job.state.final:
                self._forget(job)
        self._clear()
        return step

    def _forget(self, job: Job) -> None:
        del self.jobs[job.id]
        self._update_indices(job, None)

    def _update_indices(self, before: Job | None, after: Job | None) -> None:
        if before is None or after is None:
            self._keys.changed(before, after)
        for index in self._indices:
            index.changed(before, after)
        moves = moves_of(before, after)
        job = before if after is None else after
        if moves and job is not None:
            for each in self._life_indices:
                each.apply(moves, job)

    def _clear(self) -> None:
        self._changed: dict[JobId, Job] = {}
        self._commands: list[Command] = []
        self._hints: list[Hint] = []
        self._history: list[History] = []
        self._results: list[ResultBatch] = []
        self._learned = None
        self._usage: list[Usage] = []
        self._accounted: list[BatchSpan] = []
        self._debts: dict[AttemptId, Debt] = {}
        self._settled: list[AttemptId] = []
        self._counted = False
        self._new: list[JobId] = []
        self._removed: list[JobId] = []
