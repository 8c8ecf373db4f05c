"""`koala fetch`: files that a job left on its clusters."""

from pathlib import Path
from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import DONE, FAILED, errors_reported, out, print_json, print_message
from koalapy.cli.progress import POLL_S, TransferLines
from koalapy.client import Grid
from koalapy.model.counts import counted_as

app = typer.Typer()


@app.command()
def fetch(
    job: options.JobOrPilot,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files, directories or patterns; out-{x} for a sweep. Default: all of stage_out."),
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Directory to write to. Default: the job's.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Fetch files that a job left on its clusters."""
    with errors_reported(), Grid(grid) as koalad, TransferLines() as lines:
        while (found := koalad.fetch(job, paths or (), directory=to, timeout=POLL_S))["state"] == "fetching":
            lines.show(koalad.jobs(ids=[job])[0])
    if json:
        print_json(found)
    else:
        out.print(f"job {job}: {counted_as(found['files'] or 0, 'file')}, {counted_as(found['bytes'] or 0, 'byte')}")
        for each in filter(None, (*found["notes"], found["lack"])):
            print_message(each)
    raise typer.Exit(FAILED if found["lack"] else DONE)
