"""Jobs, their components and their stories as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koalapy.api.documents.document import Document
from koalapy.api.documents.reasons import reason
from koalapy.api.documents.requests import request
from koalapy.api.documents.sweeps import progress
from koalapy.model.identity import JobId
from koalapy.model.job import Component, History, Job
from koalapy.model.states import ComponentState
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.runtime.collecting.bring import Home
from koalapy.runtime.staging.transfers import Progress
from koalapy.views.changes import Changed
from koalapy.views.checking import Checked
from koalapy.views.history import sentence


def job(job: Job, transfers: Iterable[Progress] = ()) -> Document:
    """`transfers`: files of it that are on their way."""
    return {
        "id": job.id,
        "name": job.request.name,
        "owner": job.owner,
        "state": str(job.state),
        "priority": job.request.priority,
        "labels": dict(job.request.labels),
        "type": "sweep" if job.runner else str(job.request.type),
        "submitted_at": format_instant(job.submitted_at),
        "started_at": _instant(job.started_at),
        "finished_at": _instant(job.finished_at),
        "submission_failures": job.submission_failures,
        "completion_failures": job.completion_failures,
        "held_processor_seconds": round(job.held / SECOND, 6),
        "reason": str(job.reason) if job.reason else None,
        "reason_code": job.reason.code if job.reason else None,
        "output_home": str(job.output_home),
        "components": [component(each, job.state.final) for each in job.components],
        "transfers": [transfer(each) for each in transfers],
        "sweep": progress(job.runner) if job.runner else None,
    }


def component(component: Component, over: bool) -> Document:
    """`over`: its job is. What then still waits for a batch job never started."""
    started = not over or component.state is not ComponentState.WAITING
    return {
        "index": component.index,
        "cluster": component.cluster,
        "named_cluster": component.request.cluster,
        "processors": component.processors,
        "walltime_s": component.request.walltime / SECOND,
        "state": str(component.state) if started else "not_started",
        "attempt": component.attempt,
        "batch_id": component.batch_id or None,
        "hosts": list(dict.fromkeys(node.name for node in component.nodes)),
        "exit_status": component.exit_status,
        "queued_at": _instant(component.queued_at),
        "at_barrier_at": _instant(component.at_barrier_at),
        "released_at": _instant(component.released_at),
        "started_at": _instant(component.started_at),
        "ended_at": _instant(component.ended_at),
        "silent_since": _instant(component.silent_since) if component.is_silent else None,
        "reason": str(component.reason) if component.reason else component.pending_reason or None,
    }


def transfer(progress: Progress) -> Document:
    return {
        "direction": progress.direction,
        "component": progress.component,
        "cluster": progress.cluster,
        "phase": progress.phase,
        "files": progress.files,
        "bytes": progress.size,
        "bytes_moved": progress.moved,
        "bytes_per_second": round(progress.rate),
        "file": shown(progress.file) or None,
        "parameters_done": progress.parameters[0] if progress.parameters else None,
        "parameters": progress.parameters[1] if progress.parameters else None,
    }


def jobs(found: Iterable[Job], transfers: Mapping[JobId, list[Progress]] | None = None) -> Document:
    moving = transfers or {}
    return {"schema": "koala.jobs/1", "jobs": [job(each, moving.get(each.id, ())) for each in found]}


def job_with_events(found: Job, history: Iterable[History], transfers: Iterable[Progress] = ()) -> Document:
    return {
        "schema": "koala.job/1",
        "job": job(found, transfers),
        "request": request(found.request),
        "events": [event(each) for each in history],
    }


def event(line: History) -> Document:
    """Instants among the details are written as all instants are."""
    details = {name: _detail(name, value) for name, value in line.details.items()}
    return {"at": format_instant(line.at), "kind": line.kind, "text": sentence(line), **details}


def _detail(name: str, value: Any) -> Any:
    return format_instant(Instant(value)) if name.endswith("_at") and isinstance(value, int) else value


def submitted(job_id: int, accepted_s: float) -> Document:
    return {"schema": "koala.submit/1", "id": job_id, "accepted_s": round(accepted_s, 6)}


def checked(found: Sequence[Checked]) -> Document:
    return {
        "schema": "koala.check/1",
        "jobs": [
            {
                "request": request(each.request),
                "parameters": each.request.parameters.count if each.request.parameters else None,
                "fits": str(each.fits),
                "reason": reason(each.reason) if each.reason else None,
                "unseen": list(each.unseen),
            }
            for each in found
        ],
    }


def submitted_many(ids: Sequence[int]) -> Document:
    return {"schema": "koala.submits/1", "ids": list(ids)}


def fetched(job_id: int, home: Home | None) -> Document:
    """`home`: what was brought, once it is."""
    return {
        "schema": "koala.fetch/1",
        "id": job_id,
        "state": "fetching" if home is None else "fetched",
        "files": home.files if home else None,
        "bytes": home.size if home else None,
        "missing": [shown(each) for each in home.missing] if home else [],
        "lack": shown(home.lack) or None if home else None,
        "notes": [shown(each) for each in home.notes] if home else [],
    }


def changed(found: Changed) -> Document:
    refused = [{"id": id, "error": reason(error.reason)} for id, error in found.refused.items()]
    return {"schema": "koala.changed/1", "jobs": [job(each) for each in found.jobs], "refused": refused}


def shown(name: str) -> str:
    """A file's name as JSON and terminals have it: bytes that are no UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode()


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)
