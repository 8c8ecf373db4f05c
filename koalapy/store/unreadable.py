"""Records that cannot be read: they are set aside one by one, so that they hide no other, and repaired by command."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Integer,
    RowMapping,
    Table,
    and_,
    delete,
    select,
    true,
    update,
)

from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.change import Change
from koalapy.model.commands import job_of_command
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.lease import Lease
from koalapy.model.pilot import Pilot
from koalapy.model.sent import SentJob
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.unreadable import Unreadable
from koalapy.model.work import Flow, Work
from koalapy.store import records, rows, schema
from koalapy.store.contract import RecordInvalid, RecordUnreadable
from koalapy.store.validation import refuse_invalid

T = TypeVar("T")
_LONGEST_WHY = 300
_OF_CHANGE: Mapping[type, str] = {Job: "jobs", Sweep: "sweeps", Flow: "flows", SentJob: "sent_jobs"}


class UnreadableRecords:
    """The records that could not be read so far. Any thread may use it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Unreadable] = {}

    def read(self, kind: str, key: object, job: int | None, load: Callable[[], T]) -> T | None:
        """Return the result of `load`.

        If it raises RecordUnreadable or RecordInvalid, note the record and return None.
        """
        place = kind, str(key)
        try:
            value = load()
        except (RecordUnreadable, RecordInvalid) as error:
            why = error.why if isinstance(error, RecordUnreadable) else error.reason.message
            known = None if job is None else JobId(job)
            self._found[place] = Unreadable(kind, str(key), known, why[:_LONGEST_WHY])
            return None
        self._found.pop(place, None)
        return value

    def forget(self, kind: str) -> None:
        """Drop all notes of this kind, whose records were replaced."""
        for place in [place for place in self._found if place[0] == kind]:
            self._found.pop(place, None)

    def all(self) -> list[Unreadable]:
        """Return the noted records by kind, in the order of KINDS, and key."""
        order = list(KINDS)
        return sorted(
            self._found.copy().values(), key=lambda each: (order.index(each.kind), [*map(_number, each.key.split("."))])
        )


def work_of(row_id: int, kind: str, state: str, text: str, checked: bool = False) -> Work:
    """Return the work of a row. `checked`: also check the bounds of a commit.

    Raises RecordUnreadable, and RecordInvalid if `checked`.
    """
    work = records.load_work(kind, text)
    if work.id != row_id:
        raise RecordUnreadable(kind, f"it is of {kind} {work.id}")
    if work.state != state:
        raise RecordUnreadable(kind, f"it is {work.state}, and its row is {state}")
    if isinstance(work, Job) and work.attempts:
        raise RecordUnreadable(kind, "it has attempts, which have records of their own")
    if checked:
        change = Change()
        setattr(change, _OF_CHANGE[type(work)], (work,))
        refuse_invalid(change)
    return work


def attempt_of(row: Mapping[str, Any], checked: bool = False) -> Attempt:
    """Return the attempt of a row. `checked`: also check the bounds of a commit.

    Raises RecordUnreadable, and RecordInvalid if `checked`.
    """
    attempt = records.load_attempt(row["record"])
    if tuple(attempt.id) != (row["job"], row["component"], row["number"]):
        raise RecordUnreadable("Attempt", f"it is of attempt {attempt.id}")
    left = attempt.superseded, attempt.is_pending_cancel, attempt.let_go
    if left != (row["superseded"], row["pending_cancel"], row["let_go"]):
        raise RecordUnreadable("Attempt", "it does not agree with its row on what is left of it")
    owner = attempt.owner if attempt.launcher is not None else (None, None)
    if owner != (row["owner_kind"], row["owner"]):
        raise RecordUnreadable("Attempt", "it does not agree with its row on its owner")
    if checked:
        refuse_invalid(Change(attempts=(attempt,)))
    return attempt


def lease_of(row: RowMapping) -> Lease:
    """Return the lease of a row. Raises RecordUnreadable."""
    lease = records.load_lease(bool(row["lent"]), row["record"])
    if lease.id != (row["neighbour"], row["number"], row["lent"]):
        raise RecordUnreadable("Lease", f"it is of lease {lease.id}")
    return lease


