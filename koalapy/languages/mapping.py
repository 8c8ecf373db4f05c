"""Writes a request as the mapping of a job file, from which the same request is read again."""

from typing import Any

from koalapy.model.request import FOREVER, ComponentRequest, FlowJob, Request
from koalapy.model.textfile.notify import notify_mapping
from koalapy.model.textfile.words import valid_text
from koalapy.model.units import HOUR, format_duration

_DEFAULTS = ComponentRequest(processors=0, executable="")


def job_mapping(found: Request) -> dict[str, Any]:
    """Return the mapping, without values that are the default."""
    destinations = dict(found.stage_out_to)
    mapping: dict[str, Any] = {
        "name": found.name,
        "components": [_component_mapping(each) for each in found.components],
        "labels": dict(found.labels),
        "priority": found.priority,
        "when_busy": str(found.when_busy),
        "retry_on": [str(each) for each in found.retry_on],
        "communication": "all" if found.communication else "none",
        "stage_in": list(found.stage_in),
        "stage_out": [
            {"path": path, "to": destinations[path]} if path in destinations else path for path in found.stage_out
        ],
        "order": found.order or None,
        "after": list(found.after),
        "relax_after": None if found.relax_after is None else format_duration(found.relax_after),
        "barrier": _barrier_mapping(found),
        "race": None if found.race is None else {"most": found.race},
        "begin": None if found.begin is None else str(found.begin),
        "claim_before": None if found.claim_before is None else format_duration(found.claim_before),
        "expires": None if found.expires is None else str(found.expires),
        "on_error": "n" if found.retrials == FOREVER else found.retrials,
        "keep_output": None if found.keep_output is None else str(found.keep_output),
        "dttl": found.dttl,
        "interactive": None if found.interactive is None else str(found.interactive),
        "site": found.site,
        "notify": [notify_mapping(each) for each in found.notify or ()],
    }
    if found.jobs or not found.components:
        for key in ("when_busy", "retry_on", "communication", "priority"):  # they are of its jobs
            del mapping[key]
        mapping["on_failure"] = str(found.on_failure)
        mapping["jobs"] = [_flow_job_mapping(found, each) for each in found.jobs]
    plain = {name: _plain(value) for name, value in mapping.items() if value not in (None, [], {})}
    return plain | {"notify": []} if found.notify == () else plain  # nobody, whatever the grid file has


def _barrier_mapping(found: Request) -> dict[str, Any]:
    written = {
        "wait": None if found.barrier_wait is None else format_duration(found.barrier_wait),
        "processor_hours": None if found.held_limit is None else found.held_limit / HOUR,
        "fill": None if found.fill is None else str(found.fill),
    }
    return {name: value for name, value in written.items() if value is not None}


def _flow_job_mapping(flow: Request, job: FlowJob) -> dict[str, Any]:
    names = [flow.jobs[place].request.name for place in job.after]
    return {**job_mapping(job.request), **({"after": names} if names else {})}


def _component_mapping(found: ComponentRequest) -> dict[str, Any]:
    mapping = {
        name: getattr(found, name)
        for name in ComponentRequest.__slots__
        if getattr(found, name) != getattr(_DEFAULTS, name) and name != "environment"
    }
    if found.least is not None:
        del mapping["most"]
        mapping["processors"] = {"want": found.most, "least": mapping.pop("least")}
    mapping["walltime"] = format_duration(found.walltime)
    if found.until_end:
        del mapping["walltime"], mapping["until_end"]
    if found.memory_per_processor is not None:
        mapping["memory_per_processor"] = f"{found.memory_per_processor}B"
    if found.environment:
        mapping["environment"] = dict(found.environment)
    return {name: _plain(value) for name, value in mapping.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return valid_text(str(value))
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return {valid_text(name): _plain(each) for name, each in value.items()} if isinstance(value, dict) else value
