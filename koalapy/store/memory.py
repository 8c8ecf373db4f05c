"""The store without a disk, for the simulated world and for tests. It keeps the contract, but does not survive."""

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from koalapy.model.attempt import Attempt, Owner, OwnerKind
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.ended_lease import Charged, EndedLease, LeaseDay, LeaseKey, lease_days
from koalapy.model.errors import RequestError
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.model.job import Counters, Job, with_attempts, without_attempts
from koalapy.model.learned import NOTHING, Learned
from koalapy.model.lease import Lease, LeaseId, Origin, SeenRequest
from koalapy.model.neighbour import Neighbour
from koalapy.model.parameters import ResultBatch
from koalapy.model.pilot import Pilot
from koalapy.model.sent import SentJob
from koalapy.model.states import JobState, LeaseState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.unreadable import Unreadable
from koalapy.model.usage import DayUsage, Sum, Usage, accounted, by_days
from koalapy.model.work import Flow, Work
from koalapy.store.contract import MaintenanceRun, StoreConflict, StoreError, StoreLocked
from koalapy.store.identity import new_instance
from koalapy.store.records import dump_details, load_details
from koalapy.store.validation import refuse_invalid


class _Line(NamedTuple):
    """A line of history. Its details are text, as in a database, so that they cannot be changed afterwards."""

    at: Instant
    kind: str
    details: str


@dataclass(slots=True)
class _Contents:
    """The contents that all openers of one store share."""

    instance: InstanceId
    epoch: int = 0
    last_number: int = 0
    counters: Counters = Counters()
    work: dict[JobId, Work] = field(default_factory=dict)  # without attempts
    identities: dict[JobId, tuple[str, str]] = field(default_factory=dict)  # of Launchers too: (owner, key) or no texts
    keys: dict[tuple[str, str], JobId] = field(default_factory=dict)
    attempts: dict[JobId, dict[AttemptId, Attempt]] = field(default_factory=dict)
    outbox: dict[int, OutboxEntry] = field(default_factory=dict)
    history: dict[JobId, list[_Line]] = field(default_factory=dict)
    results: list[ResultBatch | None] = field(default_factory=list)  # None for a removed sweep
    learned: Learned = NOTHING
    pilots: dict[JobId, Pilot] = field(default_factory=dict)
    neighbours: dict[str, Neighbour] = field(default_factory=dict)
    requests_seen: dict[Origin, SeenRequest] = field(default_factory=dict)
    usage: dict[AttemptId, Usage] = field(default_factory=dict)
    days: dict[tuple[Instant, str, str], Sum] = field(default_factory=dict)
    leases: dict[LeaseId, Lease] = field(default_factory=dict)
    ended_leases: dict[LeaseKey, EndedLease] = field(default_factory=dict)
    lease_days: dict[tuple[Instant, str], Charged] = field(default_factory=dict)
    maintenance: dict[str, MaintenanceRun] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def whole(self, work: Work) -> Work:
        """Return the work, with its present attempts if it is a job."""
        return with_attempts(work, self.attempts.get(work.id, {}).values()) if isinstance(work, Job) else work

    def pending_cancels(self) -> list[Attempt]:
        """Return the pending cancels by attempt."""
        return [each for each in self._in_order() if each.is_pending_cancel]

    def launchers(self) -> list[Attempt]:
        """Return the Launchers of all owners by number."""
        return [each for each in self._in_order() if each.launcher is not None]

    def is_pruned(self, number: JobId) -> bool:
        """Return whether only the directories of this job or Launcher were pruned."""
        return any(line.kind == HistoryKind.OUTPUT_PRUNED for line in self.history.get(number, ()))

    def _in_order(self) -> list[Attempt]:
        attempts = (each for of_job in self.attempts.values() for each in of_job.values())
        return sorted(attempts, key=lambda each: each.id)


