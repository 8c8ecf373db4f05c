"""The jobs of the HTTP API: submit, list, wait for, explain, hold, release and cancel them."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool

from koalapy.answers.clusters import MatchAnswer
from koalapy.answers.jobs import (
    ChangedAnswer,
    CheckAnswer,
    ExplainAnswer,
    JobAnswer,
    JobsAnswer,
    SubmitAnswer,
    SubmitsAnswer,
    TreeAnswer,
)
from koalapy.api.bodies import LONGEST_WAIT_S, Again, CancelBody, CancelIds, Ids, JobText, JobTexts, Timeout
from koalapy.api.koalad import Facts
from koalapy.languages.mapping import job_mapping
from koalapy.model.errors import RequestError, TransientError
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.labels import has_labels, wanted_label
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.work import Flow, Work
from koalapy.runtime.resubmission import request_again, request_of_failed, request_of_flow
from koalapy.runtime.service import Service
from koalapy.views import checking, matching
from koalapy.views import jobs as views
from koalapy.views.flow_tree import flow_tree

Reader = Callable[[JobText], Request]


def add_jobs(app: FastAPI, service: Service, read: Reader, facts: Facts, owner: str) -> None:
    """Add the endpoints of jobs. `read` parses a job's text; submitted jobs belong to `owner`."""
    _add_submission(app, service, read, facts, owner)
    _add_queries(app, service)
    _add_actions(app, service)


def _add_submission(app: FastAPI, service: Service, read: Reader, facts: Facts, owner: str) -> None:
    @app.post("/v1/jobs")
    def submit(body: JobText) -> SubmitAnswer:
        """Accept a job or a flow. A repeated request with the same key returns the same job."""
        _must_accept_jobs(facts)
        begun = time.perf_counter()
        return _submitted(service.submit(read(body), owner, body.key), begun)

    @app.post("/v1/jobs/{job}/resubmit")
    def resubmit(job: JobId, body: Again) -> SubmitAnswer:
        """Accept the same job again, or what failed of a sweep or a flow. The key works as in a submission."""
        _must_accept_jobs(facts)
        begun = time.perf_counter()
        found = service.work(job)
        if isinstance(found, Flow):
            request = request_of_flow(found, service.jobs_of_flow(job), body.failed)
        else:
            request = request_of_failed(found) if body.failed else request_again(found)
        if body.overrides:
            request = _overridden(found, body, read)
        return _submitted(service.submit(request, owner, body.key), begun)

    @app.post("/v1/jobs/batch")
    def submit_many(body: JobTexts) -> SubmitsAnswer:
        """Accept all of these jobs or none, in one commit. The keys work as in a submission."""
        _must_accept_jobs(facts)
        return {"schema": "koala.submits/1", "ids": [*service.submit_many(_read_all(body.jobs, read), owner)]}

    @app.post("/v1/jobs/check")
    def check(body: JobTexts) -> CheckAnswer:
        """Show the jobs as koalad understands them, and whether they can ever fit. Nothing is submitted."""
        return checking.answer(service.check([request for request, _ in _read_all(body.jobs, read)]))

    @app.post("/v1/match")
    def match(body: JobText) -> MatchAnswer:
        """List the clusters and groups of clusters that the job fits on now. Nothing is submitted."""
        request = read(body)
        return matching.answer(request, *service.match(request))


def _add_queries(app: FastAPI, service: Service) -> None:
    @app.get("/v1/jobs")
    def jobs(
        state: Annotated[list[JobState] | None, Query()] = None,
        id: Annotated[list[int] | None, Query()] = None,
        label: Annotated[list[str] | None, Query(description="KEY, or KEY=VALUE; a job has all of them")] = None,
        flow: Annotated[int | None, Query(description="id of a flow, whose jobs are wanted")] = None,
        parts: Annotated[bool, Query(description="false: without the jobs of flows")] = True,
    ) -> JobsAnswer:
        """List jobs by id, final ones included; `state`, `id`, `label`, `flow` and `parts` select among them."""
        wanted = [wanted_label(each) for each in label or ()]
        if flow is not None:
            ids = None if id is None else set(id)
            stored = [each for each in service.jobs_of_flow(JobId(flow), state) if ids is None or each.id in ids]
        else:
            stored = service.all_work(state, None if id is None else [JobId(each) for each in id])
        among = [each for each in stored if parts or each.part_of is None]
        found = [each for each in among if has_labels(each.request.labels, wanted)]
        return views.jobs(found, service.transfers([each.id for each in found]))

    @app.get("/v1/wait")
    async def wait(id: Annotated[list[int], Query()], timeout: Timeout = LONGEST_WAIT_S) -> JobsAnswer:
        """Return the jobs when all of them are final, or after `timeout` seconds in the states that they have then."""
        ids = [JobId(each) for each in id]
        await _until_final(service, ids, min(timeout, LONGEST_WAIT_S))
        return await run_in_threadpool(lambda: views.jobs(service.work_after_wait(ids), service.transfers(ids)))

    @app.get("/v1/jobs/{job}")
    def show(job: JobId) -> JobAnswer:
        """Show one job with its request and history."""
        transfers = service.transfers([job]).get(job, [])
        return views.job_with_history(service.work(job), service.history(job), transfers)

    @app.get("/v1/jobs/{job}/tree")
    def tree(
        job: JobId,
        skip: Annotated[int, Query(ge=0, description="jobs to leave out before the first")] = 0,
        most: Annotated[int, Query(ge=0, le=1_000, description="jobs to list")] = 200,
    ) -> TreeAnswer:
        """Show a part of the tree of a flow, in its order, and count all its jobs by state."""
        return flow_tree(job, service.jobs_of_flow(job), skip, most)

    @app.get("/v1/jobs/{job}/explain")
    def explain(job: JobId) -> ExplainAnswer:
        """Explain the state of a job, and list what each cluster lacks for it."""
        return service.explain(job)


