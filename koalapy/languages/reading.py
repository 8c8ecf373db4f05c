"""Reads a job file in any registered language.

The language is determined by the ending of the file's name, or by its first characters. Each language reads its texts
into documents of the job file's form, of which requests are made here.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from koalapy.languages.flow import FlowFile, flow_request, job_request, refuse_unsendable, unique
from koalapy.languages.jobfile import ComponentFile, JobFile
from koalapy.languages.spaces import with_parameters
from koalapy.languages.tables import OpenFile
from koalapy.model.errors import RequestError
from koalapy.model.notification import Notify
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, Path, read_document, read_value
from koalapy.model.textfile.fields import Section
from koalapy.model.textfile.notify import NotifyEntries, notify_of
from koalapy.model.textfile.validation import json_schema_of, validate
from koalapy.model.textfile.words import listed, shown

UNNAMED = "job"
_LONGEST_STEM = 128
_OVERRIDE_ADVICE = "Write a key of the job, such as priority=5, or of a component, such as components.0.processors=8."
DEFAULT_LANGUAGE = "yaml"
_LANGUAGES = {"yaml": "yaml", "yml": "yaml", "json": "yaml", "jsdl": "jsdl", "rsl": "rsl", "jdl": "jdl"}

_BEGINNINGS = {
    "coallocate": re.compile(rb"(\xef\xbb\xbf)?\s*(<\?[^>]*>\s*|<!--.*?-->\s*)*<coallocate\b", re.DOTALL),
    "jsdl": re.compile(rb"(\xef\xbb\xbf)?\s*<[?!A-Za-z_]"),
    "jdl": re.compile(rb"(\xef\xbb\xbf)?(\s|#[^\n]*\n|//[^\n]*\n)*(\[\s*\w|\w+\s*=[^=])"),
    "rsl": re.compile(rb"(\xef\xbb\xbf)?\s*(\(\*|[&+*|]\s*\()"),
}


def language_of(source: str, text: str | bytes = "") -> str:
    """Return the registered name of the language.

    If the ending is unknown or missing, the text decides. XML is JSDL, unless it begins with `<coallocate>`. A text is
    RSL if it begins with a comment of RSL, or with an operator and a group. It is JDL if it begins with a bracket and a
    name, or with a name and `=`. Else it is YAML, which includes JSON.
    """
    ending = source.rpartition("/")[2].rpartition(".")[2].casefold()
    if ending == "xml":
        return "coallocate" if _language_of_text(text) == "coallocate" else "jsdl"
    return _LANGUAGES.get(ending) or _language_of_text(text)


def _language_of_text(text: str | bytes) -> str:
    begin = text[:1000] if isinstance(text, bytes) else text[:1000].encode("utf-8", "replace")
    found = (language for language, pattern in _BEGINNINGS.items() if pattern.match(begin))
    return next(found, DEFAULT_LANGUAGE)


def stem_of(source: str) -> str:
    """Return a file's name without directory and ending, such as `poisson` for `jobs/poisson.yaml`."""
    name = source.rpartition("/")[2]
    return name.rpartition(".")[0] or name


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


class Reader(Protocol):
    """The function that a language registers under `koalapy.languages`."""

    def __call__(self, text: str | bytes, source: str) -> Document:
        """Return the job in the form of koalapy's job file. `source`: the file's name for messages.

        Raises RequestError, which names source and line.
        """
        ...


OWN: Mapping[str, Reader] = {DEFAULT_LANGUAGE: read_document}


def read_job(
    text: str | bytes,
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    readers: Mapping[str, Reader] = OWN,
    open_file: OpenFile | None = None,
) -> Request:
    """Read a request in the language that `language_of` returns; the other arguments are those of `request_of`.

    Keys in errors and overrides are those of koalapy's job file.

    Raises RequestError for a language without reader, and for errors in the file.
    """
    language = language_of(source, text)
    if language not in readers:
        message = f"{source} is written in {language}, for which no reader is installed."
        raise RequestError("unknown_language", message, f"Write the job in {listed(sorted(readers))}.")
    return request_of(readers[language](text, source), directory, clusters, overrides, open_file)
