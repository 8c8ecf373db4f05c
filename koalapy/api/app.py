"""The HTTP API: every call of the service, an endpoint each."""

import itertools
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from koalapy import __version__
from koalapy.api import documents
from koalapy.api.documents import Document
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.identity import JobId
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.runtime.service import Service

MAX_BODY = 11 << 20  # a job file of 10 MB and its envelope
_LONGEST_WAIT_S = 60.0
_HTTP_STATUS = {"transient": 503, "site": 502, "request": 422, "ours": 500}


class JobText(BaseModel):
    """A job as its user wrote it: the text of a job file, or the same as a mapping."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = None
    job: dict[str, Any] | None = None
    source: str = "job.yaml"
    directory: str
    overrides: dict[str, str] = Field(default_factory=dict)
    key: str = Field(default="", max_length=200)


class CancelBody(BaseModel):
    force: bool = False


class ShutdownBody(BaseModel):
    cancel: bool = False


Reader = Callable[[JobText], Request]
Facts = Callable[[], Mapping[str, Any]]


def create_app(service: Service, read: Reader, facts: Facts, shutdown: Callable[[bool], None], owner: str) -> FastAPI:
    """`read` turns a job's text into a request, `facts` gives pid, grid and state, `shutdown(cancel)` ends koalad."""
    app = FastAPI(title="koalad", version=__version__, docs_url=None, redoc_url=None)
    app.add_exception_handler(KoalaError, _refuse)
    _add_jobs(app, service, read, owner)
    _add_answers(app, service)
    _add_koalad(app, service, facts, shutdown)
    return app


def _add_jobs(app: FastAPI, service: Service, read: Reader, owner: str) -> None:
    @app.post("/v1/jobs")
    def submit(body: JobText) -> Document:
        """Accept a job. The same key again answers with the same job."""
        return documents.submitted(service.submit(read(body), owner, body.key))

    @app.post("/v1/jobs/{job}/cancel")
    def cancel(job: JobId, body: CancelBody) -> Document:
        return documents.job_with_events(service.cancel(job, body.force), ())

    @app.post("/v1/jobs/{job}/hold")
    def hold(job: JobId) -> Document:
        return documents.job_with_events(service.hold(job), ())

    @app.post("/v1/jobs/{job}/release")
    def release(job: JobId) -> Document:
        return documents.job_with_events(service.release(job), ())


def _add_answers(app: FastAPI, service: Service) -> None:
    @app.get("/v1/jobs")
    def jobs(
        state: Annotated[list[JobState] | None, Query()] = None, id: Annotated[list[int] | None, Query()] = None
    ) -> Document:
        """All jobs by id, finished ones too."""
        return documents.jobs(service.jobs(state, None if id is None else [JobId(each) for each in id]))

    @app.get("/v1/wait")
    def wait(id: Annotated[list[int], Query()], timeout: float = _LONGEST_WAIT_S) -> Document:
        """The jobs once all of them are over, or as they are after `timeout` seconds (60 at most)."""
        found = service.wait([JobId(each) for each in id], min(timeout, _LONGEST_WAIT_S))
        return documents.jobs(found)

    @app.get("/v1/jobs/{job}")
    def show(job: JobId) -> Document:
        return documents.job_with_events(service.job(job), service.history(job))

    @app.get("/v1/jobs/{job}/explain")
    def explain(job: JobId) -> Document:
        return documents.explanation(service.job(job), service.explain(job))

    @app.get("/v1/jobs/{job}/output")
    def output(job: JobId, stream: str = "output", component: int | None = None, follow: bool = False) -> Any:
        """What the processes of the last attempt wrote, as bytes; `stream` is output or errors."""
        if stream not in ("output", "errors"):
            raise RequestError("no_such_stream", f"There is no stream {stream}.", "Ask for output or errors.")
        pieces = service.output(job, stream, component, follow)
        first = next(pieces, b"")  # what cannot be read is refused before the answer begins
        return StreamingResponse(itertools.chain([first], pieces), media_type="application/octet-stream")

    @app.get("/v1/clusters")
    def clusters() -> Document:
        return documents.clusters(service.clusters())


def _add_koalad(app: FastAPI, service: Service, facts: Facts, shutdown: Callable[[bool], None]) -> None:
    @app.get("/v1/status")
    def status() -> Document:
        known = facts()
        return documents.status(known["pid"], known["grid"], known["state"], service.debts(), service.troubles())

    @app.post("/v1/shutdown")
    def down(body: ShutdownBody) -> Document:
        shutdown(body.cancel)
        return {"schema": "koala.down/1", "cancel": body.cancel}


def _refuse(request: HttpRequest, error: Exception) -> JSONResponse:
    assert isinstance(error, KoalaError)
    found = {"no_such_job": 404, "wrong_state": 409}.get(error.reason.code)
    status = found or _HTTP_STATUS[error.reason.whose]
    return JSONResponse(documents.error(error.reason), status_code=status)
