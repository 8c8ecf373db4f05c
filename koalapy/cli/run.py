"""`koala run`: a program on components of so many processors, with its output passed through."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from koalapy.calls import NotReachable
from koalapy.cli import options
from koalapy.cli.follow import follow_output
from koalapy.cli.jobs import exit_by, reason_of, tell_end
from koalapy.cli.moving import StateLines
from koalapy.cli.output import BAD_INPUT, print_json, say, told
from koalapy.cli.program import executable_of
from koalapy.cli.signals import deferred, interruptible
from koalapy.client import Grid
from koalapy.model.errors import KoalaError

app = typer.Typer()
Document = dict[str, Any]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARG…", help="The program and its arguments.")],
    processors: Annotated[list[int], typer.Option("-n", metavar="N", help="A component of N processors; repeat it.")],
    on: Annotated[list[str] | None, typer.Option("--on", metavar="CLUSTER", help="Its cluster, in turn.")] = None,
    walltime: Annotated[str | None, typer.Option("--walltime", "-t", help="Like 10m or 2h.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Run a program on components of so many processors, wait, and pass its output through."""
    clusters = list(on or [])
    if len(clusters) > len(processors):
        say("koala: There are more --on than -n. Name a cluster for each component at most.")
        raise typer.Exit(BAD_INPUT)
    with told():
        request = _request(program, processors, clusters, walltime, name)
        with Grid(grid) as koalad, interruptible():
            _run(koalad, request, json)


def _request(
    program: list[str], processors: list[int], clusters: list[str], walltime: str | None, name: str | None
) -> Document:
    """The job of the command line. A program that is named by a relative path is staged in."""
    executable, staged = executable_of(program[0])
    shared: Document = {"executable": executable, "arguments": program[1:]}
    if walltime is not None:
        shared["walltime"] = walltime
    components = [{"processors": count, **shared} for count in processors]
    for component, cluster in zip(components, clusters, strict=False):
        component["cluster"] = cluster
    return {"name": name or Path(executable).name, "components": components, "stage_in": staged}


def _run(koalad: Grid, request: Document, json: bool) -> None:
    with deferred() as let_in:  # an interrupt must not come between the job and its number
        job = koalad.submit(request)
        try:
            let_in()
            say(f"job {job} accepted")
            output = sys.stderr.buffer if json else sys.stdout.buffer
            follow_output(koalad, job, output, sys.stderr.buffer, StateLines(koalad).tell)
            document = koalad.show(job)
            why = reason_of(koalad, document["job"])
        except KeyboardInterrupt:
            _cancel(koalad, job)
            raise
        except NotReachable:
            say(f"koala: job {job} goes on; `koala wait {job}` and `koala logs {job}` come back to it.")
            raise
    if json:
        print_json(document)
    if document["job"]["state"] != "done":
        tell_end(document["job"], why, output_shown=True)
    exit_by([document["job"]])


def _cancel(koalad: Grid, job: int) -> None:
    try:
        say(f"job {job} is {koalad.cancel(job)['state']}")
    except KoalaError as error:
        say(f"koala: job {job} was not cancelled: {error}")
