"""The part of the HTTP API that is about maintenance."""

from fastapi import FastAPI

from koalapy.api import documents, schemas
from koalapy.api.bodies import MaintenanceBody
from koalapy.api.documents import Document
from koalapy.api.schemas.answer import answering
from koalapy.runtime.maintenance.runner import Runner


def add_maintenance(app: FastAPI, runner: Runner) -> None:
    @app.get("/v1/maintenance", **answering(schemas.MaintenanceAnswer))
    def maintenance() -> Document:
        """The tasks of the grid file, when each runs next, and how its last run went."""
        return documents.maintenance(runner.entries())

    @app.post("/v1/maintenance/{name}/run", **answering(schemas.MaintenanceRunAnswer))
    def run(name: str, body: MaintenanceBody | None = None) -> Document:
        """Run a task now, and answer when it is done."""
        wanted = body or MaintenanceBody()
        return documents.maintenance_run(runner.run(name, wanted.dry_run, wanted.options), wanted.dry_run)
