"""`koala logs`: the output of a job's processes."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import BAD_INPUT, errors_reported, print_message
from koalapy.client import Grid
from koalapy.client.following import RECONNECT_S, Reconnecting

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job

app = typer.Typer()


@app.command()
def logs(
    job: options.JobOrPilot,
    component: Annotated[int | None, typer.Option("--component", "-c", help="Only this component.")] = None,
    errors: Annotated[bool, typer.Option("--errors", "-e", help="Show standard error instead.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job is final.")] = False,
    parameter: Annotated[
        int | None,
        typer.Option("--parameter", "-p", metavar="N", help="Only this parameter of a sweep; the first is 1."),
    ] = None,
    prefix: options.Prefix = None,
    reconnect: options.Reconnect = RECONNECT_S,
    grid: options.Grid = None,
) -> None:
    """Print the standard output of all processes of the last attempt, or of one parameter of a sweep."""
    if component is not None and parameter is not None:
        print_message(
            "koala: --component and --parameter exclude each other. Use --parameter for a sweep, --component for a job."
        )
        raise typer.Exit(BAD_INPUT)
    with errors_reported(), Grid(grid) as koalad:
        stream = "errors" if errors else "output"
        pieces = koalad.output(
            job,
            stream=stream,
            component=component,
            follow=follow,
            parameter=parameter,
            prefix=prefix,
            reconnect=Reconnecting(reconnect, print_message),
        )
        wrote = False
        for piece in pieces:
            wrote = True
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        if not wrote and parameter is None:
            _print_why_nothing(koalad.jobs(ids=[job])[0], component)


def _print_why_nothing(job: "Job", component: int | None) -> None:
    """Print that the job, or the component, has not started yet. koalad refuses one that never ran."""
    began = any(each["started_at"] and component in (None, each["index"]) for each in job["components"])
    if job["finished_at"] is None and not job["sweep"] and not began:
        who = f"job {job['id']}" if component is None else f"component {component} of job {job['id']}"
        print_message(f"koala: There is no output: {who} has not started. The job is {job['state']}.")
