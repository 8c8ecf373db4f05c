"""What a job runs, as JSON: its request in the shape of a job file, but for what is as it is if nothing is said."""

from typing import Any

from koalapy.api.documents.document import Document
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.sweep import Source
from koalapy.model.units import format_duration

_COMPONENT = ComponentRequest(processors=0, executable="")


def request(found: Request) -> Document:
    """`job`: a mapping that submits the same again, without the parameters of a sweep; `directory`: its paths' one."""
    parameters = (
        [_source(source) for axis in found.parameters.axes for source in axis.sources] if found.parameters else []
    )
    return {"directory": _text(found.directory), "job": job_mapping(found), "parameters": parameters}


def job_mapping(found: Request) -> Document:
    """As a job file has it."""
    places = dict(found.stage_out_to)
    mapping: Document = {
        "name": found.name,
        "components": [_component(each) for each in found.components],
        "labels": dict(found.labels),
        "priority": found.priority,
        "when_busy": str(found.when_busy),
        "retry_on": [str(each) for each in found.retry_on],
        "communication": "all" if found.communication else "none",
        "stage_in": list(found.stage_in),
        "stage_out": [{"path": path, "to": places[path]} if path in places else path for path in found.stage_out],
        "order": found.order or None,
        "keep_output": None if found.keep_output is None else str(found.keep_output),
    }
    return {name: _plain(value) for name, value in mapping.items() if value not in (None, [], {})}


def _component(found: ComponentRequest) -> Document:
    said = {
        name: getattr(found, name)
        for name in ComponentRequest.__slots__
        if getattr(found, name) != getattr(_COMPONENT, name) and name != "environment"
    }
    said["walltime"] = format_duration(found.walltime)
    if found.memory_per_processor is not None:
        said["memory_per_processor"] = f"{found.memory_per_processor}B"
    if found.environment:
        said["environment"] = dict(found.environment)
    return {name: _plain(value) for name, value in said.items()}


def _source(found: Source) -> Document:
    """The parameters of these names: `loop` is first, last and step, `file` lies in the program's directory."""
    return {
        "names": list(found.names),
        "loop": list(found.loop) if found.loop else None,
        "without": list(found.without),
        "values": [_text(each) for each in found.values],
        "file": _text(found.file) or None,
        "column": found.column if found.column >= 0 else None,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _text(str(value))
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return {_text(name): _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _text(text: str) -> str:
    """Bytes that are no UTF-8 are replaced."""
    return text.encode("utf-8", "replace").decode()