class MemoryStore:
    """A store that begins empty. A simulation names the instance, so that its runs are alike."""

    def __init__(self, instance: InstanceId | None = None, *, _contents: _Contents | None = None) -> None:
        self._contents = _contents or _Contents(instance or new_instance())
        self._closed = False
        with self._contents.guard:
            self._contents.epoch += 1
            self._epoch = self._contents.epoch

    def reopened(self) -> "MemoryStore":
        """Return the same store, opened by the next koalad; this opener may not commit any more."""
        return MemoryStore(_contents=self._contents)

    @property
    def instance(self) -> InstanceId:
        return self._contents.instance

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def next_number(self) -> int:
        return self._contents.last_number + 1

    def load(self) -> Snapshot:
        with self._open() as contents:
            work = [contents.whole(each) for _, each in sorted(contents.work.items()) if not each.state.final]
            return Snapshot(
                instance=contents.instance,
                counters=contents.counters,
                jobs=tuple(each for each in work if isinstance(each, Job)),
                sweeps=tuple(each for each in work if isinstance(each, Sweep)),
                flows=tuple(each for each in work if isinstance(each, Flow)),
                sent_jobs=tuple(each for each in work if isinstance(each, SentJob)),
                pending_cancels=(pending := tuple(contents.pending_cancels())),
                jobless=tuple(each.id for each in pending if each.id.job not in contents.identities),
                launchers=tuple(each for each in contents.launchers() if not each.let_go),
                pilots=tuple(each for _, each in sorted(contents.pilots.items())),
                outbox=tuple(entry for _, entry in sorted(contents.outbox.items())),
                learned=contents.learned,
                neighbours=tuple(each for _, each in sorted(contents.neighbours.items())),
                leases=tuple(sorted(contents.leases.values(), key=lambda each: (not each.lent, each.id))),
                requests_seen=tuple(sorted(contents.requests_seen.values(), key=lambda each: (each.at, each.origin))),
            )

    def unreadable(self) -> list[Unreadable]:
        """Return an empty list: the records are never written down."""
        return []

    def commit(self, change: Change) -> None:
        if change.empty:
            return
        refuse_invalid(change)
        lines = [(line.job, _Line(line.at, line.kind, dump_details(line.details))) for line in change.history]
        with self._open() as contents:
            self._refuse_unless_ours(contents)
            _refuse_conflicts(contents, change)
            _add(contents, change, lines)
            _take_away(contents, change)
            if change.epoch_jump is not None:
                self._epoch = contents.epoch = change.epoch_jump.epoch
                contents.last_number = max(contents.last_number, change.epoch_jump.last_number)

    def check(self) -> None:
        with self._open() as contents:
            self._refuse_unless_ours(contents)

    def jobs(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Job]:
        return [each for each in self.all_work(states, ids) if isinstance(each, Job)]

    def sweeps(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Sweep]:
        return [each for each in self.all_work(states, ids) if isinstance(each, Sweep)]

    def all_work(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Work]:
        with self._open() as contents:
            wanted = sorted(contents.work if ids is None else set(ids) & contents.work.keys())
            found = [contents.work[each] for each in wanted]
            return [contents.whole(each) for each in found if states is None or each.state in states]

    def prunable(self, before: Instant, most: int, after: JobId, records: bool) -> list[Work]:
        with self._open() as contents:
            owners = {each.owner for each in contents.launchers()}
            final = [each for _, each in sorted(contents.work.items()) if each.id > after and _was_final(each, before)]
            kept = [each for each in final if Owner(OwnerKind.SWEEP, each.id) not in owners]
            found = [each for each in kept if records or not contents.is_pruned(each.id)]
            return [contents.whole(each) for each in found[:most]]

    def prunable_launchers(self, before: Instant, most: int, after: JobId, records: bool) -> list[Attempt]:
        with self._open() as contents:
            final = {Owner(OwnerKind.SWEEP, each.id) for each in contents.work.values() if _was_final(each, before)}
            found = [
                each for each in contents.launchers() if each.owner in final and each.id.job > after and each.let_go
            ]
            return [each for each in found if records or not contents.is_pruned(each.id.job)][:most]

    def launchers_of(self, sweep: JobId) -> list[Attempt]:
        with self._open() as contents:
            return [each for each in contents.launchers() if each.owner == Owner(OwnerKind.SWEEP, sweep)]

    def launcher(self, launcher: AttemptId) -> Attempt | None:
        with self._open() as contents:
            return next((each for each in contents.launchers() if each.id == launcher), None)

    def job(self, job_id: JobId) -> Job | None:
        found = self.work(job_id)
        return found if isinstance(found, Job) else None

    def sweep(self, sweep: JobId) -> Sweep | None:
        found = self.work(sweep)
        return found if isinstance(found, Sweep) else None

    def work(self, identity: JobId) -> Work | None:
        with self._open() as contents:
            found = contents.work.get(identity)
            return None if found is None else contents.whole(found)

    def id_of_key(self, owner: str, key: str) -> JobId | None:
        with self._open() as contents:
            return contents.keys.get((owner, key))

    def ids_of_keys(self, owner: str, keys: Collection[str]) -> dict[str, JobId]:
        with self._open() as contents:
            return {key: contents.keys[owner, key] for key in keys if (owner, key) in contents.keys}

    def history(self, job_id: JobId) -> list[History]:
        with self._open() as contents:
            lines = list(contents.history.get(job_id, ()))
        return [History(job=job_id, at=at, kind=kind, details=load_details(text)) for at, kind, text in lines]

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]:
        with self._open() as contents:
            kept = [
                (sequence, batch)
                for sequence, batch in enumerate(contents.results, start=1)
                if sequence > after and batch is not None and batch.sweep == sweep
            ]
        yield from kept

    def result(self, sweep: JobId, number: int) -> ResultBatch | None:
        return next(filter(None, (batch.only(number) for _, batch in self.results(sweep))), None)

    def usage(self, since: Instant | None = None) -> list[Usage]:
        return self.used(since)[0]

    def used(self, since: Instant | None = None) -> tuple[list[Usage], list[DayUsage]]:
        with self._open() as contents:
            entries = [each for _, each in sorted(contents.usage.items()) if since is None or each.ended_at > since]
            days = [
                DayUsage(day=day, owner=owner, cluster=cluster, used=used)
                for (day, owner, cluster), used in sorted(contents.days.items())
            ]
            return entries, days

    def ended_leases(self, since: Instant | None = None) -> tuple[list[EndedLease], list[LeaseDay]]:
        with self._open() as contents:
            days = [
                LeaseDay(day=day, neighbour=neighbour, charged=charged)
                for (day, neighbour), charged in sorted(contents.lease_days.items())
            ]
            return [each for each in _by_end(contents) if since is None or each.ended_at > since], days

    def prunable_leases(self, before: Instant, most: int) -> list[LeaseKey]:
        with self._open() as contents:
            return [each.key for each in _by_end(contents) if each.ended_at <= before][:most]

    def pending_cancels(self) -> list[Attempt]:
        with self._open() as contents:
            return contents.pending_cancels()

    def maintenance(self) -> list[MaintenanceRun]:
        with self._open() as contents:
            return [run for _, run in sorted(contents.maintenance.items())]

    def record_maintenance(self, run: MaintenanceRun) -> None:
        with self._open() as contents:
            self._refuse_unless_ours(contents)
            contents.maintenance[run.name] = run

    def back_up(self, path: Path) -> None:
        """Refuse a backup. Raises RequestError."""
        raise RequestError("no_backup", "A store in memory has no backup.", "Use a store in a file.")

    def compact(self) -> None:
        """Refuse to give room back. Raises RequestError."""
        raise RequestError("no_vacuum", "A store in memory has no room to give back.", "Remove the task.")

    def close(self) -> None:
        self._closed = True

    def _refuse_unless_ours(self, contents: _Contents) -> None:
        if self._epoch != contents.epoch:
            raise StoreLocked("store_taken_over", "Another koalad has taken over the store.", "This koalad must end.")

    @contextmanager
    def _open(self) -> Iterator[_Contents]:
        if self._closed:
            raise StoreError("store_closed", "The store in memory is closed.", "Open it again.")
        with self._contents.guard:
            yield self._contents


