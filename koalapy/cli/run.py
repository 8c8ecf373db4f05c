"""`koala run`: runs a program on components of given sizes, and passes its output through."""

import array
import contextlib
import fcntl
import os
import stat
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.attach import follow_attended, leave
from koalapy.cli.attached_terminal import ESCAPE, AttachedTerminal, Detached, Screen, escape_of
from koalapy.cli.ends import exit_status_of, found_after, own_failures, print_end
from koalapy.cli.explain import explained_of
from koalapy.cli.follow import follow_output
from koalapy.cli.output import FAILED, errors_reported, out, print_json, print_message
from koalapy.cli.progress import StateLines
from koalapy.cli.signals import deferred, interruptible
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.following import RECONNECT_S
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.request import Interactive

if TYPE_CHECKING:
    from koalapy.answers.jobs import JobAnswer

app = typer.Typer()


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARG…", help="The program and its arguments.")],
    processors: Annotated[list[int], typer.Option("-n", metavar="N", help="A component of N processors; repeat it.")],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="CLUSTER",
            help="The cluster of each component, in turn; repeat it.",
            autocompletion=options.complete_clusters,
            callback=options.cluster_names,
        ),
    ] = None,
    optional: Annotated[
        list[int] | None,
        typer.Option(
            "--optional", metavar="I", help="The job may start without component I (the first is 0); repeat it."
        ),
    ] = None,
    walltime: Annotated[
        str | None, typer.Option("--walltime", "-t", help="Time limit of the program, like 10m or 2h.")
    ] = None,
    name: options.Name = None,
    stage_in: options.StageIn = None,
    stage_out: Annotated[
        list[str] | None,
        typer.Option("--stage-out", metavar="PATH", help="A file or directory to fetch at the end; repeat it."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="A variable; without =VALUE its value here; repeat it."),
    ] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="Priority from 0 to 20; lower goes first.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", help="Memory of each processor, like 512M or 4G.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs of each node.")] = None,
    threads: Annotated[int | None, typer.Option("--threads", help="Processors of each process.")] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Connect rank 0 to this terminal: its input and its output.")
    ] = False,
    terminal: Annotated[
        bool | None,
        typer.Option("--tty/--no-tty", help="With -i: a terminal, or standard input alone. Default: as it is here."),
    ] = None,
    escape: options.Escape = ESCAPE,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the job's number, and do not wait.")] = False,
    label: options.Label = None,
    notify: options.Notify = None,
    notify_on: options.NotifyOn = None,
    key: options.Key = None,
    prefix: options.Prefix = None,
    reconnect: options.Reconnect = RECONNECT_S,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Run a program on one or more components of N processors each, wait, and pass its output through.

    The exit status is the program's; 125 is a failure of koala itself. Ctrl-C cancels the job. A relative path such as
    ./prog is staged in. With --interactive, Ctrl-C is a key for the program, and ^] d leaves the job running.
    """
    with own_failures(), errors_reported():
        attended = _interactive(interactive, terminal, detach)
        shared = {
            "walltime": walltime,
            "memory_per_processor": memory,
            "gpus": gpus,
            "threads_per_process": threads,
            "environment": (_terminal_type() if attended else {}) | _environment(env or ()) or None,
        }
        components = _components(processors, on or (), optional or (), shared)
        job = {
            "name": name,
            "priority": priority,
            "stage_in": stage_in or [],
            "stage_out": stage_out or None,
            "interactive": attended,
        }
        request, leaves_by = _request(program, components, job), escape_of(escape)
        settings = {**options.submission_options(label, notify, notify_on), "key": key}
        with Grid(grid) as koalad, interruptible():
            if detach:
                return _detach(koalad, request, settings, json)
            document = _run(koalad, request, settings, json, prefix, reconnect, leaves_by)
    raise typer.Exit(exit_status_of(document["job"]))


def _interactive(wanted: bool, terminal: bool | None, detach: bool) -> str | None:
    """Return `interactive` of a job file. Raises RequestError for options that do not go together."""
    here = sys.stdin.isatty() and sys.stdout.isatty()
    if not wanted:
        if terminal is not None:
            raise RequestError("bad_option", "--tty and --no-tty need --interactive.", "Add -i.")
        return None
    if terminal and not here and not detach:
        message = "--tty: standard input and output here are no terminal."
        raise RequestError("bad_option", message, "Leave --tty out, or use --detach and `koala attach`.")
    return str(Interactive.TERMINAL if terminal or (terminal is None and (here or detach)) else Interactive.INPUT)


def _terminal_type() -> dict[str, str]:
    """Return the variable that names the escape sequences of the terminal here to a program."""
    return {"TERM": os.environ["TERM"]} if os.environ.get("TERM") else {}


def _warn_of_input() -> None:
    """Warn that standard input is not passed on to the program."""
    with contextlib.suppress(OSError, ValueError):
        kind = os.fstat(sys.stdin.fileno()).st_mode
        if stat.S_ISREG(kind) or stat.S_ISFIFO(kind):
            waiting = array.array("i", [0])
            fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, waiting)
            if waiting[0] > 0:
                print_message(
                    "koala: Standard input is not passed on to the program. Write it to a file, and stage that in."
                )


def _components(
    processors: Sequence[int], clusters: Sequence[str], optional: Sequence[int], shared: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the components as in a job file, without their program. Raises RequestError for unsuitable options."""
    if len(clusters) > len(processors):
        raise RequestError("bad_option", "There are more --on than -n.", "Name a cluster for each component at most.")
    if wrong := [index for index in optional if not 0 <= index < len(processors)]:
        message = f"--optional {wrong[0]} names no component: they are counted from 0 to {len(processors) - 1}."
        raise RequestError("bad_option", message, "Count the -n from 0.")
    given = {key: value for key, value in shared.items() if value is not None}
    components: list[dict[str, Any]] = [{"processors": count, **given} for count in processors]
    for component, cluster in zip(components, clusters, strict=False):
        component["cluster"] = cluster
    for index in optional:
        components[index]["optional"] = True
    return components


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    """Return the variables by name. Raises RequestError for a variable without a value that is not set here."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and name not in os.environ:
            raise RequestError("bad_option", f"--env {name}: the variable {name} is not set here.", "Write NAME=VALUE.")
        found[name] = value if equals else os.environ[name]
    return found


def _request(
    program: Sequence[str], components: Sequence[Mapping[str, Any]], job: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the job of the command line. A program that is named by a relative path is staged in.

    Raises RequestError for a program that is not here.
    """
    executable, staged = options.executable_of(program[0])
    runs = {"executable": executable, "arguments": [*program[1:]]}
    given = {key: value for key, value in job.items() if value is not None}
    return {
        "name": Path(executable).name,
        **given,
        "components": [{**each, **runs} for each in components],
        "stage_in": [*staged, *job["stage_in"]],
    }


