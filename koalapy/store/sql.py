"""The store in a database, by SQLAlchemy Core: one transaction a commit, prepared statements, no ORM."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Exists,
    Select,
    Table,
    bindparam,
    delete,
    exists,
    select,
)
from sqlalchemy.exc import SQLAlchemyError

from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.commands import job_of_command
from koalapy.model.ended_lease import EndedLease, LeaseDay, LeaseKey, lease_days
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.model.job import Counters, Job, with_attempts
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
from koalapy.model.usage import BatchSpan, DayUsage, Usage, accounted, by_days
from koalapy.model.work import Flow, Work
from koalapy.store import records, rows, schema
from koalapy.store.backend import Backend
from koalapy.store.contract import MaintenanceRun, StoreError
from koalapy.store.identity import WriterFence, open_identity
from koalapy.store.rows import Row
from koalapy.store.unreadable import UnreadableRecords, attempt_of, key_of, lease_of, pilot_of, work_of
from koalapy.store.validation import refuse_invalid

_AT_ONCE = 1000  # databases limit the parameters of a statement
T = TypeVar("T")


class SqlStore:
    """The store in a database, which is opened at once.

    Raises StoreLocked if another koalad has it, StoreUnreadable for a database that is not a store of koalapy.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._engine: Engine | None = backend.open()
        self._writes = _Writes(backend)
        self._unreadable = UnreadableRecords()
        try:
            with self._writing() as connection:
                facts = open_identity(connection, backend.where)
        except BaseException:
            self.close()
            raise
        self._instance = facts.instance
        self._fence = WriterFence(facts, backend.where)

    @property
    def instance(self) -> InstanceId:
        return self._instance

    @property
    def epoch(self) -> int:
        return self._fence.epoch

    @property
    def next_number(self) -> int:
        return self._fence.last_number + 1

    def load(self) -> Snapshot:
        with self._transaction() as connection:
            unfinished = dict(self._read_work(connection, _UNFINISHED, checked=True))
            found = [work for work in unfinished.values() if work is not None]
            held = unfinished.keys() - {work.id for work in found}
            pending_cancels = self._pending_cancels(connection)
            pilots = dict(self._live_launchers(connection))
            unreadable_launchers = {number for number, each in pilots.items() if each is None or each.owner.id in held}
            known = self._known(connection, {each.id.job for each in pending_cancels})
            return Snapshot(
                instance=self.instance,
                counters=_counters(connection),
                jobs=tuple(each for each in found if isinstance(each, Job)),
                sweeps=tuple(each for each in found if isinstance(each, Sweep)),
                flows=tuple(each for each in found if isinstance(each, Flow)),
                sent_jobs=tuple(each for each in found if isinstance(each, SentJob)),
                pending_cancels=tuple(each for each in pending_cancels if each.owner.id not in held),
                jobless=tuple(each.id for each in pending_cancels if each.id.job not in known),
                launchers=tuple(each for number, each in pilots.items() if each and number not in unreadable_launchers),
                pilots=tuple(each for each in self._pilots(connection) if each.id not in held),
                outbox=tuple(
                    entry
                    for entry in self._outbox(connection)
                    if job_of_command(entry.command) not in held | unreadable_launchers
                ),
                learned=self._learned(connection),
                neighbours=self._neighbours(connection),
                leases=self._leases(connection),
                requests_seen=tuple(
                    SeenRequest(Origin(row.site, row.number, row.round), Instant(row.at))
                    for row in connection.execute(_REQUESTS_SEEN)
                ),
                unreadable=tuple(sorted(held)),
            )

    def unreadable(self) -> list[Unreadable]:
        return self._unreadable.all()

    def repair(self, act: Callable[[Connection], T]) -> T:
        """Repair records that cannot be read, in one transaction. Returns the result of `act`.

        See `koalapy.store.unreadable`. It is for a store that has not been loaded. Raises what `act` raises, and then
        nothing is changed.
        """
        with self._writing() as connection:
            return act(connection)

    def commit(self, change: Change) -> None:
        if change.empty:
            return
        refuse_invalid(change)
        writes = self._writes.of(change)
        with self._writing() as connection:
            if self._fence.begin_commit(connection, change):
                for statement, parameters in writes:
                    connection.execute(statement, parameters)
                self._account(connection, change.accounted)
                self._remove(connection, change.removed)
                self._remove_leases(connection, change.leases_removed)
        self._fence.end_commit(change)
        if change.learned is not None:
            self._unreadable.forget("learned")

    def _account(self, connection: Connection, spans: Iterable[BatchSpan]) -> None:
        for span in spans:
            row = connection.execute(_USAGE_OF, _marked(rows.attempt_key(span.attempt))).one_or_none()
            if row is not None:
                connection.execute(self._writes.put_usage, rows.usage_rows([accounted(rows.usage_in(row), span)]))

    def _remove(self, connection: Connection, removed: Sequence[JobId]) -> None:
        """Remove jobs and sweeps with their Launchers, and sum up the usage of them all."""
        for chunk in _chunks(list(removed)):
            gone = sorted({*chunk, *connection.scalars(_launchers_of(chunk))})
            for part in _chunks(gone):
                of_jobs = schema.usage.c.job.in_(part)
                if days := by_days(rows.usage_in(row) for row in connection.execute(_USAGE.where(of_jobs))):
                    connection.execute(self._writes.add_days, rows.day_rows(days))
                    connection.execute(delete(schema.usage).where(of_jobs))
                connection.execute(delete(schema.attempts).where(schema.attempts.c.job.in_(part), _NOT_PENDING))
                connection.execute(delete(schema.identities).where(schema.identities.c.id.in_(part)))

    def _remove_leases(self, connection: Connection, removed: Iterable[LeaseKey]) -> None:
        """Replace accounts of leases by sums. One that is removed already changes nothing."""
        found = []
        for key in map(_marked, map(rows.ended_lease_key, removed)):
            found += [rows.ended_lease_in(row) for row in connection.execute(_ENDED_LEASE_OF, key)]
            connection.execute(_DROP_ENDED_LEASE, key)
        if found:
            connection.execute(self._writes.add_lease_days, rows.lease_day_rows(lease_days(found)))

    def check(self) -> None:
        with self._writing() as connection:
            self._fence.check(connection)

    def jobs(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Job]:
        return [each for each in self._all(_JOBS, states, ids) if isinstance(each, Job)]

    def sweeps(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Sweep]:
        return [each for each in self._all(_SWEEPS, states, ids) if isinstance(each, Sweep)]

    def all_work(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Work]:
        return self._all(_WORK, states, ids)

    def _all(self, query: Select[Any], states: Collection[JobState] | None, ids: Sequence[JobId] | None) -> list[Work]:
        """Return the work of these states and ids, in order."""
        if states is not None:
            query = query.where(_OF_WORK.state.in_([state.value for state in states]))
        chunks = [query] if ids is None else [query.where(_OF_WORK.id.in_(each)) for each in _chunks(sorted(set(ids)))]
        with self._transaction() as connection:
            read = [each for chunk in chunks for _, each in self._read_work(connection, chunk)]
        return [each for each in read if each is not None]

    def prunable(self, before: Instant, most: int, after: JobId, records: bool) -> list[Work]:
        """Search by indices of what was final by then, so the number of jobs that are kept costs nothing."""
        ended = schema.work.alias("ended")
        final = select(ended.c.id).where(ended.c.finished_at <= before, ended.c.id > after)
        query = _WORK.where(_OF_WORK.id.in_(final), _OF_WORK.state.in_(_FINAL), ~_has_launchers(_OF_WORK.id)).limit(
            most
        )
        if not records:
            query = query.where(~_is_pruned(_OF_WORK.id))
        with self._transaction() as connection:
            return [each for _, each in self._read_work(connection, query) if each is not None]

    def prunable_launchers(self, before: Instant, most: int, after: JobId, records: bool) -> list[Attempt]:
        attempts, old = schema.attempts.c, schema.attempts.alias("old")
        sweep, ended = schema.work.alias("sweep"), schema.work.alias("ended")
        sweeps = select(ended.c.id).where(ended.c.finished_at <= before)
        theirs = select(old.c.job).where(
            old.c.owner_kind == OwnerKind.SWEEP.value, old.c.owner.in_(sweeps), old.c.job > after
        )
        final = exists().where(sweep.c.id == attempts.owner, sweep.c.state.in_(_FINAL))
        query = _ATTEMPTS.where(attempts.job.in_(theirs), attempts.let_go == 1, final).limit(most)
        with self._transaction() as connection:
            return self._attempts(connection, query if records else query.where(~_is_pruned(attempts.job)))

    def launchers_of(self, sweep: JobId) -> list[Attempt]:
        attempts = schema.attempts.c
        query = _ATTEMPTS.where(attempts.owner_kind == OwnerKind.SWEEP.value, attempts.owner == sweep)
        with self._transaction() as connection:
            return self._attempts(connection, query)

    def launcher(self, launcher: AttemptId) -> Attempt | None:
        attempts = schema.attempts.c
        same = (
            attempts.job == launcher.job,
            attempts.component == launcher.component,
            attempts.number == launcher.number,
        )
        query = _ATTEMPTS.where(*same, attempts.owner_kind.is_not(None))
        with self._transaction() as connection:
            return next(iter(self._attempts(connection, query)), None)

    def job(self, job_id: JobId) -> Job | None:
        return next(iter(self.jobs(ids=[job_id])), None)

    def sweep(self, sweep: JobId) -> Sweep | None:
        return next(iter(self.sweeps(ids=[sweep])), None)

    def work(self, identity: JobId) -> Work | None:
        return next(iter(self.all_work(ids=[identity])), None)

    def id_of_key(self, owner: str, key: str) -> JobId | None:
        with self._transaction() as connection:
            found_id = connection.scalar(_ID_OF_KEY, {"of_owner": rows.plain(owner), "of_key": rows.plain(key)})
        return None if found_id is None else JobId(found_id)

    def ids_of_keys(self, owner: str, keys: Collection[str]) -> dict[str, JobId]:
        plain = {rows.plain(key): key for key in keys if key}
        found: dict[str, JobId] = {}
        with self._transaction() as connection:
            for chunk in _chunks(sorted(plain)):
                query = _IDS_OF_KEYS.where(schema.identities.c.key.in_(chunk))
                for key, job in connection.execute(query, {"of_owner": rows.plain(owner)}):
                    found[plain[key]] = JobId(job)
        return found

    def history(self, job_id: JobId) -> list[History]:
        with self._transaction() as connection:
            lines = connection.execute(_HISTORY, {"of_job": job_id}).all()
        return [self._line(job_id, *line) for line in lines]

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]:
        while page := self._results(sweep, after):
            for after, text in page:
                load = partial(records.load_results, text)
                if (batch := self._unreadable.read("results", after, sweep, load)) is not None:
                    yield after, batch

    def _results(self, sweep: JobId, after: int) -> list[tuple[int, str]]:
        """Return one page of results: no transaction stays open while the caller uses what it has read."""
        with self._transaction() as connection:
            found = connection.execute(_RESULTS, {"of_sweep": sweep, "after": after})
            return [(sequence, text) for sequence, text in found]

    def result(self, sweep: JobId, number: int) -> ResultBatch | None:
        """Read the first batch that may have the result, and the next only if the first match was something else.

        Raises RecordUnreadable.
        """
        wanted = {"of_sweep": sweep, "of_number": number, "written": f"[{number},"}
        with self._transaction() as connection:
            passed_over = 0
            while text := connection.scalar(_RESULT_OF, {**wanted, "passed_over": passed_over}):
                if found := records.load_results(text).only(number):
                    return found
                passed_over += 1
        return None

    def usage(self, since: Instant | None = None) -> list[Usage]:
        with self._transaction() as connection:
            return self._usage(connection, since)

    def used(self, since: Instant | None = None) -> tuple[list[Usage], list[DayUsage]]:
        with self._transaction() as connection:
            return self._usage(connection, since), [rows.day_in(row) for row in connection.execute(_USAGE_DAYS)]

    def ended_leases(self, since: Instant | None = None) -> tuple[list[EndedLease], list[LeaseDay]]:
        query = _ENDED_LEASES if since is None else _ENDED_LEASES.where(schema.ended_leases.c.ended_at > since)
        with self._transaction() as connection:
            leases = [rows.ended_lease_in(row) for row in connection.execute(query)]
            return leases, [rows.lease_day_in(row) for row in connection.execute(_LEASE_DAYS)]

    def prunable_leases(self, before: Instant, most: int) -> list[LeaseKey]:
        query = _ENDED_LEASES.where(schema.ended_leases.c.ended_at <= before).limit(most)
        with self._transaction() as connection:
            return [rows.ended_lease_in(row).key for row in connection.execute(query)]

    def pending_cancels(self) -> list[Attempt]:
        with self._transaction() as connection:
            return self._pending_cancels(connection)

    def maintenance(self) -> list[MaintenanceRun]:
        with self._transaction() as connection:
            found = connection.execute(select(schema.maintenance).order_by(schema.maintenance.c.name)).all()
        return [
            MaintenanceRun(
                name=row.name, task=row.task, began=Instant(row.began),
                ended=None if row.ended is None else Instant(row.ended), well=bool(row.well), message=row.message,
            )
            for row in found
        ]  # fmt: skip

    def record_maintenance(self, run: MaintenanceRun) -> None:
        row = {**asdict(run), "well": int(run.well), "message": rows.plain(run.message)}
        with self._writing() as connection:
            self._fence.check(connection)
            connection.execute(self._writes.put_maintenance, [row])

    def back_up(self, path: Path) -> None:
        self._opened()
        self._backend.back_up(path)

    def compact(self) -> None:
        self._opened()
        self._backend.compact()

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()
            self._backend.close()

    def _read_work(
        self, connection: Connection, query: Select[Any], checked: bool = False
    ) -> Iterator[tuple[JobId, Work | None]]:
        """Yield all work, jobs with their present attempts; None for what is set aside, or has such an attempt."""
        of_jobs = schema.attempts.c.job.in_(query.with_only_columns(_OF_WORK.id))
        attempts: dict[int, list[Attempt | None]] = {}
        for row in connection.execute(_ATTEMPTS.where(of_jobs, schema.attempts.c.superseded == 0)):
            attempts.setdefault(row.job, []).append(self._attempt(row, checked))
        for number, kind, state, text in connection.execute(query):
            load = partial(work_of, number, kind, state, text, checked)
            work = self._unreadable.read("sweep" if kind == "sweep" else "job", number, number, load)
            if isinstance(work, Job) and (present := attempts.get(work.id)):
                readable = [each for each in present if each is not None]
                work = with_attempts(work, readable) if len(readable) == len(present) else None
            yield JobId(number), work

    def _attempt(self, row: Any, checked: bool = False) -> Attempt | None:
        key = f"{row.job}.{row.component}.{row.number}"
        return self._unreadable.read("attempt", key, row.job, partial(attempt_of, row._mapping, checked))

    def _usage(self, connection: Connection, since: Instant | None) -> list[Usage]:
        query = _USAGE if since is None else _USAGE.where(schema.usage.c.ended_at > since)
        return [rows.usage_in(row) for row in connection.execute(query)]

    @staticmethod
    def _known(connection: Connection, ids: set[JobId]) -> set[JobId]:
        """Return those of the ids that a job, sweep or Launcher in the store has."""
        identity = schema.identities.c.id
        return set(connection.scalars(select(identity).where(identity.in_(sorted(ids))))) if ids else ids

    def _pending_cancels(self, connection: Connection) -> list[Attempt]:
        return self._attempts(connection, _PENDING_CANCELS)

    def _attempts(self, connection: Connection, query: Select[Any]) -> list[Attempt]:
        read = (self._attempt(row) for row in connection.execute(query))
        return [each for each in read if each is not None]

    def _live_launchers(self, connection: Connection) -> Iterator[tuple[JobId, Attempt | None]]:
        """Yield the number of each Launcher that was not let go, and it; None for one that is set aside."""
        for row in connection.execute(_LIVE_LAUNCHERS):
            yield JobId(row.job), self._attempt(row, checked=True)

    def _outbox(self, connection: Connection) -> list[OutboxEntry]:
        read = (
            (number, self._unreadable.read("command", number, None, partial(records.load_command, kind, text)))
            for number, kind, text in connection.execute(_OUTBOX)
        )
        return [OutboxEntry(number, command) for number, command in read if command is not None]

    def _learned(self, connection: Connection) -> Learned:
        text = connection.scalar(_LEARNED)
        if text is None:
            return NOTHING
        return self._unreadable.read("learned", rows.NODES, None, partial(records.load_learned, text)) or NOTHING

    def _pilots(self, connection: Connection) -> list[Pilot]:
        read = (
            self._unreadable.read("pilot", number, number, partial(pilot_of, number, text))
            for number, text in connection.execute(_PILOTS)
        )
        return [each for each in read if each is not None]

    def _neighbours(self, connection: Connection) -> tuple[Neighbour, ...]:
        read = (
            self._unreadable.read("neighbour", name, None, partial(records.load_neighbour, text))
            for name, text in connection.execute(_NEIGHBOURS)
        )
        return tuple(each for each in read if each is not None)

    def _leases(self, connection: Connection) -> tuple[Lease, ...]:
        read = (
            self._unreadable.read("lease", key_of("lease", row), None, partial(lease_of, row))
            for row in connection.execute(_LEASES).mappings()
        )
        return tuple(each for each in read if each is not None)

    def _line(self, job: JobId, sequence: int, at: int, kind: str, text: str) -> History:
        """Return a line of history; one that cannot be read is replaced by a line that names its record."""
        details = self._unreadable.read("history", sequence, job, partial(records.load_details, text))
        if details is None:
            return History(
                job=job, at=Instant(at), kind=HistoryKind.LINE_UNREADABLE, details={"record": f"history/{sequence}"}
            )
        return History(job=job, at=Instant(at), kind=kind, details=details)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yield a transaction for reading. Errors of the database are raised as StoreErrors."""
        with self._explained(), self._opened().begin() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Yield a transaction for writing, committed if the block ends, undone if it raises.

        Errors of the database are raised as StoreErrors.
        """
        with self._explained(), self._backend.writing(self._opened()) as connection:
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise self._backend.explain(error) from error

    def _opened(self) -> Engine:
        if self._engine is None:
            raise StoreError("store_closed", f"The store {self._backend.where} is closed.", "Open it again.")
        return self._engine