def _refuse_conflicts(contents: _Contents, change: Change) -> None:
    """Refuse all that a database's constraints refuse. Raises StoreConflict. After it nothing can fail."""
    new = [each.id for each in _latest(change) if each.id in change.new]
    if taken := [each for each in new if each in contents.identities or new.count(each) > 1]:
        raise _conflict(f"the id {min(taken)} is in use")
    _refuse_keys(contents, change)
    numbers = Counter(entry.number for entry in change.sent)
    if any(count > 1 or number in contents.outbox for number, count in numbers.items()):
        raise _conflict("a number of the outbox is in use")
    work = contents.work.keys() | {each.id for each in _latest(change)}
    for batch in change.results:
        if batch.sweep not in work:
            raise _conflict(f"there are results, but no sweep {batch.sweep}")
    known = contents.identities.keys() | {each.id for each in _latest(change)}
    known |= {each.id.job for each in change.attempts if each.launcher is not None}
    for line in change.history:
        if line.job not in known:
            raise _conflict(f"there is history, but no job, sweep or Launcher {line.job}")


def _refuse_keys(contents: _Contents, change: Change) -> None:
    """Refuse a key that another job or sweep has. Raises StoreConflict."""
    holders = dict(contents.keys)
    for each in _latest(change):
        if each.id in contents.identities or not each.key:
            continue
        if holders.setdefault((each.owner, each.key), each.id) != each.id:
            raise _conflict(f"the key of job {each.id} is another job's")


