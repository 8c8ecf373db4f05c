"""Commands about sweeps that run or have run: runners, results."""

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.output import out, print_json, table, told
from koalapy.cli.sweep_progress import until
from koalapy.client import Grid
from koalapy.model.errors import OurError
from koalapy.model.states import JobState

app = typer.Typer()
Document = dict[str, Any]


class Form(StrEnum):
    """Of results."""

    CSV = "csv"
    JSONL = "jsonl"


@app.command()
def runners(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those of sweeps that are over, too.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Sweeps that are not over: where they run, how far they are, how fast, and what they were charged."""
    with told(), Grid(grid) as koalad:
        document = koalad.admission([str(state) for state in JobState] if everything else ())
    if json:
        return print_json(document)
    found = document["runners"]
    now = datetime.now(UTC)
    table(
        (
            "ID", "NAME", "STATE", "DONE", "OF", "RUNNING", "FAILED", "PREEMPTED", "PER MIN", "ENDS IN", "PROC HOURS",
            "NODES",
        ),
        [
            (
                each["id"], each["name"], each["state"], each["done"], each["parameters"], each["running"],
                each["failed"], each["preempted"], _rate(each), _left(each, now),
                f"{each['charged_processor_seconds'] / 3600:.2f}", nodes_of(each),
            )
            for each in found
        ],
    )  # fmt: skip
    for each in found:
        _tell_more(each)
    _tell_admission(document["admission"])
    return None


@app.command()
def results(
    sweep: Annotated[int, typer.Argument(metavar="SWEEP", help="A sweep.")],
    form: Annotated[Form, typer.Option("--format", help="csv with a header, or a JSON object a line.")] = Form.CSV,
    failed: Annotated[bool, typer.Option("--failed", help="Only parameters that did not end with 0.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Into this file.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """What became of each parameter that is done: its number and values, exit status, where and when it ran."""
    with told(), Grid(grid) as koalad:
        pieces = koalad.results_as("json" if json else str(form), sweep, failed=failed)
        if output is None:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        else:
            _write(output, pieces)


def nodes_of(runner: Document) -> str | None:
    """As alpha:3,gamma:1; with a plus, nodes that are on their way to it."""
    return ",".join(_nodes(each) for each in runner["clusters"] if each["nodes"] or each["starting"]) or None


def _nodes(cluster: Document) -> str:
    starting = f"+{cluster['starting']}" if cluster["starting"] else ""
    return f"{cluster['cluster']}:{cluster['nodes']}{starting}"


def _left(runner: Document, now: datetime) -> str | None:
    return until(runner["ends_at"], now) if runner["ends_at"] else None


def _rate(runner: Document) -> str | None:
    rate = runner["parameters_per_minute"]
    return None if rate is None else f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def _tell_more(runner: Document) -> None:
    """Why it waits, and the nodes that are left out."""
    if runner["reason"]:
        out.print(f"{runner['id']}: {runner['reason']}")
    for each in runner["clusters"]:
        if each["left_out"]:
            out.print(f"{runner['id']}: left out on {each['cluster']}: {', '.join(each['left_out'])}")


def _tell_admission(found: Document) -> None:
    out.print(f"sweeps can expect {found['expected_nodes']:.1f} nodes in the next hour", end="")
    if found["nodes"] is not None:
        predicted, error = found["predicted_nodes"], found["mean_error"]
        out.print(f"; of the last hour {predicted:.1f} were predicted, {found['nodes']:.1f} came true", end="")
        out.print(f" (mean error {error:.1f})", end="")
    out.print()


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Whole or not at all: it appears under its name when all of it is there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        draft.replace(path)
    except OSError as error:
        raise OurError("not_written", f"{path} cannot be written: {error.strerror}.", "Name another file.") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
