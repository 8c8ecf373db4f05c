"""Jobs, their requests, components and history, as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from koalapy import answers
from koalapy.api.documents.errors import reason
from koalapy.api.documents.fields import optional_instant
from koalapy.api.documents.matching import choice
from koalapy.api.documents.sweeps import progress
from koalapy.broker.fit import Misfit
from koalapy.coallocation.changeable import Changed
from koalapy.languages.mapping import job_mapping
from koalapy.model.flow import Flow
from koalapy.model.history import History
from koalapy.model.identity import JobId
from koalapy.model.job import Component, Job
from koalapy.model.parameters import Source
from koalapy.model.request import Request
from koalapy.model.sent import Sent
from koalapy.model.states import ComponentState
from koalapy.model.sweep import Sweep, Work
from koalapy.model.textfile.words import valid_text
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.service import Terminal
from koalapy.runtime.staging.transfers import Progress
from koalapy.views.checking import Checked
from koalapy.views.explanation import Explanation, summary
from koalapy.views.flow_tree import Branch, FlowTree
from koalapy.views.history import notes_of, sentence

JobType = Literal["ordered", "unordered", "mixed", "sweep", "flow", "pilot", "sent"]
NotifyOnName = Literal["started", "done", "failed", "cancelled"]
Fits = Literal["yes", "never", "unknown"]


def job(work: Work, transfers: Iterable[Progress] = ()) -> answers.Job:
    """Describe a job or a sweep. `transfers`: its transfers that are under way."""
    described: answers.Job = {
        "id": work.id,
        "name": work.request.name,
        "owner": work.owner,
        "state": cast(answers.JobStateName, str(work.state)),
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
        "transfers": [transfer(each) for each in transfers],
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
    if isinstance(work, Sweep):
        described["sweep"] = progress(work)
        return described
    described["type"] = _type(work)
    described["submission_failures"] = work.submission_failures
    described["completion_failures"] = work.completion_failures
    described["held_processor_seconds"] = round(work.held / SECOND, 6)
    described["kept_output"] = cast(answers.KeptOutput, str(work.kept_output))
    described["components"] = [component(each, work.state.final) for each in work.components]
    described["flow"] = flow(work.flow) if work.flow else None
    described["sent"] = sent(work.sent) if work.sent else None
    described["choices"] = [choice(each) for each in work.choices]
    described["choice"] = work.choice if work.choices else None
    described["suspended_for"] = work.suspended_for
    return described


def _type(job: Job) -> JobType:
    if job.request.pilot is not None:
        return "pilot"
    if job.request.site is not None:
        return "sent"
    return "flow" if job.flow else cast(JobType, str(job.request.type))


def flow(progress: Flow) -> answers.FlowProgress:
    """Describe the progress of a flow."""
    return {
        "jobs": progress.count,
        "done": progress.done,
        "failed": progress.failed,
        "cancelled": progress.cancelled,
    }


def sent(found: Sent) -> answers.SentJob:
    """Describe what another site has reported of a job that it runs."""
    return {
        "job": found.job or None,
        "state": cast(answers.JobStateName, str(found.state)),
        "jobs": found.count,
        "done": found.done,
    }


def component(component: Component, is_final: bool) -> answers.Component:
    """Describe a component. `is_final`: whether its job is final. Then a component that waits was never started."""
    started = not is_final or component.state is not ComponentState.WAITING
    return {
        "index": component.index,
        "cluster": component.cluster,
        "named_cluster": component.request.cluster,
        "processors": component.processors,
        "walltime_s": component.request.walltime / SECOND,
        "state": cast(answers.ComponentStateName, str(component.state)) if started else "not_started",
        "attempt": component.attempt,
        "batch_id": component.batch_id or None,
        "hosts": list(dict.fromkeys(node.name for node in component.nodes)),
        "exit_status": component.exit_status,
        "queued_at": optional_instant(component.queued_at),
        "at_barrier_at": optional_instant(component.at_barrier_at),
        "released_at": optional_instant(component.released_at),
        "started_at": optional_instant(component.started_at),
        "ended_at": optional_instant(component.ended_at),
        "silent_since": optional_instant(component.silent_since) if component.is_silent else None,
        "reason": str(component.reason) if component.reason else component.pending_reason or None,
    }


def transfer(progress: Progress) -> answers.Transfer:
    """Describe a transfer."""
    return {
        "direction": progress.direction,
        "component": progress.component,
        "cluster": progress.cluster,
        "phase": progress.phase,
        "files": progress.files,
        "bytes": progress.size,
        "bytes_moved": progress.moved,
        "bytes_per_second": round(progress.rate),
        "file": valid_text(progress.file) or None,
        "parameters_done": progress.parameters[0] if progress.parameters else None,
        "parameters": progress.parameters[1] if progress.parameters else None,
    }


def jobs(found: Iterable[Work], transfers: Mapping[JobId, list[Progress]] | None = None) -> answers.JobsAnswer:
    """Answer with these jobs and sweeps."""
    moving = transfers or {}
    return {"schema": "koala.jobs/1", "jobs": [job(each, moving.get(each.id, ())) for each in found]}


def job_with_history(
    found: Work, history: Iterable[History] = (), transfers: Iterable[Progress] = ()
) -> answers.JobAnswer:
    """Answer with a job or a sweep, its request and its history."""
    written = found.written if isinstance(found, Job) else None
    return {
        "schema": "koala.job/1",
        "job": job(found, transfers),
        "request": request(written or found.request),
        "notify": [
            {"to": str(each.to), "on": [cast(NotifyOnName, str(change)) for change in each.on]}
            for each in found.request.notify or ()
        ],
        "events": [event(each) for each in history],
    }


def event(line: History) -> answers.JobEvent:
    """Describe a line of a job's history. Instants among its details are formatted as all instants are."""
    details = {name: _detail(name, value) for name, value in line.details.items()}
    event = {"at": format_instant(line.at), "kind": line.kind, "text": sentence(line), **details}
    return cast(answers.JobEvent, event)


