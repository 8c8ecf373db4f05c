"""`koala jobs` and `koala show`: jobs, sweeps and flows, their components, requests and history."""

from collections.abc import Iterable, Mapping
from typing import Literal, cast

from koalapy.answers.jobs import (
    Candidate,
    ChangedAnswer,
    Component,
    ComponentStateName,
    FlowProgress,
    JobAnswer,
    JobRequest,
    JobsAnswer,
    KeptOutput,
    Refusal,
    SweepParameter,
    Transfer,
)
from koalapy.answers.jobs import Job as DescribedJob
from koalapy.answers.jobs import SentJob as DescribedSentJob
from koalapy.answers.sweeps import JobStateName
from koalapy.coallocation.changeable import Changed
from koalapy.languages.mapping import job_mapping
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import NOT_PLACED, Job
from koalapy.model.parameters import Source
from koalapy.model.request import Request
from koalapy.model.sent import Sent, SentJob
from koalapy.model.sweep import Sweep
from koalapy.model.textfile.words import valid_text
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.model.work import Flow, Work
from koalapy.views.fields import optional_instant, reason
from koalapy.views.history import event
from koalapy.views.matching import choice
from koalapy.views.sweeps import progress

JobType = Literal["ordered", "unordered", "mixed", "sweep", "flow", "pilot", "sent"]
NotifyOnName = Literal["started", "done", "failed", "cancelled"]
Transfers = Mapping[JobId, list[Transfer]]


def jobs(found: Iterable[Work], transfers: Transfers | None = None) -> JobsAnswer:
    """Answer with these jobs and sweeps."""
    moving = transfers or {}
    return {"schema": "koala.jobs/1", "jobs": [job(each, moving.get(each.id, ())) for each in found]}


def job_with_history(found: Work, history: Iterable[History] = (), transfers: Iterable[Transfer] = ()) -> JobAnswer:
    """Answer with a job or a sweep, its request and its history."""
    written = found.written if isinstance(found, Job) else None
    history = list(history)
    return {
        "schema": "koala.job/1",
        "job": job(found, transfers),
        "request": request(written or found.request),
        "notify": [
            {"to": str(each.to), "on": [cast(NotifyOnName, str(change)) for change in each.on]}
            for each in found.request.notify or ()
        ],
        "candidates": candidates(history),
        "events": [event(each) for each in history],
    }


def candidates(history: Iterable[History]) -> list[Candidate]:
    """Return the attempts of the last try whose components waited in several queues, from the lines of a history."""
    found: dict[tuple[int, int], Candidate] = {}
    raced: dict[int, None] = {}
    for line in history:
        if line.kind == HistoryKind.JOB_CLAIMED:
            raced.clear()
            numbers = line.details.get("numbers") or {}
            first = {(int(index), numbers[index]): line.details["clusters"][index] for index in numbers}
            found = {key: _candidate(line.at, *key, cluster) for key, cluster in first.items()}
            continue
        component, attempt = line.details.get("component"), line.details.get("attempt")
        if not isinstance(component, int) or not isinstance(attempt, int):
            continue
        if line.kind == HistoryKind.CANDIDATE_QUEUED:
            raced[component] = None
        if line.kind in (HistoryKind.CANDIDATE_QUEUED, HistoryKind.COMPONENT_QUEUED_AGAIN):
            found[component, attempt] = _candidate(line.at, component, attempt, line.details["cluster"])
        elif (each := found.get((component, attempt))) is not None:
            each["batch_id"] = line.details.get("batch_id") or each["batch_id"]
            each["ended"] = each["ended"] or _ENDS.get(line.kind)
    return [each for each in found.values() if each["component"] in raced]


_ENDS: dict[str, Literal["won", "lost", "cancelled"]] = {
    HistoryKind.CANDIDATE_WON: "won",
    HistoryKind.CANDIDATE_LOST: "lost",
    HistoryKind.SUBMISSION_FAILED: "lost",
    HistoryKind.ATTEMPT_CLEANED_UP: "cancelled",
    HistoryKind.CANCEL_PENDING: "cancelled",
}


def _candidate(at: Instant, component: int, attempt: int, cluster: str) -> Candidate:
    return {
        "component": component, "attempt": attempt, "cluster": cluster, "batch_id": None,
        "queued_at": format_instant(at), "ended": None,
    }  # fmt: skip


def changed(found: Changed) -> ChangedAnswer:
    """Answer with the jobs and sweeps that were changed, and those that could not be."""
    refused: list[Refusal] = [{"id": id, "error": reason(error.reason)} for id, error in found.refused.items()]
    return {"schema": "koala.changed/1", "jobs": [job(each) for each in found.work], "refused": refused}


