"""The JSON documents: versioned schemas, stable field names, instants as RFC 3339 with microseconds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koalapy import __version__
from koalapy.api.explaining import summary
from koalapy.api.story import sentence
from koalapy.api.sweep_documents import progress
from koalapy.model.cluster import ClusterState
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.job import Component, Debt, History, Job
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.runtime.collecting.bring import Home
from koalapy.runtime.explanation import Explanation
from koalapy.runtime.recovery import Line, Recovered
from koalapy.runtime.service import Changed, ClusterReport
from koalapy.runtime.staging.transfers import Progress
from koalapy.runtime.sweeps import RunnerReport
from koalapy.runtime.unknown import Survey, UnknownTag

Document = dict[str, Any]
_ALIVE_S = 60.0  # since a wrapper's last sign of life: it gives one every 10 s, which NFS may show late
_FIRST_TAGS = 5
_NOT_UP = {"connecting": "connecting", "asks": "asks", "answer_refused": "asks"}


def job(job: Job, transfers: Iterable[Progress] = ()) -> Document:
    """`transfers`: files of it that are on their way."""
    return {
        "id": job.id,
        "name": job.request.name,
        "owner": job.owner,
        "state": str(job.state),
        "priority": job.request.priority,
        "type": "sweep" if job.runner else str(job.request.type),
        "submitted_at": format_instant(job.submitted_at),
        "started_at": _instant(job.started_at),
        "finished_at": _instant(job.finished_at),
        "submission_failures": job.submission_failures,
        "completion_failures": job.completion_failures,
        "held_processor_seconds": round(job.held / SECOND, 6),
        "reason": str(job.reason) if job.reason else None,
        "reason_code": job.reason.code if job.reason else None,
        "components": [component(each) for each in job.components],
        "transfers": [transfer(each) for each in transfers],
        "sweep": progress(job.runner) if job.runner else None,
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


def shown(name: str) -> str:
    """A file's name as JSON and terminals have it: bytes that are no UTF-8 are replaced."""
    return name.encode("utf-8", "replace").decode()


def component(component: Component) -> Document:
    return {
        "index": component.index,
        "cluster": component.cluster,
        "named_cluster": component.request.cluster,
        "processors": component.processors,
        "walltime_s": component.request.walltime / SECOND,
        "state": str(component.state),
        "attempt": component.attempt,
        "batch_id": component.batch_id or None,
        "hosts": list(dict.fromkeys(node.name for node in component.nodes)),
        "exit_status": component.exit_status,
        "queued_at": _instant(component.queued_at),
        "at_barrier_at": _instant(component.at_barrier_at),
        "released_at": _instant(component.released_at),
        "started_at": _instant(component.started_at),
        "ended_at": _instant(component.ended_at),
        "reason": str(component.reason) if component.reason else component.pending_reason or None,
    }


def jobs(found: Iterable[Job], transfers: Mapping[JobId, list[Progress]] | None = None) -> Document:
    moving = transfers or {}
    return {"schema": "koala.jobs/1", "jobs": [job(each, moving.get(each.id, ())) for each in found]}


def job_with_events(found: Job, history: Iterable[History], transfers: Iterable[Progress] = ()) -> Document:
    return {"schema": "koala.job/1", "job": job(found, transfers), "events": [event(each) for each in history]}


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


def event(line: History) -> Document:
    """Instants among the details are written as all instants are."""
    details = {name: _detail(name, value) for name, value in line.details.items()}
    return {"at": format_instant(line.at), "kind": line.kind, "text": sentence(line), **details}


def _detail(name: str, value: Any) -> Any:
    return format_instant(Instant(value)) if name.endswith("_at") and isinstance(value, int) else value


def submitted(job_id: int, accepted_s: float) -> Document:
    return {"schema": "koala.submit/1", "id": job_id, "accepted_s": round(accepted_s, 6)}


def submitted_many(ids: Sequence[int]) -> Document:
    return {"schema": "koala.submits/1", "ids": list(ids)}


def changed(found: Changed) -> Document:
    refused = [{"id": id, "error": reason(error.reason)} for id, error in found.refused.items()]
    return {"schema": "koala.changed/1", "jobs": [job(each) for each in found.jobs], "refused": refused}


def clusters(reports: Iterable[ClusterReport]) -> Document:
    return {"schema": "koala.clusters/1", "clusters": [cluster(each) for each in reports]}


def cluster(report: ClusterReport) -> Document:
    """`connection` is up, down, connecting or asks; `reason` says in one sentence why nothing is placed there."""
    known, view, state = report.known, report.view, report.view.state
    numbers = {name: _number(state, name) for name in ("total", "ours", "others", "waiting_local")}
    return {
        "name": view.name,
        "batch": known.settings.batch,
        "version": known.version or None,
        "connection": _connection(report),
        **numbers,
        "scavenged": report.scavenged if state else None,
        "idle": view.idle if state else None,
        "promised": view.promised,
        "unit": state.unit if state else None,
        "age_s": None if report.age is None else round(report.age / SECOND, 3),
        "reason": str(view.trouble) if view.trouble else None,
    }


def _connection(report: ClusterReport) -> str:
    if report.known.connected:
        return "up"
    trouble = report.known.trouble
    return _NOT_UP.get(trouble.code, "down") if trouble else "down"


