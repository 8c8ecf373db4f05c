"""koalapy's own job language: YAML, or a mapping of the same shape."""

from collections.abc import Collection, Mapping
from typing import Any

from koalapy.languages.endings import stem_of
from koalapy.languages.jobfile import Communication, JobFile
from koalapy.languages.overrides import override
from koalapy.languages.spaces import with_parameters
from koalapy.languages.sweepfiles import OpenFile
from koalapy.model.request import Request, WhenBusy
from koalapy.model.textfile.document import Document, read_document
from koalapy.model.textfile.schema import json_schema_of
from koalapy.model.textfile.validation import validate

UNNAMED = "job"
_LONGEST_STEM = 128


def read(
    text: str | bytes,
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    open_file: OpenFile | None = None,
) -> Request:
    """The request that a job file's text makes. Raises RequestError, which names file, line and key.

    `source` is the file's name as its owner knows it, `directory` the absolute one that its paths are relative to.
    `clusters` are the grid's names; None leaves them unchecked. `overrides` are those of `koala submit -o`.
    `open_file` opens the files of a sweep's parameters.
    """
    return request_of(read_document(text, source), directory, clusters, overrides, open_file)


def from_mapping(
    mapping: Mapping[str, Any],
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    open_file: OpenFile | None = None,
) -> Request:
    """The same from a mapping of the file's shape; errors name `source` and key."""
    return request_of(Document(source, dict(mapping)), directory, clusters, overrides, open_file)


def json_schema() -> dict[str, Any]:
    """The job file's JSON Schema, for editors and clients; what only koalapy can check is not in it."""
    return json_schema_of(JobFile)


def request_of(
    document: Document,
    directory: str,
    clusters: Collection[str] | None,
    overrides: Mapping[str, str] | None,
    open_file: OpenFile | None,
) -> Request:
    """The request of a document of the job file's shape, whatever language it was written in."""
    document = override(document, overrides or {})
    job = validate(JobFile, document, {"clusters": clusters})
    busy = WhenBusy.QUEUE if len(job.components) == 1 else WhenBusy.WAIT
    request = Request(
        name=job.name or _name_of(document.source),
        components=tuple(component.request() for component in job.components),
        priority=job.priority,
        when_busy=job.when_busy or busy,
        retry_on=tuple(dict.fromkeys(job.retry_on)),
        communication=job.communication is Communication.ALL,
        stage_in=job.stage_in,
        stage_out=tuple(each.path for each in job.stage_out),
        stage_out_to=tuple((each.path, each.to) for each in job.stage_out if each.to is not None),
        directory=directory,
        order=job.order or "",
        keep_output=job.keep_output,
        labels=tuple(job.labels.items()),
    )
    return with_parameters(request, job, document, open_file)


def _name_of(source: str) -> str:
    """The file's name, as far as it can be shown; a pipe has none."""
    stem = "".join(character for character in stem_of(source) if character.isprintable())[:_LONGEST_STEM].strip()
    return UNNAMED if stem.startswith(("-", "<")) or not stem else stem
