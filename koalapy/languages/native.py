"""Makes requests of documents of the job file's form, into which every job language reads its texts."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from koalapy.languages.endings import stem_of
from koalapy.languages.flow import FlowFile, flow_request, job_request, refuse_unsendable, unique
from koalapy.languages.jobfile import ComponentFile, JobFile
from koalapy.languages.spaces import with_parameters
from koalapy.languages.sweepfiles import OpenFile
from koalapy.model.errors import RequestError
from koalapy.model.notification import Notify
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, Path, read_value
from koalapy.model.textfile.fields import Section
from koalapy.model.textfile.notify import NotifyEntries, notify_of
from koalapy.model.textfile.schema import json_schema_of
from koalapy.model.textfile.validation import validate
from koalapy.model.textfile.words import shown

UNNAMED = "job"
_LONGEST_STEM = 128
_OVERRIDE_ADVICE = "Write a key of the job, such as priority=5, or of a component, such as components.0.processors=8."


def from_mapping(
    mapping: Mapping[str, Any],
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    open_file: OpenFile | None = None,
) -> Request:
    """Return the request of a mapping of the job file's form. Raises RequestError, which names `source` and key.

    The other arguments are those of `request_of`.
    """
    return request_of(Document(source, dict(mapping)), directory, clusters, overrides, open_file)


def read_notify(entries: Sequence[Mapping[str, Any]], source: str) -> tuple[Notify, ...]:
    """Return `notify` of entries as a job file has them. Raises RequestError, which names `source` and key."""
    document = Document(source, {"notify": [dict(each) for each in entries]})
    return notify_of(validate(_NotifyAlone, document, {}).notify)


class _NotifyAlone(Section):
    """`notify` without the rest of a job file."""

    notify: NotifyEntries


def json_schema() -> dict[str, Any]:
    """Return the job file's JSON Schema, for editors and clients. It lacks the rules that only koalapy can check."""
    return json_schema_of(JobFile)


def request_of(
    document: Document,
    directory: str,
    clusters: Collection[str] | None,
    overrides: Mapping[str, str] | None,
    open_file: OpenFile | None,
) -> Request:
    """Return the request of a document of the job file's form. Raises RequestError, which names source, line and key.

    `directory`: the absolute directory to which the document's paths are relative. `clusters`: the grid's names, None
    to leave them unchecked. `overrides`: those of `koala submit -o`. `open_file` opens the files of a sweep's
    parameters.
    """
    document = _override(document, overrides or {})
    if "jobs" in document.data:
        return flow_request(document, directory, clusters, _name_of(document.source), open_file)
    job = validate(JobFile, document, {"clusters": clusters})
    request = replace(job_request(job, job.name or _name_of(document.source), directory), after=unique(job.after))
    found = with_parameters(request, job, document, open_file)
    refuse_unsendable(found, document)
    return found


def _name_of(source: str) -> str:
    """Return the printable part of the file's name; the name for unnamed jobs if it is empty or a pipe's."""
    stem = "".join(character for character in stem_of(source) if character.isprintable())[:_LONGEST_STEM].strip()
    return UNNAMED if stem.startswith(("-", "<")) or not stem else stem


def _override(document: Document, overrides: Mapping[str, str]) -> Document:
    """Return the document with other values, which are read as in the file: `[a, b]` is a list.

    An empty text or null unsets a key. Raises RequestError for a key that the job does not have.
    """
    for key, text in overrides.items():
        origin = f"-o {shown(key, quote='')}"
        try:
            path, value = _path_of(key), read_value(text, origin)
            unset = value is None and _may_be_unset(path)
            document = document.without(path) if unset else document.with_value(path, value, origin)
        except (KeyError, IndexError, TypeError) as error:
            message = f"{origin}: the job has no place of this name."
            raise RequestError("unknown_key", message, _OVERRIDE_ADVICE) from error
    return document


def _may_be_unset(path: Path) -> bool:
    """Return whether the key can be unset: not if it is unknown, or a whole component."""
    if len(path) == 1:
        return path[0] in JobFile.model_fields or path[0] in FlowFile.model_fields
    if path[0] != "components":
        return True
    return len(path) > 3 or (len(path) == 3 and path[2] in ComponentFile.model_fields)


def _path_of(key: str) -> Path:
    """Return the steps of a key. Raises IndexError for an index beyond any list, and KeyError for an empty step."""
    steps = key.split(".")
    if not all(steps):
        raise KeyError(key)
    return tuple(_index(step) if step.isdecimal() and step.isascii() else step for step in steps)


def _index(step: str) -> int:
    if len(step) > 6:
        raise IndexError(step)
    return int(step)
