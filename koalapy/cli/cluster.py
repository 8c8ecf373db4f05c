"""Commands that change the grid of a running koalad: `koala cluster add`, `remove` and `resume`."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json, print_message
from koalapy.cli.up import print_unconnected
from koalapy.client import Grid
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import shown

if TYPE_CHECKING:
    from koalapy.answers.clusters import ClusterChangeAnswer

_POLL_S = 1.0  # between looks at a cluster that is being drained

app = typer.Typer()
cluster = options.group(app, "cluster", "Add a cluster to the running grid, drain it, or remove it.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A cluster.", autocompletion=options.complete_clusters)]


@cluster.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new cluster.")],
    batch: Annotated[str, typer.Option("--batch", metavar="SYSTEM", help="Its batch system, such as slurm.")],
    connect: Annotated[
        str, typer.Option("--connect", metavar="WAY", help="How its head node is reached, such as ssh://me@fs0.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="KEY=VALUE", help="Another key, as in a grid file (scavenge.hours=...); repeat it."),
    ] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Add a cluster to the running grid. Jobs that wait are placed there at once. It is kept over restarts of koalad.

    The grid file is not changed. A cluster that does not answer is added all the same.
    """
    with errors_reported(), Grid(grid) as koalad:
        values = {"batch": batch, "connect": connect, **_values(settings or [])}
        found = koalad.add_cluster(name, values)
        if json:
            return print_json(found)
        out.print(f"{name} is added; `koala cluster remove {name}` removes it.")
        print_unconnected(koalad, [name])
    return None


@cluster.command("remove")
def remove(
    name: Name,
    drain: Annotated[
        bool, typer.Option("--drain", help="Place nothing there any more, and wait until nothing is left there.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Give up what is there: attempts count as lost, and nobody cancels them.")
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Remove a cluster from the running grid. Refused while koalapy has something there, unless --drain or --force.

    Ctrl-C ends the waiting, but not the draining.
    """
    with errors_reported(), Grid(grid) as koalad:
        if drain and force:
            message = "--drain and --force exclude each other."
            raise RequestError("bad_options", message, "Give one of the two.")
        if drain:
            _drain(koalad, name, json)
        found = koalad.remove_cluster(name, force=force)
    if json:
        return print_json(found)
    _print_removed(found)
    return None


@cluster.command("resume")
def resume(name: Name, grid: options.Grid = None, json: options.Json = False) -> None:
    """End the draining of a cluster: jobs are placed there again."""
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.resume_cluster(name)
    if json:
        return print_json(found)
    out.print(f"{name} is not drained any more: jobs are placed there.")
    return None


def _values(settings: Sequence[str]) -> dict[str, str]:
    """Return the values of `-o KEY=VALUE`. Raises RequestError for one without a value, and for a repeated key."""
    found: dict[str, str] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals:
            raise RequestError("bad_option", f"-o {shown(each)} is not KEY=VALUE.", "Write -o queue=short.")
        if key in (*found, "batch", "connect"):
            raise RequestError("duplicate_name", f"The key {shown(key)} is given twice.", "Give each key once.")
        found[key] = value
    return found


def _drain(koalad: Grid, name: str, quiet: bool) -> None:
    """Drain the cluster, and return when nothing runs there any more. Raises KoalaError."""
    last = None
    try:
        while True:
            left = koalad.drain_cluster(name)["left"]
            if not (left["jobs"] or left["pending_cancels"] or left["collecting"]):
                return
            if left["text"] != last and not quiet:
                last = left["text"]
                out.print(f"{name} is being drained; still left: {last}.")
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        print_message(
            f"{name} is still being drained, and stays in the grid. `koala cluster remove {name} --drain` waits again; "
            f"`koala cluster resume {name}` places jobs there again."
        )
        raise


def _print_removed(found: "ClusterChangeAnswer") -> None:
    name, left = found["cluster"], found["left"]["text"]
    given_up = f", and what was there is given up: {left}" if left else ""
    out.print(f"{name} is removed{given_up}.")
    if not found["added_by_command"]:
        out.print(f"Remove it from the grid file too: else `koala reload` or a restart of koalad adds {name} again.")