class _Writes:
    """The statements of a commit, built once."""

    def __init__(self, backend: Backend) -> None:
        self._put_work = _put(backend, schema.work)
        self._note_identity = backend.insert(schema.identities).on_conflict_do_nothing(
            index_elements=[schema.identities.c.id]
        )
        self._put_attempt = _put(backend, schema.attempts)
        self._put_counter = _put(backend, schema.counters)
        self._put_learned = _put(backend, schema.learned)
        self._put_pilot = _put(backend, schema.pilots)
        self._put_neighbour = _put(backend, schema.neighbours)
        self._put_lease = _put(backend, schema.leases)
        self._put_seen = _put(backend, schema.requests_seen)
        self.put_usage = _put(backend, schema.usage)
        self.put_maintenance = _put(backend, schema.maintenance)
        self.add_days = _add(backend, schema.usage_days, rows.USED)
        self._put_ended_lease = _put(backend, schema.ended_leases)
        self.add_lease_days = _add(backend, schema.lease_days, rows.CHARGED)

    def of(self, change: Change) -> list[tuple[Executable, list[Row]]]:
        """Return the statements of a change in the order in which they must run.

        Raises StoreConflict before any has run.
        """
        new, as_before = set(change.new), set(change.as_before)
        work = {(type(each), each.id): each for each in change.work if each.id not in as_before}.values()
        attempts = {attempt.id: attempt for attempt in change.attempts}.values()
        pilots = {pilot.id: pilot for pilot in change.pilots}.values()
        neighbours = {neighbour.name: neighbour for neighbour in change.neighbours}.values()
        leases = {lease.id: lease for lease in change.leases}.values()
        writes: list[tuple[Executable, list[Row]]] = [
            (_NEW_IDENTITY, [rows.identity_row(each) for each in work if each.id in new]),
            (self._note_identity, [rows.identity_row(each) for each in work if each.id not in new]),
            (self._note_identity, rows.identity_rows_of_launchers(attempts)),
            (self._put_work, [rows.work_row(each) for each in work]),
            (self._put_attempt, [rows.attempt_row(each) for each in attempts if not each.is_obsolete]),
            (self._put_counter, rows.counter_rows(change.counters)),
            (_SEND, rows.outbox_rows(change.sent)),
            (_ADD_HISTORY, rows.history_rows(change.history)),
            (_RESULT, rows.result_rows(change.results)),
            (self._put_learned, rows.learned_rows(change.learned)),
            (self._put_pilot, rows.pilot_rows(pilots)),
            (_DROP_PILOT, [{"of_id": each.id} for each in pilots if each.state.final]),
            (self._put_neighbour, rows.neighbour_rows(neighbours)),
            (_DROP_NEIGHBOUR, [{"of_name": each.name} for each in neighbours if each.gone]),
            (self._put_lease, rows.lease_rows(leases)),
            (_DROP_LEASE, [_marked(rows.lease_key(each.id)) for each in leases if each.state is LeaseState.GONE]),
            (self.put_usage, rows.usage_rows(change.usage)),
            (self._put_ended_lease, rows.ended_lease_rows(change.leases_ended)),
            (_DROP_ATTEMPT, [_marked(rows.attempt_key(each.id)) for each in attempts if each.is_obsolete]),
            (_FORGET_SEEN, [_marked(rows.seen_key(each)) for each in change.requests_forgotten]),
            (self._put_seen, rows.seen_rows(change.requests_seen)),
            (_CONFIRM, [{"of_number": number} for number in change.confirmed]),
        ]
        return [(statement, parameters) for statement, parameters in writes if parameters]


