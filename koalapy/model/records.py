"""The engine's records: work that is not final, pending cancels, counters, and all changes of one step."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from koalapy.model.attempt import Attempt, AttemptRow, attempt_row, attempt_value, replace_launcher_fields
from koalapy.model.change import Change, Snapshot
from koalapy.model.commands import Command, Hint
from koalapy.model.ended_lease import EndedLease, LeaseKey
from koalapy.model.fast_frozen import become
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, LAUNCHERS_END, AttemptId, InstanceId, JobId, launcher_id
from koalapy.model.index import AttemptIndex, Index, Keys, LiveAttempts, PilotIndex, concerned
from koalapy.model.job import Counters, Job, job_row, job_value, replace_counters
from koalapy.model.learned import Learned
from koalapy.model.lease import Lease, Origin, SeenRequest
from koalapy.model.neighbour import Neighbour
from koalapy.model.parameters import ResultBatch
from koalapy.model.pilot import Pilot
from koalapy.model.sent import SentJob
from koalapy.model.states import ATTEMPT_TRANSITIONS, JOB_TRANSITIONS, RELEASED_SINCE_BACKUP, AttemptState, Ending
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.usage import BatchSpan, Usage, usage_of_attempt, usage_of_try
from koalapy.model.work import KIND_OF, KINDS, Flow, Whole, Work

T = TypeVar("T")
# a line of history: job, instant, kind, details, and the attempt and cluster that it is about
_Line = tuple[JobId, Instant, str, dict[str, Any], tuple[AttemptId, str | None] | None]


class Step(Change):
    """The change that one batch of events makes. Commands and hints are carried out once it is committed.

    It has the rows that changed. The copies of them that never change are made when they are first read, since the
    simulator reads few of them. The rows must not have changed meanwhile: once the next batch is handled, RuntimeError
    is raised. To a type checker their properties cannot be assigned, as those of a Change can; nothing assigns them.
    """

    hints: tuple[Hint, ...] = ()

    def __init__(self, records: "Records") -> None:
        """Begin an empty step, which `records` fills. The fields of a Change that it does not set have its defaults."""
        self.commands: Sequence[Command] = ()
        self.ended: list[Job] = []  # the rows of jobs that became final, which do not change any more
        self.number = 0  # among the steps that were taken
        self.rows: dict[JobId, Job] = {}  # of the jobs that changed, or an attempt of theirs
        self.itself: dict[JobId, Job] = {}  # of the jobs that changed
        self.whole_rows: dict[JobId, Whole] = {}  # of the other work that changed
        self.attempt_rows: dict[AttemptId, Attempt] = {}
        self.lines: list[_Line] = []
        self._records = records

    @cached_property
    def jobs(self) -> tuple[Job, ...]:  # type: ignore[override]
        """The jobs that changed, or an attempt of theirs, each with its present attempts."""
        self._check()
        return tuple([job_value(row, self._attempt_values) for row in self.rows.values()])

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:  # type: ignore[override]
        """The sweeps that changed."""
        return self._values(Sweep)

    @cached_property
    def flows(self) -> tuple[Flow, ...]:  # type: ignore[override]
        """The flows that changed."""
        return self._values(Flow)

    @cached_property
    def sent_jobs(self) -> tuple[SentJob, ...]:  # type: ignore[override]
        """The sent jobs that changed."""
        return self._values(SentJob)

    def _values(self, kind: type[T]) -> tuple[T, ...]:
        self._check()
        to_value = KIND_OF[kind].to_value
        return tuple([to_value(row) for row in self.whole_rows.values() if isinstance(row, kind)])

    @cached_property
    def attempts(self) -> tuple[Attempt, ...]:  # type: ignore[override]
        """All attempts that changed."""
        return tuple(self._attempt_values.values())

    @cached_property
    def as_before(self) -> tuple[JobId, ...]:  # type: ignore[override]
        """The ids of jobs of which attempts changed only."""
        return tuple([number for number in self.rows if number not in self.itself])

    @cached_property
    def history(self) -> tuple[History, ...]:  # type: ignore[override]
        return tuple([_history(*line) for line in self.lines])

    @cached_property
    def _attempt_values(self) -> Mapping[AttemptId, Attempt]:
        self._check()
        return {number: attempt_value(row) for number, row in self.attempt_rows.items()}

    def _check(self) -> None:
        if self._records.steps != self.number or self._records.has_changes:
            raise RuntimeError("a step's records must be read before the next batch is handled")


def _in_order(candidates: Iterable[Attempt]) -> tuple[Attempt, ...]:
    return tuple(sorted(candidates, key=lambda each: each.id))


def _history(
    job: JobId, at: Instant, kind: str, details: dict[str, Any], about: tuple[AttemptId, str | None] | None
) -> History:
    if about is not None:
        (_, component, number), cluster = about
        details = {"component": component, "attempt": number, "cluster": cluster, **details}
    return History(job=job, at=at, kind=kind, details=details)


class Records:
    """Work with its attempts, pending cancels and counters. `take` returns the changes since its last call.

    They are rows, which are changed in place and only here. `take` hands out copies that never change, and drops what
    is final, and Launchers that were let go. `indices`, `attempt_indices` and `launcher_indices` of other rooms learn
    of every change, what the snapshot has first. `launchers`: the attempts whose owners are no jobs.
    `jobless`: pending cancels whose owner a repair dropped, so that no history can be noted for them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        indices: Sequence[Index] = (),
        attempt_indices: Sequence[AttemptIndex] = (),
        launcher_indices: Sequence[PilotIndex] = (),
    ) -> None:
        self.instance: InstanceId = snapshot.instance
        self.counters = snapshot.counters
        self.jobs: dict[JobId, Job] = {}
        self.sweeps: dict[JobId, Sweep] = {}
        self.flows: dict[JobId, Flow] = {}
        self.sent_jobs: dict[JobId, SentJob] = {}
        self._whole: dict[str, dict[JobId, Any]] = {
            "sweep": self.sweeps,
            "flow": self.flows,
            "sent-job": self.sent_jobs,
        }
        self.attempts: dict[AttemptId, Attempt] = {}  # of jobs and other owners
        self.launchers: dict[AttemptId, Attempt] = {}
        self.pending_cancels: dict[AttemptId, Attempt] = {}  # also those of earlier tries, and of final jobs
        self.jobless = frozenset(snapshot.jobless)
        self._keys, self._live = Keys(), LiveAttempts()
        self._choosy: dict[str, tuple[Index, ...]] = {}  # by kind of work, those that follow some of it
        self._of_added: dict[str, tuple[Index, ...]] = {}  # by kind of work, as the next two
        self._of_changed: dict[str, tuple[Index, ...]] = {}
        self._of_final: dict[str, tuple[Index, ...]] = {}
        for kind in KINDS:
            of_changed = concerned(indices, "changed", kind.value)
            self._choosy[kind.name] = choosy = concerned(of_changed, "follows", kind.value)
            self._of_changed[kind.name] = tuple(index for index in of_changed if index not in choosy)
            self._of_added[kind.name] = concerned(indices, "added", kind.value)
            self._of_final[kind.name] = concerned(indices, "became_final", kind.value)
        self._followers: dict[JobId, list[Index]] = {}  # by work, those of the choosy that follow it
        self._of_changed_jobs, self._of_final_jobs = self._of_changed["job"], self._of_final["job"]
        self._of_queued, self._of_dropped = concerned(indices, "queued_changed"), concerned(indices, "dropped")
        self._of_attempts = concerned(indices, "attempt_changed")
        self._attempt_indices = tuple(attempt_indices)
        self._launcher_indices = tuple(launcher_indices)
        self.steps = 0
        self._step = Step(self)
        self._commands: list[Command] = []
        self._gathered: dict[str, list[Any]] = {}  # by the fields of the step, of which few steps have any
        self._counters_taken = self.counters
        for work in snapshot.work:
            self._add(KIND_OF[type(work)].to_row(work))
        for launcher in snapshot.launchers:
            self._add_launcher(launcher)
        for each in snapshot.pending_cancels:
            self.pending_cancels[each.id] = self.attempts.get(each.id) or attempt_row(each)
        for attempt in snapshot.jobless:
            object.__setattr__(self.pending_cancels[attempt], "superseded", True)

    # ---- work

    def work(self, identity: JobId) -> Work | None:
        """Return the work of this id; None if it is final, or unknown."""
        found = self.jobs.get(identity) or self.sweeps.get(identity)
        return found or self.flows.get(identity) or self.sent_jobs.get(identity)

    def all_work(self) -> list[Work]:
        """Return all work by id."""
        found: list[Work] = [*self.jobs.values(), *self.sweeps.values()]
        return sorted([*found, *self.flows.values(), *self.sent_jobs.values()], key=lambda work: work.id)

    def add(self, work: Work) -> None:
        """Add new work without attempts, which becomes a row: nobody else may keep it."""
        become(work, KIND_OF[type(work)].row)
        self._add(work)
        if isinstance(work, Job):
            self._step.rows[work.id] = self._step.itself[work.id] = work
        else:
            self._step.whole_rows[work.id] = work

    def _add(self, row: Work) -> None:
        kind = KIND_OF[type(row)].name
        if isinstance(row, Job):
            self.jobs[row.id] = row
            if row.attempts:
                self._begin(row)
        else:
            self._whole[kind][row.id] = row
        if followers := [index for index in self._choosy[kind] if index.follows(row)]:
            self._followers[row.id] = followers
        self._keys.added(row)
        for index in self._of_added[kind]:
            index.added(row)

    def change(self, job: Job, **changes: Any) -> None:
        """Change these fields of a job.

        The usage of a try is entered as the try ends. Raises ValueError for a transition that the table does not have.
        """
        before, after = job.state, changes.get("state")
        if after is not None:
            if after not in JOB_TRANSITIONS[before]:
                raise ValueError(f"job {job.id} cannot go from {before} to {after}")
            if before.active and not after.active:
                self._gathered.setdefault("usage", []).extend(usage_of_try(job, lost=not after.final))
            if after.final:
                self._step.ended.append(job)
        for name, value in changes.items():
            setattr(job, name, value)
        identity = job.id
        step = self._step
        step.rows[identity] = step.itself[identity] = job
        if identity not in self.jobs:
            return
        for index in self._of_changed_jobs:
            index.changed(job, before, changes)
        for index in self._followers.get(identity, ()):
            index.changed(job, before, changes)
        if before.queued or (after is not None and after.queued):
            for index in self._of_queued:
                index.queued_changed(job, before, changes)
        if after is not None and after.final:
            for index in self._of_final_jobs:
                index.became_final(job)

    def change_work(self, work: Work, **changes: Any) -> None:
        """Change these fields of work of any kind. In a final state, no parameter of a sweep is out any more.

        Raises ValueError for a transition that the table of its kind does not have.
        """
        if isinstance(work, Job):
            return self.change(work, **changes)
        kind, before, after = KIND_OF[type(work)], work.state, changes.get("state")
        if after is not None:
            if after not in kind.transitions[before]:
                raise ValueError(f"{kind.name} {work.id} cannot go from {before} to {after}")
            if after.final and isinstance(work, Sweep):
                changes.setdefault("out", ())
        for name, value in changes.items():
            setattr(work, name, value)
        self._step.whole_rows[work.id] = work
        for index in (*self._of_changed[kind.name], *self._followers.get(work.id, ())):
            index.changed(work, before, changes)
        if after is not None and after.final:
            for index in self._of_final[kind.name]:
                index.became_final(work)
        return None

    def change_final(self, job: Job, **changes: Any) -> None:
        """Change these fields of a final job, which is not among the records any more; but never its state."""
        row = self._step.rows.get(job.id) or job_row(job)
        for name, value in changes.items():
            setattr(row, name, value)
        self._step.rows[job.id] = self._step.itself[job.id] = row

    def remove(self, work: Work) -> None:
        """Remove final work, which is not among the records, from the store; its key may be used again."""
        self._gathered.setdefault("removed", []).append(work.id)
        self._keys.removed(work)

    def remove_launcher(self, launcher: Attempt) -> None:
        """Remove a Launcher that was cleaned up, and is not in `launchers` any more, from the store."""
        self._gathered.setdefault("removed", []).append(launcher.id.job)

    def note(self, now: Instant, job: JobId, kind: HistoryKind, **details: Any) -> None:
        self._step.lines.append((job, now, kind, details, None))

    def note_attempt(
        self, now: Instant, attempt: AttemptId, cluster: str | None, kind: HistoryKind, **details: Any
    ) -> None:
        """Add a line about an attempt to its job's history."""
        self._step.lines.append((attempt.job, now, kind, details, (attempt, cluster)))

    def result(self, batch: ResultBatch) -> None:
        self._gathered.setdefault("results", []).append(batch)

    def learn(self, learned: Learned) -> None:
        """Replace what was learned before."""
        self._step.learned = learned

    def use(self, entries: Iterable[Usage]) -> None:
        """Enter the usage of a Launcher that was let go. That of a try is entered as the try ends."""
        self._gathered.setdefault("usage", []).extend(entries)

    def account(self, span: BatchSpan) -> None:
        """Replace the estimated usage of an attempt; without a usage entry of the attempt, nothing happens."""
        self._gathered.setdefault("accounted", []).append(span)

    def note_pilots(self, pilots: Iterable[Pilot]) -> None:
        """Replace the records of these pilots, or remove those of pilots that have ended."""
        self._gathered.setdefault("pilots", []).extend(pilots)

    def note_neighbours(self, neighbours: Mapping[str, Neighbour]) -> None:
        """Replace the records of these neighbours, or remove those of neighbours that are gone."""
        noted = {each.name: each for each in self._step.neighbours} | dict(neighbours)
        self._step.neighbours = tuple(noted.values())

    def note_leases(self, leases: Iterable[Lease]) -> None:
        """Replace the records of these leases, or remove those of leases that are gone."""
        self._gathered.setdefault("leases", []).extend(leases)

    def see_request(self, seen: SeenRequest) -> None:
        """Keep a request of a neighbour, which this site sees for the first time."""
        self._gathered.setdefault("requests_seen", []).append(seen)

    def forget_request(self, origin: Origin) -> None:
        self._gathered.setdefault("requests_forgotten", []).append(origin)

    def end_lease(self, ended: EndedLease) -> None:
        """Keep the account of a lease that has ended."""
        self._gathered.setdefault("leases_ended", []).append(ended)

    def remove_lease(self, key: LeaseKey) -> None:
        """Replace the account of a lease by its part in the sums by day."""
        self._gathered.setdefault("leases_removed", []).append(key)

    def command(self, command: Command) -> None:
        self._commands.append(command)

    def hint(self, hint: Hint) -> None:
        self._gathered.setdefault("hints", []).append(hint)

    def new_place(self) -> tuple[JobId, int] | None:
        """Return an id that no work has had, and the next position at the tail of the wait queue.

        None if all ids below those of Launchers are used up.
        """
        counters = self.counters
        number, position = counters.next_job, counters.next_position
        if number >= FIRST_LAUNCHER:
            return None
        self.counters = replace_counters(counters, {"next_job": number + 1, "next_position": position + 1})
        self._gathered.setdefault("new", []).append(number)
        return JobId(number), position

    def new_launcher_id(self) -> AttemptId | None:
        """Return an id that no Launcher has had; None if all are used up."""
        number = self.counters.next_launcher
        if number >= LAUNCHERS_END:
            return None
        self.counters = replace_counters(self.counters, {"next_launcher": number + 1})
        return launcher_id(number)

    def count(self, counters: Counters) -> None:
        self.counters = counters

    def new_tail_position(self) -> int:
        """Return the next position at the tail of the wait queue."""
        position = self.counters.next_position
        self.counters = replace_counters(self.counters, {"next_position": position + 1})
        return position

    def has_key(self, owner: str, key: str) -> bool:
        """Return whether some work has this key, or ended so lately that its client may still repeat the key."""
        return (owner, key) in self._keys

    # ---- attempts

    def begin(self, job: Job, attempts: Sequence[Attempt | None], **changes: Any) -> None:
        """Change the job with these attempts of its components, which begin their lives. Raises as `change` does.

        The attempts become rows: nobody else may keep them.
        """
        rows = [each for each in attempts if each is not None]
        for each in rows:
            become(each, AttemptRow)
        self.change(job, attempts=tuple(attempts), **changes)
        self._begin(job)
        for each in rows:
            self._step.attempt_rows[each.id] = each

    def _begin(self, job: Job) -> None:
        for attempt in job.all_attempts:
            self._begin_attempt(job, attempt)

    def _begin_attempt(self, job: Job, attempt: Attempt) -> None:
        self.attempts[attempt.id] = attempt
        if not attempt.let_go:
            self._live.began(attempt)
            for index in self._attempt_indices:
                index.began(job, attempt)

    def follow(self, job: Job, attempt: Attempt, following: Attempt) -> None:
        """Let another attempt of the same component follow one of which its job waits for nothing any more.

        The usage of the earlier one is entered. Raises ValueError for an attempt that was not let go.
        """
        self._check_let_go(attempt)
        component = following.id.component
        self._gathered.setdefault("usage", []).extend(usage_of_attempt(job, attempt))
        become(following, AttemptRow)
        attempts, numbers = list(job.attempts), list(job.numbers)
        attempts[component], numbers[component] = following, following.id.number
        self.change(job, attempts=tuple(attempts), numbers=tuple(numbers))
        self._drop_attempts((attempt,))
        self._set(attempt, {"superseded": True})
        self._begin_attempt(job, following)
        self._step.attempt_rows[following.id] = following

    def race(self, job: Job, candidate: Attempt) -> None:
        """Add a candidate of a component, whose number is the component's next one."""
        become(candidate, AttemptRow)
        numbers = list(job.numbers)
        numbers[candidate.id.component] = candidate.id.number
        self.change(job, candidates=_in_order((*job.candidates, candidate)), numbers=tuple(numbers))
        self._begin_attempt(job, candidate)
        self._step.attempt_rows[candidate.id] = candidate

    def lead(self, job: Job, candidate: Attempt) -> None:
        """Make a candidate its component's present attempt, which becomes a candidate in its place."""
        attempts, component = list(job.attempts), candidate.id.component
        former, attempts[component] = attempts[component], candidate
        assert former is not None
        others = [each for each in job.candidates if each is not candidate]
        self.change(job, attempts=tuple(attempts), candidates=_in_order((*others, former)))
        for each, is_candidate in ((candidate, False), (former, True)):
            live = self._live.let_go(each)
            self._set(each, {"candidate": is_candidate})
            if live:
                self._live.began(each)

    def drop_candidate(self, job: Job, candidate: Attempt) -> None:
        """Drop a candidate of which its job waits for nothing any more, and enter its usage.

        Raises ValueError for an attempt that was not let go.
        """
        self._check_let_go(candidate)
        self._gathered.setdefault("usage", []).extend(usage_of_attempt(job, candidate))
        self.change(job, candidates=tuple([each for each in job.candidates if each is not candidate]))
        self._drop_attempts((candidate,))
        self._set(candidate, {"superseded": True})

    def add_launcher(self, launcher: Attempt) -> Attempt:
        """Add a new Launcher, and return its row. Its id is a new one (`new_launcher_id`)."""
        row = self._add_launcher(launcher)
        self._step.attempt_rows[row.id] = row
        return row

    def _add_launcher(self, launcher: Attempt) -> Attempt:
        row = self.attempts[launcher.id] = self.launchers[launcher.id] = attempt_row(launcher)
        self._live.began(row)
        for index in self._attempt_indices:
            index.began(None, row)
        for each in self._launcher_indices:
            each.added(row)
        return row

    def change_launcher(self, launcher: Attempt, **changes: Any) -> None:
        """Change these fields that only a Launcher has. Raises ValueError for an attempt of a job."""
        if launcher.launcher is None:
            raise ValueError(f"attempt {launcher.id} is of a job")
        self._set(launcher, {"launcher": replace_launcher_fields(launcher.launcher, changes)})

    def end_try(self, job: Job, **changes: Any) -> None:
        """Change the job, which is to be tried again without its attempts; pending cancels of them stay.

        Raises as `change` does.
        """
        tried = job.all_attempts
        self.change(job, attempts=(), candidates=(), **changes)
        self._drop_attempts(tried)
        for attempt in tried:
            self._set(attempt, {"superseded": True})

    def _check_let_go(self, attempt: Attempt) -> None:
        if not attempt.let_go:
            raise ValueError(f"attempt {attempt.id} is {attempt.state}")

    def _drop_attempts(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            del self.attempts[attempt.id]

    def change_attempt(self, attempt: Attempt, **changes: Any) -> None:
        """Change these fields of an attempt. Raises ValueError for a transition that the table does not have."""
        state = changes.get("state")
        if state is not None and state not in ATTEMPT_TRANSITIONS[attempt.state]:
            raise ValueError(f"attempt {attempt.id} cannot go from {attempt.state} to {state}")
        self._set(attempt, changes)

    def find_released(self, attempt: Attempt, released_at: Instant) -> None:
        """Change the attempt to released, in a store that was restored from a backup and does not know it.

        Raises ValueError for an attempt that cannot have been released since.
        """
        if attempt.state not in RELEASED_SINCE_BACKUP:
            raise ValueError(f"attempt {attempt.id} is {attempt.state}")
        self._set(attempt, {"state": AttemptState.RELEASED, "released_at": released_at})

    def clean_up(self, attempt: Attempt, now: Instant) -> None:
        """Change the attempt to cleaned up; one that has not ended ends as cancelled."""
        self._end_as_cancelled(attempt, now)
        self.change_attempt(attempt, state=AttemptState.CLEANED_UP)

    def detach(self, attempt: Attempt, now: Instant) -> None:
        """Make the attempt a pending cancel; one that has not ended ends as cancelled."""
        self._end_as_cancelled(attempt, now)
        self.change_attempt(attempt, detached_at=now)

    def _end_as_cancelled(self, attempt: Attempt, now: Instant) -> None:
        if not attempt.state.ended:
            ended_at = attempt.ended_at or now
            self.change_attempt(attempt, state=AttemptState.ENDED, ending=Ending.CANCELLED, ended_at=ended_at)

    def _set(self, attempt: Attempt, changes: Mapping[str, Any]) -> None:
        for name, value in changes.items():
            setattr(attempt, name, value)
        identity = attempt.id
        self._step.attempt_rows[identity] = attempt
        if attempt.detached_at is not None:
            self._enter_pending_cancel(attempt)
        if identity not in self.attempts:
            return
        if attempt.let_go and self._live.let_go(attempt):
            for each in self._attempt_indices:
                each.let_go(attempt)
        if attempt.launcher is not None:
            for launcher_index in self._launcher_indices:
                launcher_index.changed(attempt, changes)
            return
        number = identity.job
        job = self._step.rows[number] = self.jobs[number]
        for index in self._of_attempts:
            index.attempt_changed(job, attempt, changes)

    def _enter_pending_cancel(self, attempt: Attempt) -> None:
        if attempt.is_pending_cancel:
            self.pending_cancels[attempt.id] = attempt
        else:
            self.pending_cancels.pop(attempt.id, None)

    def attempt(self, attempt: AttemptId) -> Attempt | None:
        """Return a present attempt; None for an earlier one."""
        return self.attempts.get(attempt)

    def attempt_or_pending_cancel(self, attempt: AttemptId) -> Attempt | None:
        """Return a present attempt, or the pending cancel of an earlier one or of a final job."""
        return self.attempts.get(attempt) or self.pending_cancels.get(attempt)

    def candidates_on(self, cluster: str) -> list[Attempt]:
        """Return the candidates on the cluster that are neither cleaned up nor detached."""
        return list(self._live.candidates.get(cluster, {}).values())

    def live(self, cluster: str) -> list[Attempt]:
        """Return the attempts on the cluster that are neither cleaned up nor detached, in order."""
        return self._live.on(cluster)

    @property
    def has_changes(self) -> bool:
        """Return whether work or an attempt has changed since the last call of `take`."""
        step = self._step
        return bool(step.rows or step.attempt_rows or step.whole_rows)

    def take(self) -> Step:
        """Return the step, and begin the next one."""
        step = self._step
        step.number = self.steps = self.steps + 1
        if self._commands:
            step.commands, self._commands = tuple(self._commands), []
        if self._gathered:
            for name, found in self._gathered.items():
                setattr(step, name, tuple(found))
            self._gathered = {}
        if self.counters is not self._counters_taken:
            step.counters = self._counters_taken = self.counters
        for job in step.ended:
            self._drop(job)
        for work in step.whole_rows.values():
            if work.state.final:
                del self._whole[KIND_OF[type(work)].name][work.id]
                self._followers.pop(work.id, None)
                self._keys.dropped(work)
        for attempt in step.attempt_rows.values() if self.launchers else ():
            if attempt.let_go and attempt.id in self.launchers:
                del self.launchers[attempt.id], self.attempts[attempt.id]
        self._step = Step(self)
        return step

    def _drop(self, job: Job) -> None:
        del self.jobs[job.id]
        self._followers.pop(job.id, None)
        self._drop_attempts(job.all_attempts)
        self._keys.dropped(job)
        for index in self._of_dropped:
            index.dropped(job)
