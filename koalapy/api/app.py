"""The app of the HTTP API, composed of the endpoints of each resource."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import FastAPI

from koalapy import __version__
from koalapy.answers import errors as answers
from koalapy.api.clusters import GridCalls, add_clusters
from koalapy.api.errors import BodyLimit, add_errors
from koalapy.api.files import add_files
from koalapy.api.forward import FORWARDED, add_forward
from koalapy.api.jobs import Reader, add_jobs
from koalapy.api.koalad import Facts, add_koalad
from koalapy.api.leases import add_leases
from koalapy.api.metrics import add_metrics
from koalapy.api.openapi import AnswerApp
from koalapy.api.pilots import add_pilots
from koalapy.api.sites import add_sites
from koalapy.api.sweeps import add_sweeps
from koalapy.runtime.leases import Leases
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.pilots import Pilots
from koalapy.runtime.service import Service

if TYPE_CHECKING:
    from koalapy.runtime.sites.changes import SiteChanges

MAX_BODY = 11_000_000  # a job file of 10 MB and its envelope


def create_app(
    service: Service,
    read: Reader,
    facts: Facts,
    shutdown: Callable[[bool], None],
    owner: str,
    maintenance: Runner,
    grid: GridCalls,
    pilots: Pilots,
    leases: Leases,
    sites: "SiteChanges | None" = None,
) -> FastAPI:
    """Build the app.

    `read` turns a job's text into a request. `facts` returns pid, grid and state. `shutdown(cancel)` ends koalad.
    `grid` changes its grid, `pilots` opens and closes clusters in it, and `leases` are those of other sites. `sites`:
    None for a grid that is no site.
    """
    app = AnswerApp(
        title="koalad",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": answers.ErrorAnswer, "description": "an error, with advice"}},
    )
    add_errors(app)
    app.add_middleware(BodyLimit, limit=MAX_BODY, unlimited=FORWARDED)
    add_jobs(app, service, read, facts, owner)
    add_files(app, service)
    add_forward(app, service)
    add_sweeps(app, service.sweeps)
    add_clusters(app, service, grid, facts)
    add_pilots(app, pilots)
    add_leases(app, leases)
    add_sites(app, sites, facts)
    add_koalad(app, service, facts, shutdown, maintenance)
    add_metrics(app, service, facts, sites)
    return app
