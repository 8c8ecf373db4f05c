"""The HTTP API: every call of the service, an endpoint each."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import anyio
import anyio.to_thread
from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from koalapy import __version__
from koalapy.api import documents, schemas
from koalapy.api.documents import Document
from koalapy.api.limits import BodyLimit
from koalapy.api.logins import add_logins, login
from koalapy.api.refusals import add_refusals
from koalapy.api.sweeps import add_sweeps
from koalapy.model.errors import KoalaError, Reason, RequestError, TransientError
from koalapy.model.identity import JobId
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.runtime.service import Service

MAX_BODY = 11_000_000  # a job file of 10 MB and its envelope
MOST_JOBS = 5000  # in one request
_LONGEST_WAIT_S = 60.0
_FOLLOWERS = 500  # outputs that are read at one time, each by a thread: apart from those of all other calls


class CutOff(Exception):
    """An answer that had begun cannot be finished."""


class JobText(BaseModel):
    """A job as its user wrote it: the text of a job file, or the same as a mapping."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = None
    job: dict[str, Any] | None = None
    source: str = Field(default="job.yaml", max_length=5000, description="its name, for messages and for its language")
    directory: str = Field(max_length=5000, description="absolute; the job's paths are relative to it")
    overrides: dict[str, str] = Field(default_factory=dict, description="values said anew, by their keys")
    key: str = Field(default="", max_length=200, description="the same key again is the same job")


class JobTexts(BaseModel):
    """Many jobs, each with a key of its own."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[JobText] = Field(min_length=1, max_length=MOST_JOBS)


class Ids(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ids: list[JobId] = Field(min_length=1, max_length=MOST_JOBS)


class CancelBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    force: bool = Field(default=False, description="do not wait for clusters out of reach")


class FetchBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    paths: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=1000, description="patterns; what the job stages out, if there are none"
    )
    directory: str | None = Field(default=None, max_length=5000, description="absolute; the job's own if not said")


class CancelIds(CancelBody, Ids):
    pass


class CleanBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cluster: str | None = Field(default=None, max_length=200, description="where it was seen last, if not said")


class ShutdownBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cancel: bool = Field(default=False, description="end all jobs first")


Reader = Callable[[JobText], Request]
Facts = Callable[[], Mapping[str, Any]]
Timeout = Annotated[float, Query(ge=0, allow_inf_nan=False, description="seconds; 60 at most")]


def create_app(service: Service, read: Reader, facts: Facts, shutdown: Callable[[bool], None], owner: str) -> FastAPI:
    """`read` turns a job's text into a request, `facts` gives pid, grid and state, `shutdown(cancel)` ends koalad."""
    app = FastAPI(
        title="koalad",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"model": schemas.ErrorAnswer, "description": "what is wrong, and what to do"}},
    )
    add_refusals(app)
    app.add_middleware(BodyLimit, limit=MAX_BODY)
    _add_jobs(app, service, read, facts, owner)
    _add_answers(app, service)
    _add_output(app, service)
    add_sweeps(app, service.sweeps)
    _add_unknown(app, service)
    add_logins(app, service.logins)
    _add_koalad(app, service, facts, shutdown)
    return app


def _answer(model: type) -> dict[str, Any]:
    """A documented answer, which is not built a second time to be checked."""
    return {"response_model": None, "responses": {200: {"model": model}}}