def _add(contents: _Contents, change: Change, lines: list[tuple[JobId, _Line]]) -> None:
    for each in _latest(change):
        if each.id not in contents.identities:
            contents.identities[each.id] = (each.owner, each.key) if each.key else ("", "")
            contents.keys |= {(each.owner, each.key): each.id} if each.key else {}
        contents.work[each.id] = without_attempts(each) if isinstance(each, Job) else each
    for attempt in change.attempts:
        if attempt.launcher is not None:
            contents.identities.setdefault(attempt.id.job, ("", ""))
        of_job = contents.attempts.setdefault(attempt.id.job, {})
        of_job.pop(attempt.id, None)
        if not attempt.is_obsolete:
            of_job[attempt.id] = attempt
    contents.counters = change.counters or contents.counters
    contents.outbox |= {entry.number: entry for entry in change.sent}
    contents.last_number = max(contents.last_number, *(entry.number for entry in change.sent), 0)
    for job_id, line in lines:
        contents.history.setdefault(job_id, []).append(line)
    contents.results += change.results
    contents.learned = change.learned or contents.learned
    for pilot in change.pilots:
        contents.pilots.pop(pilot.id, None)
        if not pilot.state.final:
            contents.pilots[pilot.id] = pilot
    for neighbour in change.neighbours:
        contents.neighbours.pop(neighbour.name, None)
        if not neighbour.gone:
            contents.neighbours[neighbour.name] = neighbour
    for lease in change.leases:
        contents.leases.pop(lease.id, None)
        if lease.state is not LeaseState.GONE:
            contents.leases[lease.id] = lease
    for origin in change.requests_forgotten:
        contents.requests_seen.pop(origin, None)
    contents.requests_seen |= {each.origin: each for each in change.requests_seen}
    contents.usage |= {entry.attempt: entry for entry in change.usage}
    contents.ended_leases |= {each.key: each for each in change.leases_ended}
    for span in change.accounted:
        if span.attempt in contents.usage:
            contents.usage[span.attempt] = accounted(contents.usage[span.attempt], span)


def _take_away(contents: _Contents, change: Change) -> None:
    for number in change.confirmed:
        contents.outbox.pop(number, None)
    for job_id in change.removed:
        gone = {job_id}
        gone |= {each.id.job for each in contents.launchers() if each.owner == Owner(OwnerKind.SWEEP, job_id)}
        for each in gone:
            contents.keys.pop(contents.identities.pop(each, ("", "")), None)
            contents.work.pop(each, None)
            pending = {number: one for number, one in contents.attempts.pop(each, {}).items() if one.is_pending_cancel}
            contents.attempts |= {each: pending} if pending else {}
            contents.history.pop(each, None)
        _sum_up(contents, gone)
        contents.results = [None if batch and batch.sweep in gone else batch for batch in contents.results]
    _sum_up_leases(contents, change.leases_removed)


def _sum_up(contents: _Contents, gone: Collection[JobId]) -> None:
    """Replace the usage entries of these jobs by sums by day, user and cluster."""
    entries = [entry for attempt, entry in contents.usage.items() if attempt.job in gone]
    for each in by_days(entries):
        key = (each.day, each.owner, each.cluster)
        contents.days[key] = contents.days.get(key, Sum()).plus(each.used)
    for entry in entries:
        del contents.usage[entry.attempt]


def _by_end(contents: _Contents) -> list[EndedLease]:
    return sorted(contents.ended_leases.values(), key=lambda each: (each.ended_at, each.key))


def _sum_up_leases(contents: _Contents, gone: Collection[LeaseKey]) -> None:
    """Replace the accounts of these leases by sums by day and neighbour."""
    for each in lease_days([contents.ended_leases.pop(key) for key in gone if key in contents.ended_leases]):
        key = (each.day, each.neighbour)
        contents.lease_days[key] = contents.lease_days.get(key, Charged()).plus(each.charged)


def _was_final(work: Work, before: Instant) -> bool:
    return work.state.final and work.finished_at is not None and work.finished_at <= before


def _latest(change: Change) -> list[Work]:
    """Return the last version of all work of the change, without the jobs whose own fields are as they were."""
    return [*{(type(each), each.id): each for each in change.work if each.id not in change.as_before}.values()]


def _conflict(what: str) -> StoreConflict:
    return StoreConflict(
        "store_conflict", f"A change contradicts what the store holds: {what}.", "Report this as a mistake of koalapy."
    )
