"""koalad itself in the HTTP API: status, shutdown, journal, usage, disk space, unreadable records, maintenance."""

import json
from collections.abc import Callable, Iterable

from fastapi import FastAPI, Response

from koalapy import __version__
from koalapy.answers.clusters import Login
from koalapy.answers.koalad import (
    DiskAnswer,
    DiskPlace,
    DownAnswer,
    JournalAnswer,
    KoaladFacts,
    MaintenanceAnswer,
    MaintenanceRunAnswer,
    MaintenanceTask,
    Recovery,
    StatusAnswer,
    UnreadableAnswer,
    UsageAnswer,
)
from koalapy.answers.koalad import MaintenanceRun as DescribedMaintenanceRun
from koalapy.answers.sweeps import Runner as DescribedRunner
from koalapy.api.bodies import MaintenanceBody, ShutdownBody
from koalapy.journal.text import dump
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason, RequestError
from koalapy.model.units import Instant, format_instant, parse_instant
from koalapy.model.usage import By
from koalapy.runtime.disk import OwnDiskUse
from koalapy.runtime.maintenance.runner import Entry, Runner
from koalapy.runtime.service import Service
from koalapy.runtime.unknown import Survey, by_store, unknown_tag
from koalapy.store.contract import MaintenanceRun
from koalapy.views import usage as usage_view
from koalapy.views.clusters import cluster_troubles
from koalapy.views.fields import optional_instant
from koalapy.views.status import pending_cancel, unreadable_troubles
from koalapy.views.status import unreadable as unreadable_answer
from koalapy.views.sweeps import runners_at_work

Facts = Callable[[], KoaladFacts]
_FIRST_TAGS = 5


def add_koalad(
    app: FastAPI, service: Service, facts: Facts, shutdown: Callable[[bool], None], maintenance: Runner
) -> None:
    """Add the endpoints of koalad itself. `shutdown(cancel)` ends it, after it has cancelled all jobs if `cancel`."""

    @app.get("/v1/status")
    def status() -> StatusAnswer:
        """Report koalad's state, its troubles, its pending cancels, and what it recovered at its start."""
        known = facts()
        troubles = _troubles(service.trouble()) + service.restored() + service.ids_used()
        troubles += unreadable_troubles(service.unreadable())
        troubles += cluster_troubles(service.clusters()) + service.disk.warnings()
        troubles += maintenance.troubles() + service.notification_troubles()
        logins = [each for each in service.logins.views() if each["state"] == "login_required"]
        return status_answer(
            known,
            service.pending_cancels(),
            troubles,
            service.recovered(),
            service.unknown.last(),
            logins,
            service.sweeps.runners(),
        )

    @app.post("/v1/shutdown")
    def down(body: ShutdownBody | None = None) -> DownAnswer:
        """End koalad. Jobs run on, unless they are to be cancelled first."""
        cancel = body is not None and body.cancel
        shutdown(cancel)
        return {"schema": "koala.down/1", "grid": facts()["grid"], "cancel": cancel}

    _add_records(app, service)
    _add_maintenance(app, maintenance)


def _add_records(app: FastAPI, service: Service) -> None:
    @app.get("/v1/journal", responses={200: {"model": JournalAnswer}})
    def journal() -> Response:
        """Return the last batches of events and koalad's decisions, without secrets. Both can be replayed."""
        text = json.dumps(dump(service.journal(), __version__))
        return Response(text, media_type="application/json")

    @app.get("/v1/unreadable")
    def unreadable() -> UnreadableAnswer:
        """List records of the store that koalad failed to read since its start."""
        return unreadable_answer(service.unreadable())

    @app.get("/v1/usage")
    def usage(by: By = By.USER, since: str | None = None, until: str | None = None) -> UsageAnswer:
        """Sum the processor-seconds of batch jobs, within [since, until) if given (RFC 3339)."""
        start, end = parse_bound(since), parse_bound(until)
        charged = service.charges(start, end) if by is By.SITE else {}
        return usage_view.answer(service.usage(by, start, end), by, start, end, charged)

    @app.get("/v1/disk")
    def disk() -> DiskAnswer:
        """Count the disk space that koalapy uses on the clusters and on koalad's host, in a minute at most."""
        return disk_answer(service.disk.count())


def _add_maintenance(app: FastAPI, runner: Runner) -> None:
    @app.get("/v1/maintenance")
    def maintenance() -> MaintenanceAnswer:
        """List the tasks of the grid file with their next and last runs."""
        return {"schema": "koala.maintenance/1", "tasks": [_task(each) for each in runner.entries()]}

    @app.post("/v1/maintenance/{name}/run")
    def run(name: str, body: MaintenanceBody | None = None) -> MaintenanceRunAnswer:
        """Run a task now. The answer comes when it is done."""
        wanted = body or MaintenanceBody()
        done = runner.run(name, wanted.dry_run, wanted.options)
        return {"schema": "koala.maintenance-run/1", "dry_run": wanted.dry_run, "run": _run(done)}


def status_answer(
    facts: KoaladFacts,
    pending_cancels: Iterable[Attempt],
    trouble: Iterable[str],
    recovered: Recovery,
    surveys: Iterable[Survey] = (),
    logins_required: Iterable[Login] = (),
    runners: Iterable[DescribedRunner] = (),
) -> StatusAnswer:
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
        "recovery": recovered,
        "unknown_tags": {
            "count": len(tags),
            "first": [unknown_tag(each) for each in tags[:_FIRST_TAGS]],
            "stores": by_store(tags),
        },
    }


def _task(each: Entry) -> MaintenanceTask:
    return {
        "name": each.entry.called,
        "task": each.entry.task,
        "cron": each.entry.cron,
        "next_at": optional_instant(each.next_at),
        "last": _run(each.last) if each.last is not None else None,
    }


def _run(run: MaintenanceRun) -> DescribedMaintenanceRun:
    return {
        "name": run.name,
        "task": run.task,
        "began_at": format_instant(run.began),
        "ended_at": optional_instant(run.ended),
        "ok": run.well,
        "message": run.message,
    }


def disk_answer(found: Iterable[OwnDiskUse]) -> DiskAnswer:
    """Answer with the disk space in each place."""
    return {"schema": "koala.disk/1", "places": [_place(each) for each in found]}


def _place(taken: OwnDiskUse) -> DiskPlace:
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


def parse_bound(text: str | None) -> Instant | None:
    """Parse an instant of a query. Raises RequestError for anything else than RFC 3339."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise RequestError("bad_instant", f"{error}.", "Give an instant as RFC 3339 has it.") from error


def _troubles(trouble: Reason | None) -> list[str]:
    return [f"Nothing new is taken up: {trouble}"] if trouble else []