def _put(backend: Backend, table: Table) -> Executable:
    """Return an insert that replaces the row of the same primary key in place.

    To delete the row of a sweep would delete its results too.
    """
    keys = list(table.primary_key)
    insert = backend.insert(table)
    replaced = {column.name: insert.excluded[column.name] for column in table.columns if column not in set(keys)}
    statement: Executable = insert.on_conflict_do_update(index_elements=keys, set_=replaced)
    return statement


def _add(backend: Backend, table: Table, names: Iterable[str]) -> Executable:
    """Return an insert that adds to these columns of the row of the same primary key."""
    insert = backend.insert(table)
    added = {name: table.c[name] + insert.excluded[name] for name in names}
    statement: Executable = insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=added)
    return statement


def _marked(row: Row) -> Row:
    return {f"of_{name}": value for name, value in row.items()}


def _launchers_of(sweeps: Collection[JobId]) -> Select[Any]:
    """Select the numbers of the sweeps' Launchers."""
    attempts = schema.attempts.c
    return select(attempts.job).where(attempts.owner_kind == OwnerKind.SWEEP.value, attempts.owner.in_(sweeps))


def _has_launchers(sweep: ColumnElement[int]) -> Exists:
    launchers = schema.attempts.alias("launchers")
    return exists().where(launchers.c.owner_kind == OwnerKind.SWEEP.value, launchers.c.owner == sweep)


