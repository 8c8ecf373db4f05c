"""The part of the HTTP API that is about koalad itself: how it is, and its end."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Response

from koalapy import __version__
from koalapy.api import documents, schemas
from koalapy.api.bodies import ShutdownBody
from koalapy.api.documents import Document
from koalapy.api.schemas.answer import answering
from koalapy.journal.text import dump
from koalapy.model.errors import Reason
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.service import Service
from koalapy.views.clusters import cluster_troubles
from koalapy.views.status import unreadable_troubles

Facts = Callable[[], Mapping[str, Any]]  # pid, grid, grid_file, grid_file_changed and state


def add_itself(
    app: FastAPI, service: Service, facts: Facts, shutdown: Callable[[bool], None], maintenance: Runner
) -> None:
    @app.get("/v1/status", **answering(schemas.StatusAnswer))
    def status() -> Document:
        """Whether koalad is well, what troubles it, what it owes to clusters out of reach, and what it recovered."""
        known = facts()
        troubles = _troubles(service.trouble()) + service.restored() + service.ids_used()
        troubles += unreadable_troubles(service.unreadable())
        troubles += cluster_troubles(service.clusters()) + service.disk.warnings()
        troubles += maintenance.troubles()
        return documents.status(
            known, service.debts(), troubles, service.recovered(),
            service.unknown.last(), [documents.login(each) for each in service.logins.views() if each.state == "asks"],
            service.sweeps.runners(),
        )  # fmt: skip

    @app.get("/v1/journal", **answering(schemas.JournalAnswer))
    def journal() -> Response:
        """The last batches of events and what koalad decided, from which both can be replayed; without secrets."""
        text = json.dumps(dump(service.journal(), __version__))
        return Response(text, media_type="application/json")

    @app.post("/v1/shutdown", **answering(schemas.DownAnswer))
    def down(body: ShutdownBody | None = None) -> Document:
        """End koalad. Jobs run on, unless they are to be cancelled first."""
        cancel = body is not None and body.cancel
        shutdown(cancel)
        return {"schema": "koala.down/1", "grid": facts()["grid"], "cancel": cancel}


def _troubles(trouble: Reason | None) -> list[str]:
    return [f"Nothing new is taken up: {trouble}"] if trouble else []
