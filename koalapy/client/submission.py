"""The body of a submission, from a mapping or a job file."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from koalapy.client.calls import Calls, Document
from koalapy.common.locations import read_file
from koalapy.model.errors import RequestError
from koalapy.model.textfile import MAX_BYTES

JobOrFile = Mapping[str, Any] | str | Path | BinaryIO  # a job file's path, its open file, or the same as a mapping
_STREAM = "stdin"  # the name of an open file in errors, and the job's default name


def as_posted(
    job: JobOrFile,
    directory: str | Path | None,
    overrides: Mapping[str, str] | None,
    key: str | None,
    source: str = "job",
    labels: Mapping[str, str] | None = None,
    notify: Sequence[Mapping[str, Any]] | None = None,
) -> Document:
    """Build the body of a submission. Raises RequestError if the file cannot be read."""
    body: Document = {
        "overrides": dict(overrides or {}),
        "labels": dict(labels or {}),
        "notify": None if notify is None else [dict(each) for each in notify],
        "key": key or uuid.uuid4().hex,
    }
    if isinstance(job, Mapping):
        return body | {"job": dict(job), "source": source, "directory": str(Path(directory or Path.cwd()).absolute())}
    if not isinstance(job, str | Path):
        text = _text(job.read(MAX_BYTES + 1), _STREAM)
        return body | {"text": text, "source": _STREAM, "directory": str(Path(directory or Path.cwd()).absolute())}
    path = Path(job).absolute()
    return body | {"text": _read(path), "source": str(path), "directory": str(Path(directory or path.parent))}


def post(calls: Calls, path: str, body: Document) -> Document:
    """Post a body, and return koalad's answer. Raises KoalaError, RequestError for values that JSON cannot express."""
    try:
        return calls.call("POST", path, json=body)
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.end]
        message = f"The job holds bytes that are not UTF-8, near {near!r}."
        raise RequestError("not_utf8", message, "Pass them in a file, or encode them, as base64 does.") from error
    except (TypeError, ValueError) as error:
        message = f"The job is not JSON: {error}."
        raise RequestError("not_json", message, "Give mappings, lists, text and numbers.") from error


def _read(path: Path) -> str:
    return _text(read_file(path, "job file"), str(path))


def _text(data: bytes, name: str) -> str:
    """Decode a job file. Raises RequestError if it is not UTF-8, or too large."""
    if len(data) > MAX_BYTES:
        message = f"{name} is larger than {MAX_BYTES // 1_000_000} MB."
        raise RequestError("too_large_file", message, "A job file is a short text; stage data in.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if b"\0" in data:
            raise RequestError("not_text", f"{name} is not a text file.", "Give a job file, saved as UTF-8.") from error
        line, column = data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start)
        message = f"{name}:{line}:{column}: the text is not UTF-8 from this byte on."
        raise RequestError("not_text", message, "Save the file as UTF-8.") from error
