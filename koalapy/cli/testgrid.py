"""`koala testgrid`: the command line of the test grid, a small multicluster in containers.

Modules that control containers are imported on use: other commands start without them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from koalapy.cli.options import group
from koalapy.cli.output import errors, out, print_json, print_message, table
from koalapy.common.extras import need_extra
from koalapy.model.errors import KoalaError

if TYPE_CHECKING:
    from koalapy.testgrid import Status
    from koalapy.testgrid.lifecycle import Report
    from koalapy.testgrid.sites import Site

app = typer.Typer(
    name="testgrid",
    help="Run a small grid of real clusters, with Slurm and Grid Engine, in containers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Images = Annotated[bool, typer.Option("--images", help="Remove the images as well.")]


@app.command("up", short_help="Start the test grid, and print its grid file.")
def up(as_json: Json = False) -> None:
    """Build and start the test grid, wait until it runs jobs, and print its grid file."""
    testgrid = _testgrid()
    with _reporting() as progress:
        running = testgrid.up(progress)
    if as_json:
        print_json({"schema": "koala.testgrid/1", "grid": str(running.grid_file), "clusters": list(running.clusters)})
    else:
        print_message(f"The grid file is {running.grid_file}:")
        out.print(running.grid_file.read_text().rstrip("\n"))


@app.command("down")
def down(images: Images = False, as_json: Json = False) -> None:
    """Remove its containers, networks and volumes."""
    testgrid = _testgrid()
    with _reporting() as progress:
        progress("Removing the containers…")
        testgrid.sites.down()
        testgrid.down(images)
    if as_json:
        print_json({"schema": "koala.testgrid-down/1", "images_removed": images})
    else:
        print_message("The test grid is down.")


@app.command("status")
def status(as_json: Json = False) -> None:
    """Report which containers run. Exit status 0 if the grid is up, else 1."""
    testgrid = _testgrid()
    with _reporting():
        found = testgrid.status()
    if as_json:
        grid = str(found.grid_file) if found.grid_file else None
        print_json(
            {
                "schema": "koala.testgrid-status/1",
                "up": found.up,
                "grid": grid,
                "addresses": found.addresses,
                "hosts": found.hosts,
            }
        )
    else:
        _print_status(found)
    if not found.up:
        raise typer.Exit(1)


@app.command("reset", short_help="Repair nodes, and remove all jobs and their files.")
def reset(as_json: Json = False) -> None:
    """Repair nodes and daemons, cancel all jobs and remove their files. The containers stay."""
    testgrid = _testgrid()
    with _reporting() as progress:
        progress("Resetting…")
        testgrid.reset()
    if as_json:
        print_json({"schema": "koala.testgrid-reset/1", "idle": True})
    else:
        print_message("All nodes are idle.")


_SITES = "Run four koalads over the test grid that are linked as sites, three of them with a cluster each."
sites = group(app, "sites", _SITES)


@sites.command("up")
def sites_up(as_json: Json = False) -> None:
    """Start the test grid if it is not up, and the koalads of the sites; link them, and print their grids."""
    testgrid = _testgrid()
    with _reporting() as progress:
        need_extra("sites", "A site")
        testgrid.up(progress)
        found = testgrid.sites.up(progress)
    if as_json:
        print_json({"schema": "koala.testgrid-sites/1", "sites": [_site_document(each) for each in found]})
        return
    rows = [(each.name, each.cluster or "-", each.grid) for each in found]
    table(("SITE", "CLUSTER", "GRID"), rows)
    print_message(f"`koala sites --grid {found[0].grid}` shows the neighbours of {found[0].name}.")


@sites.command("down")
def sites_down(as_json: Json = False) -> None:
    """End the koalads of the sites, cancel their jobs, and remove their accounts and files."""
    testgrid = _testgrid()
    with _reporting() as progress:
        progress("Removing the sites…")
        testgrid.sites.down()
    if as_json:
        print_json({"schema": "koala.testgrid-sites/1", "sites": []})
    else:
        print_message("The sites are down.")


def _site_document(site: "Site") -> dict[str, object]:
    return {"name": site.name, "cluster": site.cluster, "grid": site.grid, "grid_file": str(site.grid_file)}


def _testgrid() -> ModuleType:
    """Import the test grid. Without its extra, the command ends with a message and status 1."""
    with _reporting():
        need_extra("testgrid", "The test grid")
    from koalapy import testgrid

    return testgrid


@contextmanager
def _reporting() -> "Iterator[Report]":
    """Yield a function that shows progress on stderr: a spinner on a terminal, else plain lines.

    A KoalaError ends the command with its message and status 1.
    """
    try:
        if errors.is_terminal:
            with errors.status("…") as spinner:
                yield lambda text: spinner.update(Text(text))
        else:
            yield print_message
    except KoalaError as error:
        print_message(str(error.reason))
        raise typer.Exit(1) from error


def _print_status(found: "Status") -> None:
    rows = [(host, container, found.addresses.get(host)) for host, container in found.hosts.items()]
    table(("HOST", "CONTAINER", "ADDRESS"), rows)
    print_message(_summary(found))


def _summary(found: "Status") -> str:
    if found.up:
        return f"The grid file is {found.grid_file}."
    if found.grid_file is None and set(found.hosts.values()) == {"running"}:
        path = _testgrid().state.grid_file()
        return f"Its containers run, but there is no {path}: set the XDG_STATE_HOME with which they were started."
    return "The test grid is not up."


if __name__ == "__main__":
    app()
