"""Reads the files of one sweep's parameters, each once, with a function that may open them."""

import posixpath
from collections.abc import Callable
from typing import IO, Protocol

from koalapy.languages.tables import BadFile, Table, count_lines, count_rows
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.validation import refusal
from koalapy.model.textfile.words import shown


class OpenFile(Protocol):
    """Opens a regular file of the submitter by its absolute path, for reading from the start. Raises OSError."""

    def __call__(self, path: str) -> IO[bytes]: ...


class SweepFiles:
    """The files of a sweep, by paths relative to `directory`. Errors are RequestErrors that name file and line."""

    def __init__(self, directory: str, document: Document, open_file: OpenFile | None) -> None:
        self._directory, self._document, self._open = directory, document, open_file
        self._known: dict[tuple[str, bool], Table] = {}

    def lines(self, file: str, where: Path) -> Table:
        """Return the table of a file of lines. `where`: its place in the document, for errors. Raises RequestError."""
        return self._table(file, where, count_lines)

    def rows(self, file: str, where: Path) -> Table:
        return self._table(file, where, count_rows)

    def _table(self, file: str, where: Path, count: Callable[[IO[bytes]], Table]) -> Table:
        key = posixpath.normpath(file), count is count_rows
        if key not in self._known:
            self._known[key] = self._count(file, where, count)
        return self._known[key]

    def _count(self, file: str, where: Path, count: Callable[[IO[bytes]], Table]) -> Table:
        if self._open is None:
            what = f"is the file {shown(file)}, and nobody reads files here"
            raise refusal(self._document, where, "no_files", what, "Submit the job to a koalad.")
        try:
            with self._open(posixpath.join(self._directory, file)) as opened:
                return count(opened)
        except OSError as error:
            what = f"is the file {shown(file)}, which cannot be read: {error.strerror or error}"
            advice = "Correct the path; it is relative to the job file, or to where `koala sweep` is started."
            raise refusal(self._document, where, "unreadable_file", what, advice) from error
        except BadFile as error:
            place, whole = (f"{file}:{error.line}", "line") if error.line else (file, "file")
            raise RequestError("bad_file", f"{place}: the {whole} {error.what}.", error.advice) from error
