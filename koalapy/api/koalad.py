"""koalad itself in the HTTP API: status, shutdown, journal, usage, disk space, unreadable records, maintenance."""

import json
from collections.abc import Callable

from fastapi import FastAPI, Response

from koalapy import __version__, answers
from koalapy.api import documents
from koalapy.api.bodies import MaintenanceBody, ShutdownBody
from koalapy.journal.text import dump
from koalapy.model.errors import Reason, RequestError
from koalapy.model.units import Instant, parse_instant
from koalapy.model.usage import By
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.service import Service
from koalapy.views.clusters import cluster_troubles
from koalapy.views.status import unreadable_troubles

Facts = Callable[[], answers.KoaladFacts]


def add_koalad(
    app: FastAPI, service: Service, facts: Facts, shutdown: Callable[[bool], None], maintenance: Runner
) -> None:
    """Add the endpoints of koalad itself. `shutdown(cancel)` ends it, after it has cancelled all jobs if `cancel`."""

    @app.get("/v1/status")
    def status() -> answers.StatusAnswer:
        """Report koalad's state, its troubles, its pending cancels, and what it recovered at its start."""
        known = facts()
        troubles = _troubles(service.trouble()) + service.restored() + service.ids_used()
        troubles += unreadable_troubles(service.unreadable())
        troubles += cluster_troubles(service.clusters()) + service.disk.warnings()
        troubles += maintenance.troubles() + service.notification_troubles()
        logins = [documents.login(each) for each in service.logins.views() if each.state == "login_required"]
        return documents.status(
            known,
            service.pending_cancels(),
            troubles,
            service.recovered(),
            service.unknown.last(),
            logins,
            service.sweeps.runners(),
        )

    @app.post("/v1/shutdown")
    def down(body: ShutdownBody | None = None) -> answers.DownAnswer:
        """End koalad. Jobs run on, unless they are to be cancelled first."""
        cancel = body is not None and body.cancel
        shutdown(cancel)
        return {"schema": "koala.down/1", "grid": facts()["grid"], "cancel": cancel}

    _add_records(app, service)
    _add_maintenance(app, maintenance)


def _add_records(app: FastAPI, service: Service) -> None:
    @app.get("/v1/journal", responses={200: {"model": answers.JournalAnswer}})
    def journal() -> Response:
        """Return the last batches of events and koalad's decisions, without secrets. Both can be replayed."""
        text = json.dumps(dump(service.journal(), __version__))
        return Response(text, media_type="application/json")

    @app.get("/v1/unreadable")
    def unreadable() -> answers.UnreadableAnswer:
        """List records of the store that koalad failed to read since its start."""
        return documents.unreadable(service.unreadable())

    @app.get("/v1/usage")
    def usage(by: By = By.USER, since: str | None = None, until: str | None = None) -> answers.UsageAnswer:
        """Sum the processor-seconds of batch jobs, within [since, until) if given (RFC 3339)."""
        start, end = parse_bound(since), parse_bound(until)
        charged = service.charges(start, end) if by is By.SITE else {}
        return documents.usage(service.usage(by, start, end), by, start, end, charged)

    @app.get("/v1/disk")
    def disk() -> answers.DiskAnswer:
        """Count the disk space that koalapy uses on the clusters and on koalad's host, in a minute at most."""
        return documents.disk(service.disk.count())


def _add_maintenance(app: FastAPI, runner: Runner) -> None:
    @app.get("/v1/maintenance")
    def maintenance() -> answers.MaintenanceAnswer:
        """List the tasks of the grid file with their next and last runs."""
        return documents.maintenance(runner.entries())

    @app.post("/v1/maintenance/{name}/run")
    def run(name: str, body: MaintenanceBody | None = None) -> answers.MaintenanceRunAnswer:
        """Run a task now. The answer comes when it is done."""
        wanted = body or MaintenanceBody()
        return documents.maintenance_run(runner.run(name, wanted.dry_run, wanted.options), wanted.dry_run)


def parse_bound(text: str | None) -> Instant | None:
    """Parse an instant of a query. Raises RequestError for anything else than RFC 3339."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise RequestError("bad_instant", f"{error}.", "Give an instant as RFC 3339 has it.") from error


def _troubles(trouble: Reason | None) -> list[str]:
    return [f"Nothing new is taken up: {trouble}"] if trouble else []