def pilot_of(row_id: int, text: str) -> Pilot:
    """Return the pilot of a row. Raises RecordUnreadable."""
    pilot = records.load_pilot(text)
    if pilot.id != row_id:
        raise RecordUnreadable("Pilot", f"it is of pilot {pilot.id}")
    return pilot


# ---- repair: for a store that no koalad has open


class _Kind(NamedTuple):
    """The records of one kind of name. `among`: which rows of the table they are."""

    table: Table
    text: "Column[Any]"
    keys: tuple["Column[Any]", ...]
    among: ColumnElement[bool] = true()


KINDS = {
    "job": _Kind(schema.work, schema.work.c.record, (schema.work.c.id,), schema.work.c.kind != "sweep"),
    "sweep": _Kind(schema.work, schema.work.c.record, (schema.work.c.id,), schema.work.c.kind == "sweep"),
    "attempt": _Kind(
        schema.attempts,
        schema.attempts.c.record,
        (schema.attempts.c.job, schema.attempts.c.component, schema.attempts.c.number),
    ),
    "pilot": _Kind(schema.pilots, schema.pilots.c.record, (schema.pilots.c.id,)),
    "command": _Kind(schema.outbox, schema.outbox.c.command, (schema.outbox.c.number,)),
    "results": _Kind(schema.results, schema.results.c.results, (schema.results.c.sequence,)),
    "history": _Kind(schema.history, schema.history.c.details, (schema.history.c.sequence,)),
    "learned": _Kind(schema.learned, schema.learned.c.record, (schema.learned.c.name,)),
    "neighbour": _Kind(schema.neighbours, schema.neighbours.c.record, (schema.neighbours.c.name,)),
    "lease": _Kind(schema.leases, schema.leases.c.record, tuple(schema.leases.primary_key)),
}


def survey(connection: Connection) -> list[Unreadable]:
    """Read all records, those of final jobs too. Returns those that cannot be read."""
    aside = UnreadableRecords()
    for kind, found in KINDS.items():
        for row in connection.execute(select(found.table).where(found.among)).mappings():
            aside.read(kind, key_of(kind, row), _job_in(kind, row), lambda kind=kind, row=row: _load(kind, row))  # type: ignore[misc]
    return aside.all()


def key_of(kind: str, row: RowMapping) -> str:
    """Return the key of a row in the names of records."""
    return ".".join(str(row[column.name]) for column in KINDS[kind].keys)


def raw(connection: Connection, name: str) -> str:
    """Return the text of a record, as it is. Raises RequestError `no_such_record` if there is none of this name."""
    return str(_row(connection, name)[_kind(name).text.name])


def replace(connection: Connection, name: str, text: str) -> None:
    """Put a corrected text in place of a record's.

    Raises RequestError `no_such_record`, and `bad_record` for a text that is not a record of this kind and key.
    """
    kind, row = name.partition("/")[0], dict(_row(connection, name))
    changed = row | {_kind(name).text.name: text}
    try:
        if kind in ("job", "sweep"):
            changed = rows.work_row(records.load_work(row["kind"], text))
        if kind == "attempt":
            changed = rows.attempt_row(records.load_attempt(text))
        _same(row, changed, name)
        _load(kind, changed)
    except (RecordUnreadable, RecordInvalid) as error:
        why = error.why if isinstance(error, RecordUnreadable) else error.reason.message
        message = f"The text is not a record of kind {kind} ({why})."
        raise RequestError("bad_record", message, "Correct it first.") from error
    connection.execute(update(_kind(name).table).where(_where(name)).values(**changed))


