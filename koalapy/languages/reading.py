"""Reads a job file in any registered language."""

from collections.abc import Collection, Mapping
from typing import Protocol

from koalapy.languages import native
from koalapy.languages.endings import DEFAULT_LANGUAGE, language_of
from koalapy.languages.sweepfiles import OpenFile
from koalapy.model.errors import RequestError
from koalapy.model.request import Request
from koalapy.model.textfile.words import listed


class Reader(Protocol):
    """The function that a language registers under `koalapy.languages`; `native.read` is one."""

    def __call__(
        self,
        text: str | bytes,
        source: str,
        directory: str,
        clusters: Collection[str] | None = None,
        overrides: Mapping[str, str] | None = None,
        open_file: OpenFile | None = None,
    ) -> Request: ...


OWN: Mapping[str, Reader] = {DEFAULT_LANGUAGE: native.read}


def read_job(
    text: str | bytes,
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    readers: Mapping[str, Reader] = OWN,
    open_file: OpenFile | None = None,
) -> Request:
    """Read a request in the language that `language_of` returns; the arguments are those of `native.read`.

    Raises RequestError for a language without reader, and for errors in the file.
    """
    language = language_of(source, text)
    if language not in readers:
        message = f"{source} is written in {language}, for which no reader is installed."
        raise RequestError("unknown_language", message, f"Write the job in {listed(sorted(readers))}.")
    return readers[language](text, source, directory, clusters, overrides, open_file)
