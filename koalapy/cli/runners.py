"""`koala runners`: sweeps, their nodes and their progress."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json, table
from koalapy.cli.sweep_progress import until
from koalapy.cli.times import in_text
from koalapy.client import Grid
from koalapy.model.counts import counted_as
from koalapy.model.states import JobState

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job
    from koalapy.answers.sweeps import Admission, Runner, RunnerCluster

app = typer.Typer()
_WIDE = 110  # columns; narrower terminals show the nodes on lines of their own
_COLUMNS = (
    "ID", "NAME", "STATE", "DONE", "OF", "RUNNING", "FAILED", "PREEMPTED", "PER MIN", "ENDS IN", "PROC HOURS", "NODES",
)  # fmt: skip


@app.command()
def runners(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show finished sweeps too.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show the active sweeps: their nodes, progress, rate and processor time."""
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.admission([str(state) for state in JobState] if everything else ())
    if json:
        return print_json(document)
    found = document["runners"]
    apart = out.is_terminal and out.width < _WIDE
    columns = [name for name in _COLUMNS if not (apart and name == "NODES")]
    now = datetime.now(UTC)
    table(columns, [[cells[name] for name in columns] for cells in (_cells(each, now) for each in found)])
    for each in found if apart else ():
        if (nodes := nodes_of(each)) is not None:
            out.print(f"{each['id']}: on {nodes}")
    for each in found:
        _print_more(each)
    if found or document["admission"]["nodes"] is not None:
        _print_admission(document["admission"])
    return None


def _cells(runner: "Runner", now: datetime) -> dict[str, object]:
    return {
        "ID": runner["id"],
        "NAME": runner["name"],
        "STATE": runner["state"],
        "DONE": runner["done"],
        "OF": runner["parameters"],
        "RUNNING": runner["running"],
        "FAILED": runner["failed"],
        "PREEMPTED": runner["preempted"],
        "PER MIN": rate_of(runner),
        "ENDS IN": left_of(runner, now),
        "PROC HOURS": hours_of(runner),
        "NODES": nodes_of(runner),
    }


def runner_of(koalad: Grid, sweep: "Job") -> "Runner":
    """Return the runner of a sweep, as `koala show` prints it."""
    return next(each for each in koalad.runners([str(state) for state in JobState]) if each["id"] == sweep["id"])


def nodes_of(runner: "Runner") -> str | None:
    """Return the nodes by cluster, such as `alpha:3, gamma:1+2`; the number after + is of nodes that are starting."""
    return ", ".join(_nodes(each) for each in runner["clusters"] if each["nodes"] or each["starting"]) or None


def _nodes(cluster: "RunnerCluster") -> str:
    starting = f"+{cluster['starting']}" if cluster["starting"] else ""
    return f"{cluster['cluster']}:{cluster['nodes']}{starting}"


def hours_of(runner: "Runner") -> str:
    return f"{runner['charged_processor_seconds'] / 3600:.2f}"


def left_of(runner: "Runner", now: datetime) -> str | None:
    return until(runner["ends_at"], now) if runner["ends_at"] else None


def rate_of(runner: "Runner") -> str | None:
    rate = runner["parameters_per_minute"]
    return None if rate is None else f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def _print_more(runner: "Runner") -> None:
    """Print why the sweep waits, and its excluded and suspended nodes."""
    if runner["reason"]:
        out.print(f"{runner['id']}: {in_text(runner['reason'])}")
    for each in runner["clusters"]:
        if each["black_holes"]:
            out.print(f"{runner['id']}: excluded on {each['cluster']}: {', '.join(each['black_holes'])}")
        if each["suspended"]:
            nodes = counted_as(each["nodes"], "node")
            out.print(f"{runner['id']}: suspended by {each['cluster']}: {each['suspended']} of its {nodes}")


def _print_admission(found: "Admission") -> None:
    line = f"sweeps can expect {found['expected_nodes']:.1f} nodes in the next hour"
    if found["nodes"] is not None:
        predicted, error = found["predicted_nodes"], found["mean_error"]
        line += f"; of the last hour {predicted:.1f} were predicted, {found['nodes']:.1f} came true"
        line += f" (mean error {error:.1f})"
    out.print(line)