def _add_actions(app: FastAPI, service: Service) -> None:
    @app.post("/v1/jobs/{job}/cancel")
    def cancel(job: JobId, body: CancelBody | None = None) -> JobAnswer:
        """Cancel a job: stop its programs, or remove it from the wait queue. Of a flow, all jobs are cancelled."""
        return views.job_with_history(service.cancel([job], body is not None and body.force).only())

    @app.post("/v1/jobs/{job}/hold")
    def hold(job: JobId) -> JobAnswer:
        """Keep a waiting job from being placed."""
        return views.job_with_history(service.hold([job]).only())

    @app.post("/v1/jobs/{job}/release")
    def release(job: JobId) -> JobAnswer:
        """Allow a held job to be placed again."""
        return views.job_with_history(service.release([job]).only())

    @app.post("/v1/jobs/cancel")
    def cancel_many(body: CancelIds) -> ChangedAnswer:
        """Cancel many jobs in one commit. `refused` lists the others, each with the reason."""
        return views.changed(service.cancel(body.ids, body.force))

    @app.post("/v1/jobs/hold")
    def hold_many(body: Ids) -> ChangedAnswer:
        """Hold many jobs in one commit."""
        return views.changed(service.hold(body.ids))

    @app.post("/v1/jobs/release")
    def release_many(body: Ids) -> ChangedAnswer:
        """Allow many held jobs to be placed again, in one commit."""
        return views.changed(service.release(body.ids))


def _submitted(job: JobId, begun: float) -> SubmitAnswer:
    return {"schema": "koala.submit/1", "id": job, "accepted_s": round(time.perf_counter() - begun, 6)}


def _overridden(job: Work, body: Again, read: Reader) -> Request:
    """Read the job's request again with other values. Raises RequestError, also for a sweep or a flow."""
    if isinstance(job, Flow):
        message = f"Job {job.id} is a flow, whose values cannot be changed."
        raise RequestError("is_flow", message, "Submit its file again with -o, or resubmit it as it is.")
    if isinstance(job, Sweep):
        message = f"Job {job.id} is a sweep, whose values cannot be changed."
        raise RequestError("is_sweep", message, "Submit its file again with -o, or resubmit it as it is.")
    written = job.written if isinstance(job, Job) else None
    mapping, source = job_mapping(written or job.request), f"job {job.id}"
    return read(JobText(job=mapping, source=source, directory=job.request.directory, overrides=body.overrides))


def _read_all(jobs: list[JobText], read: Reader) -> list[tuple[Request, str]]:
    """Read each job, with its key. Raises RequestError for the first invalid one, with its number in the list."""
    requests = []
    for number, job in enumerate(jobs, 1):
        try:
            requests.append((read(job), job.key))
        except RequestError as error:
            if len(jobs) == 1:
                raise
            message = f"Job {number} of {len(jobs)}: {error.reason.message}"
            raise RequestError(error.reason.code, message, error.reason.advice) from error
    return requests


def _must_accept_jobs(facts: Facts) -> None:
    if facts()["state"] == "stopping":
        raise TransientError("stopping", "koalad is ending and takes no more jobs.", "Start it anew, then submit.")


async def _until_final(service: Service, jobs: list[JobId], timeout_s: float) -> None:
    """Wait without a thread, so that any number of clients may do so."""
    loop, final = asyncio.get_running_loop(), asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(final.set)

    forget = await run_in_threadpool(service.when_final, jobs, notify)
    try:
        async with asyncio.timeout(timeout_s):
            await final.wait()
    except TimeoutError:
        pass
    finally:
        forget()
