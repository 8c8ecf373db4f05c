"""The part of the HTTP API by which something is done with jobs: with one, or by one commit with many."""

from fastapi import FastAPI

from koalapy.api import documents, schemas
from koalapy.api.bodies import LONGEST_WAIT_S, CancelBody, CancelIds, FetchBody, Ids, Timeout
from koalapy.api.documents import Document
from koalapy.api.schemas.answer import answering
from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.runtime.service import Service


def add_changing(app: FastAPI, service: Service) -> None:
    @app.post("/v1/jobs/{job}/cancel", **answering(schemas.JobAnswer))
    def cancel(job: JobId, body: CancelBody | None = None) -> Document:
        """End a job: what runs is stopped, what waits is taken out of the queue."""
        return documents.job_with_events(service.cancel([job], body is not None and body.force).only(), ())

    @app.post("/v1/jobs/{job}/fetch", **answering(schemas.FetchAnswer))
    def fetch(job: JobId, body: FetchBody | None = None, timeout: Timeout = LONGEST_WAIT_S) -> Document:
        """Bring files that the job's last attempts left, once more. The same again waits for the same."""
        wanted = body or FetchBody()
        directory = wanted.directory or service.job(job).request.directory
        _must_be_absolute(directory)
        return documents.fetched(job, service.fetch(job, wanted.paths, directory, min(timeout, LONGEST_WAIT_S)))

    @app.post("/v1/jobs/{job}/hold", **answering(schemas.JobAnswer))
    def hold(job: JobId) -> Document:
        """Keep a job that has not started from being started."""
        return documents.job_with_events(service.hold([job]).only(), ())

    @app.post("/v1/jobs/{job}/release", **answering(schemas.JobAnswer))
    def release(job: JobId) -> Document:
        """Let a held job go."""
        return documents.job_with_events(service.release([job]).only(), ())

    @app.post("/v1/jobs/cancel", **answering(schemas.ChangedAnswer))
    def cancel_many(body: CancelIds) -> Document:
        """End many jobs, by one commit; of those with which that cannot be done it is said why."""
        return documents.changed(service.cancel(body.ids, body.force))

    @app.post("/v1/jobs/hold", **answering(schemas.ChangedAnswer))
    def hold_many(body: Ids) -> Document:
        """Keep many jobs from being started, by one commit."""
        return documents.changed(service.hold(body.ids))

    @app.post("/v1/jobs/release", **answering(schemas.ChangedAnswer))
    def release_many(body: Ids) -> Document:
        """Let many held jobs go, by one commit."""
        return documents.changed(service.release(body.ids))


def _must_be_absolute(directory: str) -> None:
    """Raises RequestError for a directory that would be relative to koalad's own."""
    if not directory.startswith("/"):
        message = f"The directory {directory!r} is not absolute."
        raise RequestError("bad_directory", message, "Name the one that the paths are relative to.")
