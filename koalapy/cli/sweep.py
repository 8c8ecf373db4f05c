"""`koala sweep`: runs a program once for each of many parameters, on idle processors."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.ends import exit_by, print_end
from koalapy.cli.output import BAD_INPUT, errors_reported, out, print_json, print_message
from koalapy.cli.signals import deferred
from koalapy.cli.submit import print_accepted, print_checked, submit_again
from koalapy.cli.wait import wait_with_progress
from koalapy.client import Grid
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError

if TYPE_CHECKING:
    from koalapy.model.request import Request

app = typer.Typer()

_SOURCE = "koala sweep"  # the source that errors name
_SHOWN = 3  # the first commands that a dry run shows; it shows the last one too


@app.command(context_settings={"allow_interspersed_args": False})
def sweep(
    program: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- PROGRAM ARG…", help="The program and its arguments; {x} stands for the value of x."),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME=VALUES", help="1:100, 0:1:0.1, a,b,c or @FILE; repeat it."),
    ] = None,
    csv: Annotated[
        list[str] | None,
        typer.Option("--csv", metavar="FILE", help="CSV file: each column is a parameter, named in its first line."),
    ] = None,
    cross: Annotated[bool, typer.Option("--cross", help="Combine every value with every other one (default).")] = False,
    zipped: Annotated[
        bool, typer.Option("--zip", help="Combine the first values, the second values, and so on.")
    ] = False,
    name: options.Name = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="CLUSTER",
            help="Only on this cluster.",
            autocompletion=options.complete_clusters,
            callback=options.cluster_names,
        ),
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Processors of one process.")] = 1,
    walltime: Annotated[
        str | None, typer.Option("--walltime", "-t", help="Time limit of one parameter, like 10m or 2h.")
    ] = None,
    stage_in: options.StageIn = None,
    stage_out: Annotated[
        list[str] | None,
        typer.Option("--stage-out", metavar="PATH", help="A file to fetch from each parameter: out-{x}; repeat it."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="NAME", help="Order of the parameters. Default: the grid file's."),
    ] = None,
    label: options.Label = None,
    notify: options.Notify = None,
    notify_on: options.NotifyOn = None,
    key: options.Key = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the sweep is final, and show its progress.")] = False,
    rerun_failed: Annotated[
        int | None,
        typer.Option("--rerun-failed", metavar="ID", help="Run the failed parameters of a finished sweep again."),
    ] = None,
    check: options.Check = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and submit nothing.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Run a program once for each of many parameters, on nodes that are idle."""
    if rerun_failed is not None:
        others = (program, parameters, csv, stage_in, stage_out, name, on, walltime, order, label, notify, notify_on)
        _check_alone(*others, check, dry_run, cross, zipped)
        with errors_reported(), Grid(grid) as koalad:
            submit_again(koalad, rerun_failed, wait, json, failed=True, key=key)
    if not program:
        print_message(
            "koala: There is no program. Write it after the options, as in: koala sweep -p x=1:10 -- PROGRAM {x}"
        )
        raise typer.Exit(BAD_INPUT)
    if cross and zipped:
        print_message("koala: --cross and --zip exclude each other. Use one of them.")
        raise typer.Exit(BAD_INPUT)
    from koalapy.languages import sweep_request

    with errors_reported():
        executable, staged = options.executable_of(program[0]) if "{" not in program[0] else (program[0], [])
        request = sweep_request(
            [executable, *program[1:]],
            parameters or (),
            csv=csv or (),
            combine="zip" if zipped else "cross" if cross else None,
            processors=threads,
            component={key: value for key, value in (("cluster", on), ("walltime", walltime)) if value is not None},
            name=name or Path(executable).name or "sweep",
            stage_in=[*staged, *(stage_in or ())] or None,
            stage_out=stage_out or None,
            order=order,
        )
        settings = options.submission_options(label, notify, notify_on)
        if dry_run:
            return _dry_run(request, settings["notify"] or (), json)
        with Grid(grid) as koalad:
            if check:
                print_checked(koalad.check(request, source=_SOURCE, **settings), [_SOURCE], json)
            return _submit(koalad, request, {**settings, "key": key}, wait, json)


def _check_alone(*others: object) -> None:
    if any(others):
        print_message(
            "koala: --rerun-failed takes all else from the sweep that it names. Leave out the program and its options."
        )
        raise typer.Exit(BAD_INPUT)


def _submit(koalad: Grid, request: Mapping[str, Any], settings: dict[str, Any], wait: bool, json: bool) -> None:
    with deferred() as let_in:
        accepted = koalad.accept(request, source=_SOURCE, **settings)
        print_accepted([accepted["id"]], json and wait)
        if not json:
            out.print(f"job {accepted['id']} accepted")
        let_in()
    if not wait:
        return print_json(accepted) if json else None
    (found,) = wait_with_progress(koalad, [accepted["id"]])
    if json:
        print_json(accepted | {"state": found["state"], "sweep": found["sweep"]})
    else:
        print_end(found)
    exit_by([found])


def _dry_run(document: Mapping[str, Any], recipients: Sequence[Mapping[str, Any]], json: bool) -> None:
    """Print the request as koalad would interpret it. Raises RequestError for what it would refuse."""
    from koalapy.languages import from_mapping, read_notify
    from koalapy.runtime.parameters import open_regular

    read_notify(recipients, "--notify")
    here = str(Path.cwd())
    request = from_mapping(document, _SOURCE, here, None, {}, open_regular)
    assert request.parameters is not None
    count, commands = request.parameters.count, _commands(request)
    if json:
        command_documents = [{"parameter": number, "command": command} for number, command in commands]
        return print_json({"schema": "koala.dry-run/1", "parameters": count, "commands": command_documents})
    out.print(counted_as(f"{count:,}", "parameter"))
    for number, command in commands:
        out.print(f"{number:>{len(str(count))}}  {shlex.join(command)}")
    return None


def _commands(request: "Request") -> list[tuple[int, list[str]]]:
    """Return (number, command) of the first parameters and of the last one."""
    from koalapy_adapters.launcher.space import Compiled

    from koalapy.runtime.parameters import line_reader

    program, space = request.components[0], request.parameters
    assert space is not None
    numbers = sorted({*range(1, min(_SHOWN, space.count) + 1), space.count})
    try:
        compiled = Compiled(asdict(space), [program.executable, *program.arguments], line_reader(request))
        return [(number, _texts(compiled.of(number))) for number in numbers]
    except ValueError as error:
        raise RequestError("no_value", f"The values cannot be computed: {error}.", "Look at the file.") from error


def _texts(words: Sequence[bytes]) -> list[str]:
    return [word.decode("utf-8", "replace") for word in words]