def _is_pruned(number: ColumnElement[int]) -> Exists:
    return exists().where(schema.history.c.job == number, schema.history.c.kind == HistoryKind.OUTPUT_PRUNED)


def _counters(connection: Connection) -> Counters:
    return records.load_counters({row.name: row.value for row in connection.execute(_COUNTERS)})


def _chunks(values: list[T]) -> list[list[T]]:
    return [values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE)]


_FINAL = [state.value for state in JobState if state.final]
_OF_WORK = schema.work.c
_WORK: Select[Any] = select(_OF_WORK.id, _OF_WORK.kind, _OF_WORK.state, _OF_WORK.record).order_by(_OF_WORK.id)
_JOBS, _SWEEPS = _WORK.where(_OF_WORK.kind == "job"), _WORK.where(_OF_WORK.kind == "sweep")
_UNFINISHED = _WORK.where(_OF_WORK.state.not_in(_FINAL))  # also in an unknown state
_IDENTITIES = schema.identities.c
_ID_OF_KEY = select(_IDENTITIES.id).where(
    _IDENTITIES.owner == bindparam("of_owner"), _IDENTITIES.key == bindparam("of_key")
)
_IDS_OF_KEYS = select(_IDENTITIES.key, _IDENTITIES.id).where(_IDENTITIES.owner == bindparam("of_owner"))
_ATTEMPTS = select(schema.attempts).order_by(*schema.attempts.primary_key)
_PENDING_CANCELS = _ATTEMPTS.where(schema.attempts.c.pending_cancel == 1)
_LIVE_LAUNCHERS = _ATTEMPTS.where(schema.attempts.c.owner_kind.is_not(None), schema.attempts.c.let_go == 0)
_NOT_PENDING = schema.attempts.c.pending_cancel == 0
_OUTBOX = select(schema.outbox.c.number, schema.outbox.c.kind, schema.outbox.c.command).order_by(schema.outbox.c.number)
_COUNTERS = select(schema.counters.c.name, schema.counters.c.value)
_USAGE = select(schema.usage).order_by(*schema.usage.primary_key)
_USAGE_DAYS = select(schema.usage_days).order_by(*schema.usage_days.primary_key)
_USAGE_OF = select(schema.usage).where(
    *(schema.usage.c[name] == bindparam(f"of_{name}") for name in ("job", "component", "number"))
)
_ENDED_LEASES = select(schema.ended_leases).order_by(schema.ended_leases.c.ended_at, *schema.ended_leases.primary_key)
_LEASE_DAYS = select(schema.lease_days).order_by(*schema.lease_days.primary_key)
_OF_ENDED_LEASE = [schema.ended_leases.c[name] == bindparam(f"of_{name}") for name in LeaseKey._fields]
_ENDED_LEASE_OF = select(schema.ended_leases).where(*_OF_ENDED_LEASE)
_DROP_ENDED_LEASE = delete(schema.ended_leases).where(*_OF_ENDED_LEASE)
_LEARNED = select(schema.learned.c.record).where(schema.learned.c.name == rows.NODES)
_PILOTS = select(schema.pilots.c.id, schema.pilots.c.record).order_by(schema.pilots.c.id)
_DROP_PILOT = delete(schema.pilots).where(schema.pilots.c.id == bindparam("of_id"))
_NEIGHBOURS = select(schema.neighbours.c.name, schema.neighbours.c.record).order_by(schema.neighbours.c.name)
_LEASES = select(schema.leases).order_by(schema.leases.c.lent.desc(), *schema.leases.primary_key)
_DROP_LEASE = delete(schema.leases).where(
    *[schema.leases.c[name] == bindparam(f"of_{name}") for name in LeaseId._fields]
)
_DROP_NEIGHBOUR = delete(schema.neighbours).where(schema.neighbours.c.name == bindparam("of_name"))
_REQUESTS_SEEN = select(schema.requests_seen).order_by(schema.requests_seen.c.at, *schema.requests_seen.primary_key)
_FORGET_SEEN = delete(schema.requests_seen).where(
    *(schema.requests_seen.c[name] == bindparam(f"of_{name}") for name in ("site", "number", "round"))
)
_HISTORY = (
    select(schema.history.c.sequence, schema.history.c.at, schema.history.c.kind, schema.history.c.details)
    .where(schema.history.c.job == bindparam("of_job"))
    .order_by(schema.history.c.sequence)
)
_RESULTS = (
    select(schema.results.c.sequence, schema.results.c.results)
    .where(schema.results.c.sweep == bindparam("of_sweep"), schema.results.c.sequence > bindparam("after"))
    .order_by(schema.results.c.sequence)
    .limit(_AT_ONCE)
)
_RESULT_OF = (
    select(schema.results.c.results)
    .where(
        schema.results.c.sweep == bindparam("of_sweep"),
        schema.results.c.lowest <= bindparam("of_number"),
        schema.results.c.highest >= bindparam("of_number"),
        schema.results.c.results.contains(bindparam("written")),  # for orders that mix the parameters
    )
    .order_by(schema.results.c.highest)
    .limit(1)
    .offset(bindparam("passed_over"))
)
_NEW_IDENTITY = schema.identities.insert()
_SEND = schema.outbox.insert()
_ADD_HISTORY = schema.history.insert()
_RESULT = schema.results.insert()
_CONFIRM = delete(schema.outbox).where(schema.outbox.c.number == bindparam("of_number"))
_DROP_ATTEMPT = delete(schema.attempts).where(
    *(schema.attempts.c[name] == bindparam(f"of_{name}") for name in ("job", "component", "number"))
)
