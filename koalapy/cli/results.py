"""`koala results`: the result of each parameter of a sweep."""

import os
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, pass_on
from koalapy.cli.signals import interruptible
from koalapy.client import Grid
from koalapy.model.errors import OurError

app = typer.Typer()


class Form(StrEnum):
    """The output format of results."""

    CSV = "csv"
    JSONL = "jsonl"


@app.command()
def results(
    sweep: Annotated[int, typer.Argument(metavar="SWEEP", help="A sweep.")],
    form: Annotated[
        Form, typer.Option("--format", help="csv with a header, or one JSON object on each line.")
    ] = Form.CSV,
    failed: Annotated[bool, typer.Option("--failed", help="Only parameters with a non-zero exit status.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Print the result of each parameter that is done: its number and values, exit status, where and when it ran."""
    with errors_reported(), Grid(grid) as koalad, interruptible():
        pieces = koalad.results_as("json" if json else str(form), sweep, failed=failed)
        if output is None:
            pass_on(pieces)
        else:
            _write(output, pieces)


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Write to a file. An existing pipe or device such as /dev/null is written to, and not replaced.

    Raises OurError if it cannot be written.
    """
    write = _fill if path.exists() and not path.is_file() else _replace
    try:
        write(Path(os.path.realpath(path)), pieces)
    except OSError as error:
        raise OurError("not_written", f"{path} cannot be written: {error.strerror}.", "Name another file.") from error


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    """Write the file whole or not at all: it gets its name when it is complete."""
    draft = path.with_name(f".koala.{os.getpid()}.results")
    try:
        _fill(draft, pieces)
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _fill(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