def _number(state: ClusterState | None, name: str) -> int | None:
    return None if state is None else getattr(state, name)


def status(
    pid: int,
    grid: str,
    state: str,
    debts: Iterable[Debt],
    trouble: Iterable[str],
    found: Recovered,
    surveys: Iterable[Survey] = (),
    asks: Iterable[Document] = (),
    runners: Iterable[RunnerReport] = (),
) -> Document:
    """`surveys`: the last ones, of the clusters that were looked at. `asks`: logins that wait for a person.

    `runners`: of the sweeps that are not over.
    """
    tags = [tag for survey in surveys for tag in survey.tags]
    return {
        "schema": "koala.status/1",
        "pid": pid,
        "version": __version__,
        "grid": grid,
        "state": state,
        "debts": [debt(each) for each in debts],
        "troubles": list(trouble),
        "asks": list(asks),
        "runners": runners_at_work(list(runners)),
        "recovery": recovery(found),
        "unknown_tags": {"count": len(tags), "first": [unknown_tag(each) for each in tags[:_FIRST_TAGS]]},
    }


def runners_at_work(reports: Sequence[RunnerReport]) -> Document:
    """How many there are, and of the nodes that they have."""
    active = [each for each in reports if each.job.state.active]
    return {
        "active": len(active),
        "waiting": len(reports) - len(active),
        "nodes": sum(place.nodes for each in reports for place in each.places),
    }


def unknown(surveys: Sequence[Survey]) -> Document:
    """Tags that this store does not know, and of which clusters that is the whole truth."""
    return {
        "schema": "koala.unknown/1",
        "tags": [unknown_tag(tag) for survey in surveys for tag in survey.tags],
        "clusters": [
            {
                "cluster": each.cluster,
                "at": format_instant(each.at),
                "reason": str(each.trouble) if each.trouble else None,
            }
            for each in surveys
        ],
    }


def unknown_tag(found: UnknownTag) -> Document:
    """`wrapper` is alive, silent (it has stopped to give signs), ended (it left a record) or none."""
    return {
        "cluster": found.cluster,
        "tag": found.tag,
        "store": found.instance,
        "own": found.own,
        "attempt": str(found.attempt),
        "batch_id": found.batch_id or None,
        "batch_state": found.state or None,
        "directory": found.directory,
        "wrapper": _wrapper(found),
        "heartbeat_age_s": _seconds(found.heartbeat_age_s),
        "age_s": _seconds(found.age_s),
    }


def _wrapper(found: UnknownTag) -> str:
    if found.ended:
        return "ended"
    if found.heartbeat_age_s is None:
        return "none"
    return "alive" if found.heartbeat_age_s < _ALIVE_S else "silent"


def _seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)


def cleaned(cluster: str, tag: str, done: bool) -> Document:
    return {"schema": "koala.clean/1", "cluster": cluster, "tag": tag, "state": "cleaned" if done else "cleaning"}


def recovery(found: Recovered) -> Document:
    """What there was when koalad started, what is still open of it, and a line for each thing found or cleaned up."""
    return {
        "at": format_instant(found.at),
        "jobs": {str(state): found.jobs.get(state, 0) for state in JobState if not state.final},
        "jobs_at_barrier": found.at_barrier,
        "attempts": found.attempts,
        "attempts_unheard": found.unheard,
        "commands": found.commands,
        "commands_unconfirmed": found.unconfirmed,
        "debts": found.debts,
        "lines": [recovery_line(each) for each in found.lines],
        "lines_dropped": found.dropped,
    }


def recovery_line(line: Line) -> Document:
    return {
        "at": format_instant(line.at),
        "kind": line.kind,
        "text": line.text,
        "job": line.job,
        "attempt": str(line.attempt) if line.attempt else None,
        "cluster": line.cluster,
    }


def debt(debt: Debt) -> Document:
    """A batch job that is to be cancelled when its cluster can be reached, or its batch system does what it is told."""
    return {
        "attempt": str(debt.attempt),
        "cluster": debt.cluster,
        "batch_id": debt.batch_id or None,
        "since": format_instant(debt.since),
        "reason": str(debt.lingers) if debt.lingers else None,
    }


def cluster_troubles(reports: Iterable[ClusterReport]) -> list[str]:
    """A sentence for each cluster that cannot be used."""
    return [f"{each.view.name}: {each.view.trouble}" for each in reports if each.view.trouble]


def explanation(found: Explanation) -> Document:
    """Why the job is where it is: a sentence of its own, and what each cluster lacks for each component."""
    job, lacks = found.job, found.lacks
    return {
        "schema": "koala.explain/1",
        "id": job.id,
        "state": str(job.state),
        "summary": summary(found),
        "reason": reason(job.reason) if job.reason else None,
        "lacks": [{"component": each.component, "cluster": each.cluster, **reason(each.reason)} for each in lacks],
        "no_more_nodes": [{"cluster": cluster, "why": why} for cluster, why in found.no_more.items()],
    }


def reason(reason: Reason) -> Document:
    return {
        "code": reason.code,
        "whose": reason.whose,
        "message": reason.message,
        "advice": reason.advice,
        "command": reason.command or None,
        "exit_status": reason.exit_status,
        "words": reason.words or None,
    }


def error(reason_: Reason) -> Document:
    return {"schema": "koala.error/1", "error": reason(reason_)}


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)