def _detach(koalad: Grid, request: Mapping[str, Any], settings: dict[str, Any], json: bool) -> None:
    """Submit the job and print its id. A job that fails at once is a failure of koala itself."""
    with deferred() as let_in:
        accepted = koalad.accept(request, **settings)
        if json:
            print_json(accepted)
        else:
            out.print(f"job {accepted['id']} accepted")
        let_in()
    for job, explained in found_after(koalad, [accepted["id"]])[1]:
        print_end(job, explained)
        raise typer.Exit(FAILED)


def _run(
    koalad: Grid,
    request: Mapping[str, Any],
    settings: dict[str, Any],
    json: bool,
    prefix: bool | None,
    reconnect_s: float,
    escape: bytes,
) -> "JobAnswer":
    """Return the job and its history, once it is final. Raises typer.Exit if a person leaves its terminal."""
    with deferred() as let_in:  # no interrupt between the submission and its id
        job = koalad.submit(request, **settings)
        kind, output = request.get("interactive"), sys.stderr.buffer if json else sys.stdout.buffer
        attached = AttachedTerminal(koalad, job, Screen(output), False, escape, reconnect_s)
        try:
            let_in()
            print_message(f"job {job} accepted")
            if kind:
                follow_attended(attached, kind, True, prefix)
            else:
                _warn_of_input()
                states = StateLines(koalad)
                follow_output(koalad, job, output, sys.stderr.buffer, states.print_changes, prefix, reconnect_s)
            document = koalad.show(job)
            explained = explained_of(koalad, document["job"])
        except Detached as left:
            leave(job, left)
        except KeyboardInterrupt as interrupt:
            if kind == Interactive.TERMINAL and attached.has_begun:  # while koalad or the cluster is out of reach
                leave(job, interrupt)
            _cancel(koalad, job)
            raise
        except NotReachable:
            print_message(f"koala: job {job} goes on; `koala wait {job}` and `koala logs {job}` come back to it.")
            raise
    if json:
        print_json(document)
    if document["job"]["state"] != "done":
        print_end(document["job"], explained, output_shown=True)
    return document


def _cancel(koalad: Grid, job: int) -> None:
    try:
        print_message(f"job {job} is {koalad.cancel(job)['state']}")
    except KoalaError as error:
        print_message(f"koala: job {job} was not cancelled: {error}")