def _add_jobs(app: FastAPI, service: Service, read: Reader, facts: Facts, owner: str) -> None:
    @app.post("/v1/jobs", **_answer(schemas.SubmitAnswer))
    def submit(body: JobText) -> Document:
        """Accept a job. The same key again answers with the same job."""
        _must_take_jobs(facts)
        begun = time.perf_counter()
        job = service.submit(read(body), owner, body.key)
        return documents.submitted(job, time.perf_counter() - begun)

    @app.post("/v1/jobs/batch", **_answer(schemas.SubmitsAnswer))
    def submit_many(body: JobTexts) -> Document:
        """Accept many jobs, all or none of them, by one commit. The same keys again answer with the same jobs."""
        _must_take_jobs(facts)
        return documents.submitted_many(service.submit_many(_read_all(body.jobs, read), owner))

    @app.post("/v1/jobs/{job}/cancel", **_answer(schemas.JobAnswer))
    def cancel(job: JobId, body: CancelBody | None = None) -> Document:
        """End a job: what runs is stopped, what waits is taken out of the queue."""
        return documents.job_with_events(service.cancel([job], body is not None and body.force).only(), ())

    @app.post("/v1/jobs/{job}/fetch", **_answer(schemas.FetchAnswer))
    def fetch(job: JobId, body: FetchBody | None = None, timeout: Timeout = _LONGEST_WAIT_S) -> Document:
        """Bring files that the job's last attempts left, once more. The same again waits for the same."""
        wanted = body or FetchBody()
        directory = wanted.directory or service.job(job).request.directory
        must_be_absolute(directory)
        return documents.fetched(job, service.fetch(job, wanted.paths, directory, min(timeout, _LONGEST_WAIT_S)))

    @app.post("/v1/jobs/{job}/hold", **_answer(schemas.JobAnswer))
    def hold(job: JobId) -> Document:
        """Keep a job that has not started from being started."""
        return documents.job_with_events(service.hold([job]).only(), ())

    @app.post("/v1/jobs/{job}/release", **_answer(schemas.JobAnswer))
    def release(job: JobId) -> Document:
        """Let a held job go."""
        return documents.job_with_events(service.release([job]).only(), ())

    @app.post("/v1/jobs/cancel", **_answer(schemas.ChangedAnswer))
    def cancel_many(body: CancelIds) -> Document:
        """End many jobs, by one commit; of those with which that cannot be done it is said why."""
        return documents.changed(service.cancel(body.ids, body.force))

    @app.post("/v1/jobs/hold", **_answer(schemas.ChangedAnswer))
    def hold_many(body: Ids) -> Document:
        """Keep many jobs from being started, by one commit."""
        return documents.changed(service.hold(body.ids))

    @app.post("/v1/jobs/release", **_answer(schemas.ChangedAnswer))
    def release_many(body: Ids) -> Document:
        """Let many held jobs go, by one commit."""
        return documents.changed(service.release(body.ids))


def _read_all(jobs: list[JobText], read: Reader) -> list[tuple[Request, str]]:
    """Each with its key. Raises RequestError for the first that is none, which is named by its place among them."""
    requests = []
    for place, job in enumerate(jobs, 1):
        try:
            requests.append((read(job), job.key))
        except RequestError as error:
            message = f"Job {place} of {len(jobs)}: {error.reason.message}"
            raise RequestError(error.reason.code, message, error.reason.advice) from error
    return requests


def _must_take_jobs(facts: Facts) -> None:
    if facts()["state"] == "stopping":
        raise TransientError("stopping", "koalad is ending and takes no more jobs.", "Start it anew, then submit.")


def _add_answers(app: FastAPI, service: Service) -> None:
    @app.get("/v1/jobs", **_answer(schemas.JobsAnswer))
    def jobs(
        state: Annotated[list[JobState] | None, Query()] = None, id: Annotated[list[int] | None, Query()] = None
    ) -> Document:
        """All jobs by id, finished ones too; of these states and ids only, where they are given."""
        found = service.jobs(state, None if id is None else [JobId(each) for each in id])
        return documents.jobs(found, service.transfers([each.id for each in found]))

    @app.get("/v1/wait", **_answer(schemas.JobsAnswer))
    async def wait(id: Annotated[list[int], Query()], timeout: Timeout = _LONGEST_WAIT_S) -> Document:
        """The jobs once all of them are over, or as they are after `timeout` seconds."""
        ids = [JobId(each) for each in id]
        await _until_over(service, ids, min(timeout, _LONGEST_WAIT_S))
        return await run_in_threadpool(lambda: documents.jobs(service.over(ids), service.transfers(ids)))

    @app.get("/v1/jobs/{job}", **_answer(schemas.JobAnswer))
    def show(job: JobId) -> Document:
        """All of one job, and what has happened to it."""
        transfers = service.transfers([job]).get(job, [])
        return documents.job_with_events(service.job(job), service.history(job), transfers)

    @app.get("/v1/jobs/{job}/explain", **_answer(schemas.ExplainAnswer))
    def explain(job: JobId) -> Document:
        """Why a job is where it is, and what each cluster lacks for it."""
        return documents.explanation(service.explain(job))

    @app.get("/v1/clusters", **_answer(schemas.ClustersAnswer))
    def clusters() -> Document:
        """What is known of each cluster, in processors."""
        return documents.clusters(service.clusters())


