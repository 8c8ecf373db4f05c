"""koalad itself, as JSON: status, maintenance, disk space, unreadable records and usage."""

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from koalapy import __version__, answers
from koalapy.api.documents.clusters import stores, unknown_tag
from koalapy.model.attempt import Attempt
from koalapy.model.ended_lease import Charged
from koalapy.model.maintenance import MaintenanceRun
from koalapy.model.states import JobState
from koalapy.model.units import Instant, format_instant
from koalapy.model.unreadable import Unreadable
from koalapy.model.usage import By, Sum
from koalapy.runtime.disk import Taken
from koalapy.runtime.maintenance.runner import Entry
from koalapy.runtime.unknown import Survey
from koalapy.views.fields import optional_instant
from koalapy.views.recovery import Line, Recovered
from koalapy.views.status import reason_and_advice
from koalapy.views.sweeps import runners_at_work
from koalapy.views.usage import charges_of, in_seconds, leased_in_seconds, rows_of, total_of

UnreadableKind = Literal["job", "attempt", "command", "results", "history", "learned"]
UsageKey = Literal["user", "cluster", "job", "day", "site"]
_FIRST_TAGS = 5


def status(
    facts: answers.KoaladFacts,
    pending_cancels: Iterable[Attempt],
    trouble: Iterable[str],
    found: Recovered,
    surveys: Iterable[Survey] = (),
    logins_required: Iterable[answers.Login] = (),
    runners: Iterable[answers.Runner] = (),
) -> answers.StatusAnswer:
    """Answer with the state of koalad.

    `surveys`: the last survey of each cluster. `logins_required`: logins that need a person.
    `runners`: sweeps that are not final.
    """
    tags = [tag for survey in surveys for tag in survey.tags]
    return {
        "schema": "koala.status/1",
        "version": __version__,
        **facts,
        "pending_cancels": [pending_cancel(each) for each in pending_cancels],
        "troubles": list(trouble),
        "logins_required": list(logins_required),
        "runners": runners_at_work(list(runners)),
        "recovery": recovery(found),
        "unknown_tags": {
            "count": len(tags),
            "first": [unknown_tag(each) for each in tags[:_FIRST_TAGS]],
            "stores": stores(tags),
        },
    }


def recovery(found: Recovered) -> answers.Recovery:
    """Describe the state in which koalad started, what is still open of it, and what was found or cleaned up."""
    jobs = {str(state): found.jobs.get(state, 0) for state in JobState if not state.final}
    return {
        "at": format_instant(found.at),
        "jobs": cast(answers.JobsRecovered, jobs),
        "jobs_at_barrier": found.at_barrier,
        "attempts": found.attempts,
        "attempts_unreported": found.unreported,
        "commands": found.commands,
        "commands_unconfirmed": found.unconfirmed,
        "pending_cancels": found.pending_cancels,
        "lines": [recovery_line(each) for each in found.lines],
        "lines_dropped": found.dropped,
    }


def recovery_line(line: Line) -> answers.RecoveryLine:
    """Describe an item that was found or cleaned up."""
    return {
        "at": format_instant(line.at),
        "kind": cast(answers.RecoveryKind, line.kind),
        "text": line.text,
        "job": line.job,
        "attempt": str(line.attempt) if line.attempt else None,
        "cluster": line.cluster,
    }


def pending_cancel(attempt: Attempt) -> answers.PendingCancel:
    """Describe a pending cancel."""
    return {
        "attempt": str(attempt.id),
        "cluster": attempt.cluster,
        "batch_id": attempt.batch_id or None,
        "since": format_instant(attempt.detached_at or Instant(0)),
        "reason": str(attempt.stuck) if attempt.stuck else None,
    }


def maintenance(entries: Iterable[Entry]) -> answers.MaintenanceAnswer:
    """Answer with the maintenance tasks of the grid file."""
    return {"schema": "koala.maintenance/1", "tasks": [_task(each) for each in entries]}


def maintenance_run(run: MaintenanceRun, dry: bool) -> answers.MaintenanceRunAnswer:
    """Answer with a run of a maintenance task; `dry`: it did nothing."""
    return {"schema": "koala.maintenance-run/1", "dry_run": dry, "run": _run(run)}


def _task(each: Entry) -> answers.MaintenanceTask:
    return {
        "name": each.entry.called,
        "task": each.entry.task,
        "cron": each.entry.cron,
        "next_at": optional_instant(each.next_at),
        "last": _run(each.last) if each.last is not None else None,
    }


def _run(run: MaintenanceRun) -> answers.MaintenanceRun:
    return {
        "name": run.name,
        "task": run.task,
        "began_at": format_instant(run.began),
        "ended_at": optional_instant(run.ended),
        "ok": run.well,
        "message": run.message,
    }


def disk(found: Iterable[Taken]) -> answers.DiskAnswer:
    """Answer with the disk space in each place."""
    return {"schema": "koala.disk/1", "places": [_place(each) for each in found]}


def _place(taken: Taken) -> answers.DiskPlace:
    return {
        "place": taken.place,
        "here": taken.is_here,
        "at": optional_instant(taken.at),
        "bytes": taken.size,
        "complete": taken.complete,
        "directories": taken.directories,
        "parts": dict(taken.parts),
        "reason": str(taken.trouble) if taken.trouble else None,
    }


def unreadable(found: Iterable[Unreadable]) -> answers.UnreadableAnswer:
    """Answer with records that cannot be read."""
    return {
        "schema": "koala.unreadable/1",
        "records": [
            {
                "record": each.name,
                "kind": cast(UnreadableKind, each.kind),
                "job": each.job,
                "reason": reason_and_advice(each),
            }
            for each in found
        ],
    }


def usage(
    found: Mapping[tuple[str | int, ...], Sum],
    by: By,
    since: Instant | None,
    until: Instant | None,
    charged: Mapping[str, Charged],
) -> answers.UsageAnswer:
    """Answer with sums of processor-seconds, and their total. `charged`: leases by neighbour, for sums by site."""
    leased = leased_in_seconds(charges_of(charged.values())) if by is By.SITE else None
    return {
        "schema": "koala.usage/1",
        "by": cast(UsageKey, str(by)),
        "since": optional_instant(since),
        "until": optional_instant(until),
        "rows": cast(list[answers.UsageRow], rows_of(found, by, charged)),
        "total": cast(answers.Used, in_seconds(total_of(found.values()))),
        "leased": cast(answers.Leased | None, leased),
    }
