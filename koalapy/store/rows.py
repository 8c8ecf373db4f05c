"""Conversion between a change and the rows of the tables. Pure: all rows are made before a transaction begins."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from koalapy.model.attempt import Attempt
from koalapy.model.change import OutboxEntry
from koalapy.model.ended_lease import Charged, EndedLease, LeaseDay, LeaseKey
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Counters
from koalapy.model.learned import Learned
from koalapy.model.lease import Lease, LeaseId, Origin, SeenRequest
from koalapy.model.neighbour import Neighbour
from koalapy.model.parameters import ResultBatch
from koalapy.model.pilot import Pilot
from koalapy.model.states import LeaseState
from koalapy.model.units import Instant
from koalapy.model.usage import DayUsage, Kind, Sum, Usage
from koalapy.model.work import Work
from koalapy.store.records import (
    dump_attempt,
    dump_command,
    dump_details,
    dump_learned,
    dump_lease,
    dump_neighbour,
    dump_pilot,
    dump_results,
    dump_work,
)

Row = dict[str, Any]
NODES = "nodes"  # all observations of nodes are in one row
USED = ("held", "run", "lost", "scavenged", "estimated", "attempts")  # columns that are summed up
CHARGED = ("lent", "borrowed", "measured", "leases")
_TEXTS = ("cluster", "beyond", "site", "user", "name", "code", "message")  # of an account
_NUMBERS = ("began_at", "ended_at", "processors", "charge", "measured", "job", "links", "request")


def identity_row(work: Work) -> Row:
    """Return the row of `identities` of work, with the key that its client gave it."""
    keyed = {"owner": plain(work.owner), "key": plain(work.key)} if work.key else {"owner": None, "key": None}
    return {"id": work.id, **keyed}


def identity_rows_of_launchers(attempts: Iterable[Attempt]) -> list[Row]:
    """Return the row of `identities` of each Launcher among the attempts."""
    return [{"id": each.id.job, "owner": None, "key": None} for each in attempts if each.launcher is not None]


def work_row(work: Work) -> Row:
    kind, text = dump_work(work)
    return {
        "id": work.id,
        "kind": kind,
        "owner": plain(work.owner),
        "name": plain(work.request.name),
        "state": work.state.value,
        "submitted_at": work.submitted_at,
        "finished_at": work.finished_at,
        "record": text,
    }


def attempt_row(attempt: Attempt) -> Row:
    return {
        **attempt_key(attempt.id),
        "cluster": plain(attempt.cluster),
        "superseded": int(attempt.superseded),
        "pending_cancel": int(attempt.is_pending_cancel),
        "owner_kind": None if attempt.launcher is None else attempt.owner.kind.value,
        "owner": None if attempt.launcher is None else attempt.owner.id,
        "let_go": int(attempt.let_go),
        "record": dump_attempt(attempt),
    }


def attempt_key(attempt: AttemptId) -> Row:
    return {"job": attempt.job, "component": attempt.component, "number": attempt.number}


def outbox_rows(entries: Iterable[OutboxEntry]) -> list[Row]:
    return [_outbox_row(entry) for entry in entries]


def history_rows(lines: Iterable[History]) -> list[Row]:
    return [
        {"job": line.job, "at": line.at, "kind": line.kind, "details": dump_details(line.details)} for line in lines
    ]


def result_rows(batches: Iterable[ResultBatch]) -> list[Row]:
    return [
        {
            "sweep": batch.sweep,
            "cluster": plain(batch.cluster),
            **attempt_key(batch.attempt),
            "results": dump_results(batch),
            "lowest": min(each.number for each in batch.results),
            "highest": max(each.number for each in batch.results),
        }
        for batch in batches
    ]


def counter_rows(counters: Counters | None) -> list[Row]:
    return [{"name": name, "value": value} for name, value in asdict(counters).items()] if counters else []


def learned_rows(learned: Learned | None) -> list[Row]:
    return [{"name": NODES, "record": dump_learned(learned)}] if learned else []


def pilot_rows(pilots: Iterable[Pilot]) -> list[Row]:
    return [{"id": each.id, "record": dump_pilot(each)} for each in pilots if not each.state.final]


def neighbour_rows(neighbours: Iterable[Neighbour]) -> list[Row]:
    return [{"name": each.name, "record": dump_neighbour(each)} for each in neighbours if not each.gone]


def lease_rows(leases: Iterable[Lease]) -> list[Row]:
    return [{**lease_key(each.id), "record": dump_lease(each)} for each in leases if each.state is not LeaseState.GONE]


def lease_key(lease: LeaseId) -> Row:
    return {"neighbour": lease.neighbour, "number": lease.number, "lent": int(lease.lent)}


def seen_rows(requests: Iterable[SeenRequest]) -> list[Row]:
    return [{**seen_key(each.origin), "at": each.at} for each in requests]


def seen_key(origin: Origin) -> Row:
    return {"site": origin.site, "number": origin.number, "round": origin.round}


def usage_rows(entries: Iterable[Usage]) -> list[Row]:
    return [
        {
            **attempt_key(entry.attempt),
            "owner": plain(entry.owner),
            "charged": entry.charged,
            "name": plain(entry.name),
            "cluster": plain(entry.cluster),
            "processors": entry.processors,
            "kind": entry.kind.value,
            "started_at": entry.started_at,
            "released_at": entry.released_at,
            "ended_at": entry.ended_at,
            "batch_id": plain(entry.batch_id),
            "accounted": int(entry.accounted),
        }
        for entry in {entry.attempt: entry for entry in entries}.values()
    ]


def usage_in(row: Any) -> Usage:
    """Return the entry of a row of `usage`."""
    return Usage(
        attempt=AttemptId(JobId(row.job), row.component, row.number),
        owner=row.owner,
        charged=JobId(row.charged),
        name=row.name,
        cluster=row.cluster,
        processors=row.processors,
        kind=Kind(row.kind),
        started_at=Instant(row.started_at),
        released_at=Instant(row.released_at),
        ended_at=Instant(row.ended_at),
        batch_id=row.batch_id,
        accounted=bool(row.accounted),
    )


def day_rows(days: Iterable[DayUsage]) -> list[Row]:
    return [
        {"day": each.day, "owner": plain(each.owner), "cluster": plain(each.cluster)}
        | {name: getattr(each.used, name) for name in USED}
        for each in days
    ]


def day_in(row: Any) -> DayUsage:
    """Return the sum of a row of `usage_days`."""
    used = Sum(**{name: int(getattr(row, name)) for name in USED})
    return DayUsage(day=Instant(row.day), owner=row.owner, cluster=row.cluster, used=used)


def ended_lease_rows(leases: Iterable[EndedLease]) -> list[Row]:
    return [
        {**ended_lease_key(each.key), "reported": int(each.reported)}
        | {name: getattr(each, name) for name in _NUMBERS}
        | {name: plain(getattr(each, name)) for name in _TEXTS}
        for each in {each.key: each for each in leases}.values()
    ]


def ended_lease_key(key: LeaseKey) -> Row:
    return {"neighbour": key.neighbour, "lent": int(key.lent), "number": key.number, "asked_at": key.asked_at}


def ended_lease_in(row: Any) -> EndedLease:
    """Return the account of a row of `ended_leases`."""
    return EndedLease(
        neighbour=row.neighbour,
        lent=bool(row.lent),
        number=row.number,
        asked_at=Instant(row.asked_at),
        reported=bool(row.reported),
        **{name: getattr(row, name) for name in (*_NUMBERS, *_TEXTS)},
    )


def lease_day_rows(days: Iterable[LeaseDay]) -> list[Row]:
    return [
        {"day": each.day, "neighbour": each.neighbour} | {name: getattr(each.charged, name) for name in CHARGED}
        for each in days
    ]


def lease_day_in(row: Any) -> LeaseDay:
    """Return the sum of a row of `lease_days`."""
    charged = Charged(**{name: int(getattr(row, name)) for name in CHARGED})
    return LeaseDay(day=Instant(row.day), neighbour=row.neighbour, charged=charged)


def plain(text: str) -> str:
    """Return a text that every database takes. A text that has a NUL or is no UTF-8 becomes what JSON makes of it."""
    storable = "\0" not in text and (text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text))
    return text if storable else json.dumps(text)


def _outbox_row(entry: OutboxEntry) -> Row:
    kind, text = dump_command(entry.command)
    cluster: str | None = getattr(entry.command, "cluster", None)  # CollectOutput concerns several clusters
    return {
        "number": entry.number,
        "cluster": None if cluster is None else plain(cluster),
        "kind": kind,
        "command": text,
    }
