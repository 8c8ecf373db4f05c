"""The output of commands: one JSON document on stdout, or tables for people; messages and errors on stderr.

Printed texts come from programs, batch systems and other hosts. Therefore all pass through `visible`: a terminal gets
no control characters but tabs, line feeds and rich's own. Only output of jobs is passed on unchanged, as by cat.
"""

import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from koalapy.cli import options
from koalapy.cli.times import in_text
from koalapy.client.calls import NotReachable
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.textfile.words import visible, visible_json

if TYPE_CHECKING:
    from rich.status import Status
    from rich.table import Table

    from koalapy.cli.console import SafeConsole

_SHORT = 10  # width of a cell that is never broken
_PIECE = 4  # least width of a longer cell in a line
DONE, FAILED, BAD_INPUT, NOT_REACHABLE = 0, 1, 2, 3
_ABOUT_THE_STATE = frozenset({"no_such_job", "wrong_state", "known_tag", "no_such_tag", "not_ended", "never_ran"})


class Screen:
    """Standard output or standard error, for people. For a pipe it writes plain lines, without importing rich."""

    def __init__(self, stderr: bool = False) -> None:
        self._stderr = stderr

    @cached_property
    def console(self) -> "SafeConsole":
        from koalapy.cli.console import SafeConsole

        return SafeConsole(stderr=self._stderr)

    @property
    def is_terminal(self) -> bool:
        return not self._is_plain() and self.console.is_terminal

    @property
    def width(self) -> int:
        return self.console.width

    def status(self, text: str) -> "Status":
        return self.console.status(text)

    def print(self, *objects: object) -> None:
        """Print texts in a line, or any object that rich can show. No control character reaches a terminal."""
        if self._is_plain() and all(isinstance(each, str) for each in objects):
            file = self._file()
            file.write(" ".join(visible(str(each)) for each in objects) + "\n")  # in one write: threads write lines too
            file.flush()
        else:
            self.console.print(*objects)

    def _file(self) -> TextIO:
        return sys.stderr if self._stderr else sys.stdout

    def _is_plain(self) -> bool:
        """Return whether to print plain lines: no terminal, and no variable of rich that demands one."""
        asked_for = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
        return "console" not in self.__dict__ and not asked_for and not self._file().isatty()


errors = Screen(stderr=True)
out = Screen()


def print_json(document: Any) -> None:
    """Print a JSON document. Control characters are escaped, also those that JSON allows in a text."""
    sys.stdout.write(visible_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")


def print_line(text: str) -> None:
    """Print a plain line on stdout and flush it, for a pipe or a log."""
    print(visible(text), flush=True)


def pass_on(pieces: Iterable[bytes]) -> None:
    """Copy a document from koalad in UTF-8 to stdout: unchanged to a pipe or file, made visible on a terminal."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    shown = sys.stdout.isatty()
    for piece in pieces:
        sys.stdout.buffer.write(visible(decoder.decode(piece)).encode() if shown else piece)
    sys.stdout.buffer.flush()


def print_message(message: str) -> None:
    """Print a message for a person, on stderr."""
    errors.print(message)


def fail(error: KoalaError) -> NoReturn:
    """Print the error and its advice on stderr, with --json also as a document on stdout, and exit with its status.

    Raises typer.Exit.
    """
    print_error(error)
    if options.is_json_wanted():
        from koalapy.views.fields import error as document_of

        print_json(document_of(error.reason))
    raise typer.Exit(exit_status(error))


def print_error(error: KoalaError) -> None:
    """Print the error and its advice on stderr."""
    print_message(f"koala: {in_text(error.reason.message)}")
    if error.reason.advice:
        print_message(in_text(error.reason.advice))


def exit_status(error: KoalaError) -> int:
    """Return the exit status of an error."""
    if isinstance(error, NotReachable):
        return NOT_REACHABLE
    bad_input = error.reason.whose == "request" and error.reason.code not in _ABOUT_THE_STATE
    return BAD_INPUT if bad_input else FAILED


@contextmanager
def errors_reported() -> Iterator[None]:
    """Report an error as a message and end the command; a traceback is a bug.

    Raises typer.Exit.
    """
    try:
        yield
    except KoalaError as error:
        fail(error)
    except (KeyboardInterrupt, typer.Abort):  # the second while a question is asked
        print_message("koala: interrupted.")
        raise typer.Exit(130) from None


def confirm(question: str, refusal: str, advice: str, warning: str = "") -> None:
    """Ask a person at a terminal, below the warning, and end the command unless the answer is yes.

    Raises RequestError with `refusal` and `advice` without a terminal.
    """
    if not sys.stdin.isatty():
        raise RequestError("not_confirmed", refusal, advice)
    if warning:
        print_message(warning)
    if not typer.confirm(question, err=True):
        raise typer.Exit(FAILED)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on a terminal; aligned plain lines in a pipe, or if the terminal is too narrow for the table."""
    texts = [["-" if cell is None else " ".join(visible(str(cell)).split()) for cell in row] for row in rows]
    columns = [visible(column) for column in columns]
    if not out.is_terminal or _least_width(columns, texts) > out.width:
        return _plain(columns, texts)
    out.print(rich_table(columns, texts))
    return None


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> "Table":
    """Return a table of rich whose cells are plain text without markup.

    If the terminal is too narrow, the words of headings are stacked, and only long cells are broken.
    """
    from rich.table import Table
    from rich.text import Text

    columns, cells = [visible(column) for column in columns], [[visible(cell) for cell in row] for row in rows]
    tight = sum(_widths(columns, cells)) + 2 * (len(columns) - 1) > out.width
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0) if tight else (0, 1))
    for column, width in zip(columns, _widths([""] * len(columns), cells), strict=True):
        heading = column.replace(" ", "\n") if tight else column
        shown.add_column(heading, overflow="fold", no_wrap=tight and width <= _SHORT)
    for row in cells:
        shown.add_row(*(Text(cell) for cell in row))
    return shown


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the least width at which no short cell and no word of a heading is broken."""
    cells = [width if width <= _SHORT else _PIECE for width in _widths([""] * len(columns), rows)]
    words = [max(map(len, column.split()), default=0) for column in columns]
    return sum(map(max, cells, words)) + len(columns) - 1


def _plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = _widths(columns, rows)
    for line in [columns, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(line[i]) for line in [columns, *rows]) for i in range(len(columns))]


_UNITS = ("B", "KB", "MB", "GB", "TB")


def in_bytes(size: float) -> str:
    """Format a size with three digits and a decimal unit."""
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size, power = size / 1000, power + 1
    return f"{size:.0f} {_UNITS[power]}" if not power or size >= 100 else f"{size:.3g} {_UNITS[power]}"
