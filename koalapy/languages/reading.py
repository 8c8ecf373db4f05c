"""Reads a job file in any registered language."""

from collections.abc import Collection, Mapping
from typing import Protocol

from koalapy.languages.endings import DEFAULT_LANGUAGE, language_of
from koalapy.languages.native import request_of
from koalapy.languages.sweepfiles import OpenFile
from koalapy.model.errors import RequestError
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, read_document
from koalapy.model.textfile.words import listed


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