def drop(connection: Connection, name: str) -> None:
    """Remove a record. With a job or sweep go its attempts, history and results, and the commands for all of them.

    Their pending cancels stay, and are carried out, since they end batch jobs. Raises RequestError `no_such_record`,
    and `attempt_needed` for a present attempt of a job that is not final.
    """
    row, kind = _row(connection, name), name.partition("/")[0]
    if kind == "attempt" and not row["superseded"]:
        _refuse_needed(connection, row["job"], name)
    if kind not in ("job", "sweep"):
        connection.execute(delete(_kind(name).table).where(_where(name)))
        return
    attempts = schema.attempts.c
    of_sweep = attempts.owner_kind == OwnerKind.SWEEP.value, attempts.owner == row["id"]
    gone = {row["id"], *connection.scalars(select(attempts.job).where(*of_sweep))}
    for number, kind, text in connection.execute(
        select(schema.outbox.c.number, schema.outbox.c.kind, schema.outbox.c.command)
    ):
        load = partial(records.load_command, kind, text)
        entry = UnreadableRecords().read("command", number, None, load)
        if entry is not None and job_of_command(entry) in gone:
            connection.execute(delete(schema.outbox).where(schema.outbox.c.number == number))
    connection.execute(delete(schema.attempts).where(attempts.job.in_(gone), attempts.pending_cancel == 0))
    connection.execute(delete(schema.identities).where(schema.identities.c.id.in_(gone)))


def _refuse_needed(connection: Connection, job: int, name: str) -> None:
    state = connection.scalar(select(schema.work.c.state).where(schema.work.c.id == job))
    if state is not None and state not in [each.value for each in JobState if each.final]:
        message = f"Job {job} is not final, and needs the record of its attempt."
        raise RequestError("attempt_needed", message, f"Correct {name}, or drop job/{job}.")


def _load(kind: str, row: Any) -> object:
    """Return the record of a row. Raises RecordUnreadable or RecordInvalid."""
    match kind:
        case "job" | "sweep":
            return work_of(row["id"], row["kind"], row["state"], row["record"], checked=True)
        case "attempt":
            return attempt_of(row, checked=True)
        case "pilot":
            return pilot_of(row["id"], row["record"])
        case "command":
            return records.load_command(row["kind"], row["command"])
        case "results":
            return records.load_results(row["results"])
        case "history":
            return records.load_details(row["details"])
        case "neighbour":
            return records.load_neighbour(row["record"])
        case "lease":
            return lease_of(row)
    return records.load_learned(row["record"])


def _same(row: Any, changed: Any, name: str) -> None:
    if any(row[column.name] != changed[column.name] for column in _kind(name).keys):
        raise RecordUnreadable("Job", f"it is of job {changed['id']}")


def _job_in(kind: str, row: Any) -> int | None:
    column = {"job": "id", "sweep": "id", "attempt": "job", "results": "sweep", "history": "job", "pilot": "id"}.get(
        kind
    )
    return None if column is None else int(row[column])


def _kind(name: str) -> _Kind:
    return KINDS[name.partition("/")[0]]


def _where(name: str) -> Any:
    """Return the condition for the row of this name. Raises RequestError for a name that no record can have."""
    kind, _, key = name.partition("/")
    if kind not in KINDS:
        raise _no_such(name)
    keys = KINDS[kind].keys
    parts = key.rsplit(".", len(keys) - 1)  # a name may have dots, and stands first
    are_numbers = [isinstance(column.type, Integer) for column in keys]
    if len(parts) != len(keys) or not all(
        part.isdecimal() and len(part) < 19 for part, is_number in zip(parts, are_numbers, strict=True) if is_number
    ):
        raise _no_such(name)
    wanted = [int(part) if is_number else part for part, is_number in zip(parts, are_numbers, strict=True)]
    return and_(KINDS[kind].among, *(column == value for column, value in zip(keys, wanted, strict=True)))


def _row(connection: Connection, name: str) -> Any:
    where = _where(name)
    found = connection.execute(select(_kind(name).table).where(where)).mappings().first()
    if found is None:
        raise _no_such(name)
    return found


def _no_such(name: str) -> RequestError:
    advice = "`koala repair` lists those that cannot be read; a job's is named like job/7."
    return RequestError("no_such_record", f"There is no record {json.dumps(name)} in the store.", advice)


def _number(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdecimal() else (0, part)
