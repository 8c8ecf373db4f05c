"""The HTTP API as one application, of its parts."""

from collections.abc import Callable

from fastapi import FastAPI

from koalapy import __version__
from koalapy.api import schemas
from koalapy.api.changing import add_changing
from koalapy.api.itself import Facts, add_itself
from koalapy.api.logins import add_logins
from koalapy.api.maintenance import add_maintenance
from koalapy.api.metrics import add_metrics
from koalapy.api.output import add_output
from koalapy.api.refusals import BodyLimit, add_refusals
from koalapy.api.submitting import Reader, add_submitting
from koalapy.api.sweeps import add_sweeps
from koalapy.api.telling import add_telling
from koalapy.api.unknown import add_unknown
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.service import Service

MAX_BODY = 11_000_000  # a job file of 10 MB and its envelope


def create_app(
    service: Service,
    read: Reader,
    facts: Facts,
    shutdown: Callable[[bool], None],
    owner: str,
    maintenance: Runner,
) -> FastAPI:
    """`read` turns a job's text into a request, `facts` gives pid, grid and state, `shutdown(cancel)` ends koalad."""
    app = FastAPI(
        title="koalad",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": schemas.ErrorAnswer, "description": "an error, with advice"}},
    )
    add_refusals(app)
    app.add_middleware(BodyLimit, limit=MAX_BODY)
    add_submitting(app, service, read, facts, owner)
    add_changing(app, service)
    add_telling(app, service)
    add_output(app, service)
    add_sweeps(app, service.sweeps)
    add_unknown(app, service.unknown)
    add_logins(app, service.logins)
    add_maintenance(app, maintenance)
    add_itself(app, service, facts, shutdown, maintenance)
    add_metrics(app, service, facts)
    return app
