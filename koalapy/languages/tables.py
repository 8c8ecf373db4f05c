"""Counts the lines of parameter files, and the rows of comma-separated values, in one pass at submission.

Each file of a sweep is read once, with a function that may open it. koalapy_adapters.launcher reads single lines on the
nodes, and must interpret them alike.
"""

import csv
import posixpath
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO, NamedTuple, Protocol

from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.validation import refusal
from koalapy.model.textfile.words import shown

LONGEST_LINE = 131_071  # bytes: the limit of Linux for one argument, without its terminating NUL
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLOCK = 1 << 20


class BadFile(ValueError):
    """A file without valid parameters. `line`: the line of the error, from 1; 0 for the whole file."""

    def __init__(self, line: int, what: str, advice: str) -> None:
        super().__init__(what)
        self.line, self.what, self.advice = line, what, advice


class Table(NamedTuple):
    """A file of values: the names of its heading, () without one, and the number of lines with values."""

    names: tuple[str, ...]
    lines: int


def count_lines(file: IO[bytes]) -> Table:
    """Return the table of a file with one value on each line. Raises BadFile or OSError."""
    count = sum(len(lines) for _, lines in _blocks(file))
    if not count:
        raise BadFile(0, "holds no line", "Write a value on each line.")
    return Table((), count)


def count_rows(file: IO[bytes]) -> Table:
    """Return the table of comma-separated values with a heading. Raises BadFile or OSError."""
    blocks = _blocks(file)
    _, lines = next(blocks, (1, []))
    names = _heading(lines[0]) if lines else ()
    count = 0
    for number, rows in chain([(2, lines[1:])], blocks):
        _check_widths(rows, len(names), number)
        count += len(rows)
    if not count:
        raise BadFile(0, "holds no row below a heading", "Write the columns' names on the first line, then rows.")
    return Table(names, count)


def _blocks(file: IO[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield (number of the first line, lines without their ends). Empty lines at the end are left out.

    Raises BadFile for other empty lines, and for unsuitable lines.
    """
    number, empty = 1, False
    for lines in _raw_blocks(file):
        filled = _without_last_empty(lines)
        if filled and (empty or b"" in filled):
            where = number if empty else number + filled.index(b"")
            raise BadFile(where, "is empty", "Remove it, or write a value there.")
        if filled:
            _check_lines(filled, number)
            yield number, filled
        number += len(filled)
        empty = empty or len(filled) < len(lines)


def _raw_blocks(file: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield lists of lines. In memory are at most a block and a line, and only the start of a line that is too long."""
    blocks = iter(lambda: file.read(_BLOCK) or b"", b"")  # read returns None if it would block
    rest = next(blocks, b"").removeprefix(_BYTE_ORDER_MARK)
    for block in chain([b""], blocks):
        data = rest + block
        lines = data.split(b"\n")
        rest = lines.pop()
        yield _without_returns(lines) if b"\r" in data else lines
        if len(rest) > LONGEST_LINE + 1:
            break
    if rest:
        yield _without_returns([rest])


def _without_returns(lines: list[bytes]) -> list[bytes]:
    return [line[:-1] if line.endswith(b"\r") else line for line in lines]


def _without_last_empty(lines: list[bytes]) -> list[bytes]:
    end = len(lines)
    while end and not lines[end - 1]:
        end -= 1
    return lines if end == len(lines) else lines[:end]


def _check_lines(lines: list[bytes], number: int) -> None:
    """Check all lines together, and only if that fails one by one. Raises BadFile with the line's number."""
    if max(map(len, lines)) > LONGEST_LINE:
        where = next(index for index, line in enumerate(lines, number) if len(line) > LONGEST_LINE)
        raise BadFile(where, f"has more than {LONGEST_LINE:,} bytes", "No program can be given more at once.")
    if b"\0" in b"".join(lines):
        where = next(index for index, line in enumerate(lines, number) if b"\0" in line)
        raise BadFile(where, "holds a NUL character", "Remove it; no program can be given one.")


def _heading(line: bytes) -> tuple[str, ...]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise BadFile(1, "is a heading that is not UTF-8", "Save the file as UTF-8.") from None
    return tuple(cell.strip() for cell in _cells(text, 1))


def _check_widths(rows: list[bytes], wanted: int, number: int) -> None:
    """Check all rows together, and only if that fails one by one. Raises BadFile with the row's number."""
    if _widths(rows) == [wanted] * len(rows):
        return
    for index, row in enumerate(rows, number):
        width = _width(row, index)
        if width != wanted:
            what = f"has {_columns(width)} where the heading has {wanted}"
            raise BadFile(index, what, "Correct the line; text with a comma in it belongs in double quotes.")


def _widths(rows: list[bytes]) -> list[int]:
    """Return the number of cells of each row; [] or fewer rows if a quote is open at the end of a line."""
    try:
        return list(map(len, csv.reader(b"\n".join(rows).decode("latin-1").split("\n"), strict=True)))
    except csv.Error:
        return []


def _width(row: bytes, number: int) -> int:
    return len(_cells(row.decode("latin-1"), number)) if b'"' in row else row.count(b",") + 1


def _cells(text: str, number: int) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise BadFile(
                number, "has a quote that it does not close", "Close it; a row must be on one line."
            ) from None
        what = f"is not a row of comma-separated values ({shown(str(error), quote='')})"
        raise BadFile(number, what, 'Double the quotes inside of quotes: "a ""b"" c".') from None


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


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