def _detail(name: str, value: Any) -> Any:
    return format_instant(Instant(value)) if name.endswith("_at") and isinstance(value, int) else value


def submitted(job_id: int, accepted_s: float) -> answers.SubmitAnswer:
    """Answer with an accepted job, and the seconds until its commit."""
    return {"schema": "koala.submit/1", "id": job_id, "accepted_s": round(accepted_s, 6)}


def checked(found: Sequence[Checked]) -> answers.CheckAnswer:
    """Answer with checked jobs."""
    return {
        "schema": "koala.check/1",
        "jobs": [
            {
                "request": request(each.request),
                "parameters": each.request.parameters.count if each.request.parameters else None,
                "fits": cast(Fits, str(each.fits)),
                "reason": reason(each.reason) if each.reason else None,
                "unknown_clusters": list(each.unknown_clusters),
                "lacks": _lacks(each.lacks),
            }
            for each in found
        ],
    }


def _lacks(found: Iterable[Misfit]) -> list[answers.Lack]:
    return [{"component": each.component, "cluster": each.cluster, **reason(each.reason)} for each in found]


def submitted_many(ids: Sequence[int]) -> answers.SubmitsAnswer:
    """Answer with several accepted jobs."""
    return {"schema": "koala.submits/1", "ids": list(ids)}


def port(job_id: int, component: int, cluster: str, rank: int, number: int) -> answers.PortAnswer:
    """Answer with the place of a port of a running job."""
    return {
        "schema": "koala.port/1",
        "id": job_id,
        "component": component,
        "cluster": cluster,
        "rank": rank,
        "port": number,
    }


def terminal(job_id: int, found: Terminal) -> answers.TerminalAnswer:
    """Answer with the place of the terminal of a running job."""
    return {
        "schema": "koala.terminal/1",
        "id": job_id,
        "cluster": found.cluster,
        "kind": found.kind.value,
        "attached": found.is_attached,
        "slow": found.is_slow,
    }


def fetched(job_id: int, home: Collected | None) -> answers.FetchAnswer:
    """Answer with the fetched files of a job, or that they are being fetched (`home` is None)."""
    return {
        "schema": "koala.fetch/1",
        "id": job_id,
        "state": "fetching" if home is None else "fetched",
        "files": home.files if home else None,
        "bytes": home.size if home else None,
        "missing": [valid_text(each) for each in home.missing] if home else [],
        "lack": valid_text(home.lack) or None if home else None,
        "notes": [valid_text(each) for each in home.notes] if home else [],
    }


def changed(found: Changed) -> answers.ChangedAnswer:
    """Answer with the jobs and sweeps that were changed, and those that could not be."""
    refused: list[answers.Refusal] = [{"id": id, "error": reason(error.reason)} for id, error in found.refused.items()]
    return {"schema": "koala.changed/1", "jobs": [job(each) for each in found.work], "refused": refused}


def explanation(found: Explanation, history: Iterable[History] = ()) -> answers.ExplainAnswer:
    """Answer why a job or sweep is in its state, and what each cluster lacks for each of its components.

    `history`: that of a final job; its notes name files that were not fetched.
    """
    work = found.work
    return {
        "schema": "koala.explain/1",
        "id": work.id,
        "state": cast(answers.JobStateName, str(work.state)),
        "summary": summary(found),
        "notes": notes_of(history),
        "reason": reason(work.reason) if work.reason else None,
        "lacks": _lacks(found.lacks),
        "not_borrowed": [{"site": site, "reason": reason} for site, reason in found.not_borrowed.items()],
        "no_more_nodes": [{"cluster": cluster, "reason": reason} for cluster, reason in found.no_more_nodes.items()],
    }


def tree(id: JobId, found: FlowTree) -> answers.TreeAnswer:
    """Answer with a part of the tree of a flow."""
    return {
        "schema": "koala.tree/1",
        "id": id,
        "levels": found.levels,
        "states": {cast(answers.JobStateName, str(state)): count for state, count in sorted(found.states.items())},
        "jobs": [_tree_job(each) for each in found.branches],
        "more": found.more,
    }


def _tree_job(found: Branch) -> answers.TreeJob:
    work = found.work
    return {
        "id": work.id,
        "name": work.request.name,
        "state": cast(answers.JobStateName, str(work.state)),
        "level": found.level,
        "others": found.others,
        "other_names": list(found.named),
        "site": work.request.site,
        "sent": sent(work.sent) if isinstance(work, Job) and work.sent else None,
        "reason": str(work.reason) if work.reason else None,
    }


def request(found: Request) -> answers.JobRequest:
    """Describe a request. Its `job` submits the same again, but for the parameters of a sweep."""
    parameters = (
        [_source(source) for axis in found.parameters.axes for source in axis.sources] if found.parameters else []
    )
    return {"directory": valid_text(found.directory), "job": job_mapping(found), "parameters": parameters}


def _source(found: Source) -> answers.SweepParameter:
    return {
        "names": list(found.names),
        "loop": list(found.loop) if found.loop else None,
        "without": list(found.without),
        "values": [valid_text(each) for each in found.values],
        "file": valid_text(found.file) or None,
        "column": found.column if found.column >= 0 else None,
    }