def job(work: Work, transfers: Iterable[Transfer] = ()) -> DescribedJob:
    """Describe work of any kind. `transfers`: its transfers that are under way."""
    described: DescribedJob = {
        "id": work.id,
        "name": work.request.name,
        "owner": work.owner,
        "state": cast(JobStateName, str(work.state)),
        "priority": work.request.priority,
        "labels": dict(work.request.labels),
        "type": "sweep",
        "submitted_at": format_instant(work.submitted_at),
        "started_at": optional_instant(work.started_at),
        "finished_at": optional_instant(work.finished_at),
        "submission_failures": 0,
        "completion_failures": 0,
        "held_processor_seconds": 0.0,
        "reason": str(work.reason) if work.reason else None,
        "reason_code": work.reason.code if work.reason else None,
        "kept_output": "none",
        "components": [],
        "transfers": list(transfers),
        "sweep": None,
        "flow": None,
        "part_of": work.part_of,
        "site": work.request.site,
        "sent": None,
        "after": list(work.request.after),
        "choices": [],
        "choice": None,
        "suspended_for": None,
    }
    match work:
        case Sweep():
            described["sweep"] = progress(work)
        case Flow():
            described["type"] = "flow"
            described["flow"] = flow(work)
        case SentJob():
            described["type"] = "sent"
            described["sent"] = sent(work.sent) if work.sent else None
        case Job():
            _describe_job(described, work)
    return described


def _describe_job(described: DescribedJob, work: Job) -> None:
    """Add what only a job has."""
    pilot = work.request.pilot is not None
    described["type"] = "pilot" if pilot else cast(JobType, str(work.request.type))
    described["submission_failures"] = work.submission_failures
    described["completion_failures"] = work.completion_failures
    described["held_processor_seconds"] = round(work.held_processor_us / SECOND, 6)
    described["kept_output"] = cast(KeptOutput, str(work.kept_output))
    described["components"] = [component(work, index) for index in range(len(work.request.components))]
    described["choices"] = [choice(each) for each in work.choices]
    described["choice"] = work.choice if work.choices else None
    described["suspended_for"] = work.suspended_for


def flow(progress: Flow) -> FlowProgress:
    """Describe the progress of a flow."""
    return {
        "jobs": progress.count,
        "done": progress.done,
        "failed": progress.failed,
        "cancelled": progress.cancelled,
    }


def sent(found: Sent) -> DescribedSentJob:
    """Describe what another site has reported of a job that it runs."""
    return {
        "job": found.job or None,
        "state": cast(JobStateName, str(found.state)),
        "jobs": found.count,
        "done": found.done,
    }


def component_state(job: Job, index: int) -> ComponentStateName:
    """Return the state of a component's present attempt, or the way it ended; `waiting` without an attempt.

    A component that the job's placement omits is `cancelled`. One that never started is `not_started` in the end.
    """
    attempt = job.attempt(index)
    if attempt is not None:
        return cast(ComponentStateName, str(attempt.ending or attempt.state))
    if job.claimed_at is not None:
        return "cancelled"
    return "not_started" if job.state.final else "waiting"


def component(job: Job, index: int) -> Component:
    """Describe a component: what it asks for, and its present attempt (DCS, section 3.5)."""
    asked, attempt = job.request.components[index], job.attempt(index)
    described: Component = {
        "index": index,
        "cluster": None,
        "named_cluster": asked.cluster,
        "processors": asked.processors,
        "walltime_s": asked.walltime / SECOND,
        "state": component_state(job, index),
        "attempt": job.number_of(index) if attempt is None else attempt.id.number,
        "batch_id": None,
        "hosts": [],
        "exit_status": None,
        "queued_at": None,
        "at_barrier_at": None,
        "released_at": None,
        "started_at": None,
        "ended_at": None,
        "silent_since": None,
        "reason": None if attempt is not None or job.claimed_at is None else str(NOT_PLACED),
    }
    if attempt is None:
        return described
    silent = attempt.is_silent and attempt.detached_at is None
    described["cluster"] = attempt.cluster
    described["batch_id"] = attempt.batch_id or None
    described["hosts"] = list(dict.fromkeys(node.name for node in attempt.nodes))
    described["exit_status"] = attempt.exit_status
    described["queued_at"] = optional_instant(attempt.queued_at)
    described["at_barrier_at"] = optional_instant(attempt.at_barrier_at)
    described["released_at"] = optional_instant(attempt.released_at)
    described["started_at"] = optional_instant(attempt.started_at)
    described["ended_at"] = optional_instant(attempt.ended_at)
    described["silent_since"] = optional_instant(attempt.silent_since) if silent else None
    described["reason"] = str(attempt.reason) if attempt.reason else attempt.pending_reason or None
    return described


def request(found: Request) -> JobRequest:
    """Describe a request. Its `job` submits the same again, but for the parameters of a sweep."""
    parameters = (
        [_source(source) for axis in found.parameters.axes for source in axis.sources] if found.parameters else []
    )
    return {"directory": valid_text(found.directory), "job": job_mapping(found), "parameters": parameters}


def _source(found: Source) -> SweepParameter:
    return {
        "names": list(found.names),
        "loop": list(found.loop) if found.loop else None,
        "without": list(found.without),
        "values": [valid_text(each) for each in found.values],
        "file": valid_text(found.file) or None,
        "column": found.column if found.column >= 0 else None,
    }
