"""`koala hold` and `koala release`: keep waiting jobs from starting, and let them start again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from koalapy.cli import options
from koalapy.cli.output import (
    DONE,
    errors_reported,
    exit_status,
    out,
    print_error,
    print_json,
)
from koalapy.client import Grid
from koalapy.client.calls import error_of

if TYPE_CHECKING:
    from koalapy.answers.jobs import ChangedAnswer

app = typer.Typer()


@app.command()
def hold(jobs: options.JobIds, grid: options.Grid = None, json: options.Json = False) -> None:
    """Keep waiting jobs from being started, and sweeps from going on."""
    with errors_reported(), Grid(grid) as koalad:
        print_changed(koalad.hold_many(options.ids_of(koalad, jobs)), json, stopping=", to be held")


@app.command()
def release(jobs: options.JobIds, grid: options.Grid = None, json: options.Json = False) -> None:
    """Let held jobs and sweeps start again."""
    with errors_reported(), Grid(grid) as koalad:
        print_changed(koalad.release_many(options.ids_of(koalad, jobs)), json, stopping=", and goes on then")


def print_changed(changed: "ChangedAnswer", json: bool, stopping: str = "", known: Sequence[int] = ()) -> NoReturn:
    """Print the changed jobs, and the errors of others; then end the command with its status."""
    status = DONE
    for refused in changed["refused"]:
        if refused["id"] not in known:
            error = error_of(refused["error"])
            print_error(error)
            status = exit_status(error)
    if json:
        print_json(changed)
    else:
        for job in changed["jobs"]:
            out.print(f"job {job['id']} is {job['state']}{stopping if job['state'] == 'stopping' else ''}")
    raise typer.Exit(status)