def must_be_absolute(directory: str) -> None:
    """Raises RequestError for a directory that would be relative to koalad's own."""
    if not directory.startswith("/"):
        message = f"The directory {directory!r} is not absolute."
        raise RequestError("bad_directory", message, "Name the one that the paths are relative to.")


async def _until_over(service: Service, jobs: list[JobId], timeout_s: float) -> None:
    """Without a thread: any number of clients may wait."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(over.set)

    forget = await run_in_threadpool(service.when_over, jobs, tell)
    try:
        async with asyncio.timeout(timeout_s):
            await over.wait()
    except TimeoutError:
        pass
    finally:
        forget()


def _add_output(app: FastAPI, service: Service) -> None:
    followers = anyio.CapacityLimiter(_FOLLOWERS)

    @app.get(
        "/v1/jobs/{job}/output",
        response_class=StreamingResponse,
        responses={200: {"content": {"application/octet-stream": {}}, "description": "bytes, as they were written"}},
    )
    async def output(
        job: JobId,
        stream: Literal["output", "errors"] = "output",
        component: int | None = None,
        follow: bool = False,
        parameter: int | None = None,
    ) -> StreamingResponse:
        """What the last attempt's processes wrote, with `follow` until it has ended; or one parameter of a sweep."""
        if parameter is None:
            pieces = await run_in_threadpool(service.output, job, stream, component, follow)
        else:
            pieces = await run_in_threadpool(service.sweeps.output, job, parameter, stream)
        first = await _next(pieces, followers)  # what cannot be read is refused before the answer begins
        return StreamingResponse(_all(first, pieces, followers), media_type="application/octet-stream")


async def _all(first: bytes | None, pieces: Iterator[bytes], followers: anyio.CapacityLimiter) -> AsyncIterator[bytes]:
    """An error cuts the answer off, so that nobody takes it for whole."""
    piece = first
    while piece is not None:
        yield piece
        try:
            piece = await _next(pieces, followers)
        except KoalaError as error:
            raise CutOff(str(error)) from error


async def _next(pieces: Iterator[bytes], followers: anyio.CapacityLimiter) -> bytes | None:
    """None at the end."""
    found = await anyio.to_thread.run_sync(lambda: next(pieces, None), abandon_on_cancel=True, limiter=followers)
    return found


def _add_unknown(app: FastAPI, service: Service) -> None:
    @app.get("/v1/unknown", **_answer(schemas.UnknownAnswer))
    def unknown(cluster: Annotated[list[str] | None, Query()] = None) -> Document:
        """Tags of koalapy on the clusters, or on these, that this store does not know; the clusters are asked now."""
        return documents.unknown(service.unknown.look(cluster or ()))

    @app.post("/v1/unknown/{tag}/clean", **_answer(schemas.CleanAnswer))
    def clean(tag: str, body: CleanBody | None = None, timeout: Timeout = _LONGEST_WAIT_S) -> Document:
        """Revoke such a tag, cancel its batch job and, once nothing is left, remove its directory.

        It may be somebody's live job, of another store of the same person. The same again waits for the same.
        """
        cluster = service.unknown.place_of(tag, body.cluster if body else None)
        return documents.cleaned(cluster, tag, service.unknown.clean(cluster, tag, min(timeout, _LONGEST_WAIT_S)))


def _add_koalad(app: FastAPI, service: Service, facts: Facts, shutdown: Callable[[bool], None]) -> None:
    @app.get("/v1/status", **_answer(schemas.StatusAnswer))
    def status() -> Document:
        """Whether koalad is well, what troubles it, what it owes to clusters out of reach, and what it recovered."""
        known = facts()
        troubles = _troubles(service.trouble()) + service.restored() + documents.cluster_troubles(service.clusters())
        return documents.status(
            known["pid"], known["grid"], known["state"], service.debts(), troubles, service.recovered(),
            service.unknown.last(), [login(each) for each in service.logins.views() if each.state == "asks"],
            service.sweeps.runners(),
        )  # fmt: skip

    @app.post("/v1/shutdown", **_answer(schemas.DownAnswer))
    def down(body: ShutdownBody | None = None) -> Document:
        """End koalad. Jobs run on, unless they are to be cancelled first."""
        cancel = body is not None and body.cancel
        shutdown(cancel)
        return {"schema": "koala.down/1", "grid": facts()["grid"], "cancel": cancel}


def _troubles(trouble: Reason | None) -> list[str]:
    return [f"Nothing new is taken up: {trouble}"] if trouble else []
