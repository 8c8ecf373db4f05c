"""The part of the HTTP API that tells of jobs and clusters, and of jobs when they are over."""

import asyncio
import contextlib
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool

from koalapy.api import documents, schemas
from koalapy.api.bodies import LONGEST_WAIT_S, Timeout
from koalapy.api.documents import Document
from koalapy.api.schemas.answer import answering
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.labels import has_labels, wanted_label
from koalapy.model.states import JobState
from koalapy.model.units import Instant, parse_instant
from koalapy.model.usage import By
from koalapy.runtime.service import Service


def add_telling(app: FastAPI, service: Service) -> None:
    @app.get("/v1/jobs", **answering(schemas.JobsAnswer))
    def jobs(
        state: Annotated[list[JobState] | None, Query()] = None,
        id: Annotated[list[int] | None, Query()] = None,
        label: Annotated[list[str] | None, Query(description="KEY, or KEY=VALUE; a job has all of them")] = None,
    ) -> Document:
        """All jobs by id, finished ones too; of these states, ids and labels only, where they are given."""
        wanted = [wanted_label(each) for each in label or ()]
        stored = service.jobs(state, None if id is None else [JobId(each) for each in id])
        found = [each for each in stored if has_labels(each.request.labels, wanted)]
        return documents.jobs(found, service.transfers([each.id for each in found]))

    @app.get("/v1/wait", **answering(schemas.JobsAnswer))
    async def wait(id: Annotated[list[int], Query()], timeout: Timeout = LONGEST_WAIT_S) -> Document:
        """The jobs once all of them are over, or as they are after `timeout` seconds."""
        ids = [JobId(each) for each in id]
        await _until_over(service, ids, min(timeout, LONGEST_WAIT_S))
        return await run_in_threadpool(lambda: documents.jobs(service.over(ids), service.transfers(ids)))

    @app.get("/v1/jobs/{job}", **answering(schemas.JobAnswer))
    def show(job: JobId) -> Document:
        """All of one job, and what has happened to it."""
        transfers = service.transfers([job]).get(job, [])
        return documents.job_with_events(service.job(job), service.history(job), transfers)

    @app.get("/v1/jobs/{job}/explain", **answering(schemas.ExplainAnswer))
    def explain(job: JobId) -> Document:
        """Why a job is where it is, and what each cluster lacks for it."""
        found = service.explain(job)
        return documents.explanation(found, service.history(job) if found.job.state.final else ())

    @app.get("/v1/unreadable", **answering(schemas.UnreadableAnswer))
    def unreadable() -> Document:
        """Records of the store that could not be read so far: of jobs that are not over, and of those asked for."""
        return documents.unreadable(service.unreadable())

    @app.get("/v1/usage", **answering(schemas.UsageAnswer))
    def usage(by: By = By.USER, since: str | None = None, until: str | None = None) -> Document:
        """Processor-seconds of batch jobs, within [since, until) where they are given (RFC 3339)."""
        start, end = instant_of(since), instant_of(until)
        return documents.usage(service.usage(by, start, end), by, start, end)

    @app.get("/v1/clusters", **answering(schemas.ClustersAnswer))
    def clusters() -> Document:
        """What is known of each cluster, in processors."""
        return documents.clusters(service.clusters())

    @app.get("/v1/disk", **answering(schemas.DiskAnswer))
    def disk() -> Document:
        """What koalapy takes up of disks, on the clusters and here: it is counted now, in a minute at most."""
        return documents.disk(service.disk.count())


def instant_of(text: str | None) -> Instant | None:
    """Raises RequestError for what is no instant."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise RequestError("bad_instant", f"{error}.", "Give an instant as RFC 3339 has it.") from error


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
