"""`koala up` and `koala down`: start and stop koalad."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy import __version__
from koalapy.cli import options
from koalapy.cli.login import log_in_where_asked
from koalapy.cli.output import FAILED, errors_reported, out, print_json, print_message
from koalapy.cli.status import print_grid_file
from koalapy.client import Grid

if TYPE_CHECKING:
    from koalapy.answers.clusters import Login

app = typer.Typer()
_FIRST_LOGINS_S = 5.0  # wait of `koala up` for logins that ask questions
_FIRST_CONTACT_S = 10.0  # time that `koala up` gives clusters to connect before it lists those that are not
_POLL_S = 0.2


@app.command()
def up(
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="DURATION", help="Wait so long until all clusters are connected.")
    ] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Start koalad, detached; return when it is ready.

    With --wait the exit status is 1 if a cluster is not connected in time.
    """
    with errors_reported(), Grid(grid) as koalad:
        patience_s = None if wait is None else options.seconds_of(wait)
        started = koalad.up()
        document = koalad.status()
        if not started and document["state"] == "ready":
            koalad.logins(retry=True)
        if json:
            print_json(document)
            waits = patience_s is not None and document["state"] == "ready"
            return _end(patience_s is None or (waits and not _unconnected(koalad, patience_s, to_the_end=True)))
        what = "is up" if started else "was up already"
        if document["state"] == "standing_by":
            what = "stands by for another"
        out.print(f"koalad of grid {document['grid']} {what} (pid {document['pid']})")
        if document["version"] != __version__:
            out.print(_other_release(document["version"]))
        print_grid_file(document)
        if document["state"] == "ready":
            log_in_where_asked(koalad, _FIRST_LOGINS_S)
            some_lack = print_unconnected(koalad, patience_s=patience_s)
            return _end(patience_s is None or not some_lack)
    return _end(patience_s is None)


def _end(well: bool) -> None:
    if not well:
        raise typer.Exit(FAILED)


def print_unconnected(koalad: Grid, clusters: Sequence[str] = (), patience_s: float | None = None) -> bool:
    """Print those of the clusters (default: all) that are not connected after some seconds, and why.

    A login that asks is printed only for named clusters; `koala up` answers the others earlier. `patience_s`: wait so
    long until all are connected. Returns whether one is not.
    """
    waits = patience_s is not None
    found = _unconnected(koalad, _FIRST_CONTACT_S if patience_s is None else patience_s, waits, clusters)
    for each in found:
        if each["state"] != "login_required" or clusters or waits:
            reason = each["reason"]
            why = f": {reason['message']} {reason['advice']}" if reason else ", and still tries."
            out.print(f"{each['cluster']} is not connected{why}".rstrip())
    return bool(found)


def _unconnected(koalad: Grid, patience_s: float, to_the_end: bool, clusters: Sequence[str] = ()) -> list["Login"]:
    """Return the logins that have not connected in time. `to_the_end`: wait for those that are tried again, too."""
    deadline = time.monotonic() + patience_s
    while True:
        logins = [each for each in koalad.logins() if not clusters or each["cluster"] in clusters]
        found = [each for each in logins if each["state"] != "connected"]
        waits = found if to_the_end else [each for each in found if each["state"] == "connecting"]
        if not waits or time.monotonic() >= deadline:
            return found
        time.sleep(_POLL_S)


def _other_release(version: str) -> str:
    """Return advice for a running koalad of another version, which `koala up` does not replace."""
    advice = "`koala down`, then `koala up` replaces it; its jobs run on."
    return f"It is koalapy {version}, and this is koalapy {__version__}. {advice}"


@app.command()
def down(
    cancel: Annotated[bool, typer.Option("--cancel", help="End all jobs first.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Stop koalad. Jobs run on, unless --cancel."""
    with errors_reported(), Grid(grid) as koalad:
        name, recording = koalad.locations.grid, koalad.status()["state"] != "store_failing"
        koalad.down(cancel=cancel)
    if not recording:
        print_message("koala: It could record nothing. Requests that were answered as not recorded yet are dropped:")
        print_message("ask again once its disk has room or its database answers, and koalad is up.")
    if json:
        return print_json({"schema": "koala.down/1", "grid": name, "cancel": cancel})
    out.print(f"koalad of grid {name} is down" + ("" if cancel else "; its jobs run on"))
    return None
