"""One function for each job language, which reads a text in it into a request."""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from koalapy.languages import coallocate, jdl, jsdl, rsl
from koalapy.languages.reading import request_of
from koalapy.languages.tables import OpenFile
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, read_document


def _read(
    document_of: Callable[[str | bytes, str], Document],
    text: str | bytes,
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    open_file: OpenFile | None = None,
) -> Request:
    return request_of(document_of(text, source), directory, clusters, overrides, open_file)


read_native = partial(_read, read_document)
read_jsdl, read_rsl = partial(_read, jsdl.document_of), partial(_read, rsl.document_of)
read_coallocate, read_jdl = partial(_read, coallocate.document_of), partial(_read, jdl.document_of)
