"""The part of the HTTP API that accepts jobs."""

import time
from collections.abc import Callable

from fastapi import FastAPI

from koalapy.api import documents, schemas
from koalapy.api.bodies import Again, JobText, JobTexts
from koalapy.api.documents import Document
from koalapy.api.itself import Facts
from koalapy.api.schemas.answer import answering
from koalapy.model.errors import RequestError, TransientError
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.runtime.resubmission import request_again, request_of_failed
from koalapy.runtime.service import Service

Reader = Callable[[JobText], Request]


def add_submitting(app: FastAPI, service: Service, read: Reader, facts: Facts, owner: str) -> None:
    @app.post("/v1/jobs", **answering(schemas.SubmitAnswer))
    def submit(body: JobText) -> Document:
        """Accept a job. The same key again answers with the same job."""
        _must_take_jobs(facts)
        begun = time.perf_counter()
        job = service.submit(read(body), owner, body.key)
        return documents.submitted(job, time.perf_counter() - begun)

    @app.post("/v1/jobs/{job}/resubmit", **answering(schemas.SubmitAnswer))
    def resubmit(job: JobId, body: Again) -> Document:
        """Accept the same job once more, or a sweep of the parameters that failed. The same key: see submit."""
        _must_take_jobs(facts)
        begun = time.perf_counter()
        found = service.job(job)
        request = request_of_failed(found) if body.failed else request_again(found)
        if body.overrides:
            request = _overridden(found, body, read)
        return documents.submitted(service.submit(request, owner, body.key), time.perf_counter() - begun)

    @app.post("/v1/jobs/batch", **answering(schemas.SubmitsAnswer))
    def submit_many(body: JobTexts) -> Document:
        """Accept many jobs, all or none of them, by one commit. The same keys again answer with the same jobs."""
        _must_take_jobs(facts)
        return documents.submitted_many(service.submit_many(_read_all(body.jobs, read), owner))

    @app.post("/v1/jobs/check", **answering(schemas.CheckAnswer))
    def check(body: JobTexts) -> Document:
        """What would be submitted: the jobs as they are understood, and whether they can ever fit. Nothing is."""
        return documents.checked(service.check([request for request, _ in _read_all(body.jobs, read)]))


def _overridden(job: Job, body: Again, read: Reader) -> Request:
    """The job with other values. Raises RequestError, also for a sweep, whose file alone has its parameters."""
    if job.runner is not None:
        message = f"Job {job.id} is a sweep, whose values cannot be changed."
        raise RequestError("is_sweep", message, "Submit its file again with -o, or resubmit it as it is.")
    mapping, source = documents.job_mapping(job.request), f"job {job.id}"
    return read(JobText(job=mapping, source=source, directory=job.request.directory, overrides=body.overrides))


def _read_all(jobs: list[JobText], read: Reader) -> list[tuple[Request, str]]:
    """Each with its key. Raises RequestError for the first that is none; of several, its place among them is named."""
    requests = []
    for place, job in enumerate(jobs, 1):
        try:
            requests.append((read(job), job.key))
        except RequestError as error:
            if len(jobs) == 1:
                raise
            message = f"Job {place} of {len(jobs)}: {error.reason.message}"
            raise RequestError(error.reason.code, message, error.reason.advice) from error
    return requests


def _must_take_jobs(facts: Facts) -> None:
    if facts()["state"] == "stopping":
        raise TransientError("stopping", "koalad is ending and takes no more jobs.", "Start it anew, then submit.")
