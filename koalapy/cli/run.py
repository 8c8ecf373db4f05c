"""`koala run`: a program on components of so many processors, with its output passed through."""

import array
import contextlib
import fcntl
import os
import stat
import sys
import termios
from pathlib import Path
from typing import Annotated, Any

import typer

from koalapy.calls import NotReachable
from koalapy.cli import options
from koalapy.cli.ends import explained_of, tell_end
from koalapy.cli.follow import follow_output
from koalapy.cli.moving import StateLines
from koalapy.cli.output import DONE, print_json, say, told
from koalapy.cli.program import executable_of
from koalapy.cli.signals import deferred, interruptible
from koalapy.client import Grid
from koalapy.model.errors import KoalaError

_OWN_FAILURE = 125  # as docker run, timeout and env have it
_INTERRUPTED = 130

app = typer.Typer()
Document = dict[str, Any]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARG…", help="The program and its arguments.")],
    processors: Annotated[list[int], typer.Option("-n", metavar="N", help="A component of N processors; repeat it.")],
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="CLUSTER", help="Its cluster, in turn.", autocompletion=options.complete_clusters),
    ] = None,
    walltime: Annotated[str | None, typer.Option("--walltime", "-t", help="Like 10m or 2h.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    label: options.Label = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Run a program on components of so many processors, wait, and pass its output through.

    The exit status is the program's; 125 is a failure of koala itself. Ctrl-C cancels the job. A relative path such as
    ./prog is staged in.
    """
    clusters = list(on or [])
    if len(clusters) > len(processors):
        say("koala: There are more --on than -n. Name a cluster for each component at most.")
        raise typer.Exit(_OWN_FAILURE)
    try:
        with told():
            request = _request(program, processors, clusters, walltime, name)
            with Grid(grid) as koalad, interruptible():
                document = _run(koalad, request, json, label)
    except typer.Exit as ended:
        raise typer.Exit(_INTERRUPTED if ended.exit_code == _INTERRUPTED else _OWN_FAILURE) from None
    raise typer.Exit(_exit_status(document["job"]))


def _exit_status(job: Document) -> int:
    """The program's, where it had an end of its own."""
    if job["state"] == "done":
        return DONE
    statuses = [each["exit_status"] for each in job["components"] if each["exit_status"]]
    return statuses[0] if job["reason_code"] in ("exit_status", "killed") and statuses else _OWN_FAILURE


def _tell_of_input() -> None:
    """The program's standard input is empty: who has given some learns that it is lost."""
    with contextlib.suppress(OSError, ValueError):
        kind = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISREG(kind) or stat.S_ISFIFO(kind):
            waiting = array.array("i", [0])
            fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, waiting)
            if waiting[0] > 0:
                say("koala: Standard input is not passed on to the program. Write it to a file, and stage that in.")


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


def _run(koalad: Grid, request: Document, json: bool, label: bool | None) -> Document:
    """The job and its story, once it is over."""
    with deferred() as let_in:  # an interrupt must not come between the job and its number
        job = koalad.submit(request)
        try:
            let_in()
            say(f"job {job} accepted")
            _tell_of_input()
            output = sys.stderr.buffer if json else sys.stdout.buffer
            follow_output(koalad, job, output, sys.stderr.buffer, StateLines(koalad).tell, label)
            document = koalad.show(job)
            explained = explained_of(koalad, document["job"])
        except KeyboardInterrupt:
            _cancel(koalad, job)
            raise
        except NotReachable:
            say(f"koala: job {job} goes on; `koala wait {job}` and `koala logs {job}` come back to it.")
            raise
    if json:
        print_json(document)
    if document["job"]["state"] != "done":
        tell_end(document["job"], explained, output_shown=True)
    return document


def _cancel(koalad: Grid, job: int) -> None:
    try:
        say(f"job {job} is {koalad.cancel(job)['state']}")
    except KoalaError as error:
        say(f"koala: job {job} was not cancelled: {error}")
