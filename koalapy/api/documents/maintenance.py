"""Maintenance tasks and their runs, as JSON."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.model.maintenance import MaintenanceRun
from koalapy.model.units import Instant, format_instant
from koalapy.runtime.maintenance.runner import Entry


def maintenance(entries: Iterable[Entry]) -> Document:
    return {"schema": "koala.maintenance/1", "tasks": [_task(each) for each in entries]}


def maintenance_run(run: MaintenanceRun, dry: bool) -> Document:
    return {"schema": "koala.maintenance-run/1", "dry_run": dry, "run": _run(run)}


def _task(each: Entry) -> Document:
    return {
        "name": each.entry.called,
        "task": each.entry.task,
        "cron": each.entry.cron,
        "next_at": _instant(each.next_at),
        "last": _run(each.last) if each.last is not None else None,
    }


def _run(run: MaintenanceRun) -> Document:
    return {
        "name": run.name,
        "task": run.task,
        "began_at": format_instant(run.began),
        "ended_at": _instant(run.ended),
        "well": run.well,
        "message": run.message,
    }


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)
