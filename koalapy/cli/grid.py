"""Commands about koalad and its clusters: up, down, status, clusters, config."""

import json as json_module
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from koalapy import __version__
from koalapy.calls import Calls, NotReachable
from koalapy.cli import options
from koalapy.cli.durations import seconds_of
from koalapy.cli.login import log_in_where_asked
from koalapy.cli.output import FAILED, ago, errors_reported, out, print_json, print_message, table
from koalapy.cli.sizes import in_bytes
from koalapy.cli.times import Utc, in_text, shown
from koalapy.cli.unknown import attempt_in_words, print_unknown, show_unknown
from koalapy.client import Grid
from koalapy.locations import Locations, grids_here
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError

Document = Mapping[str, Any]

_FIRST_LOGINS_S = 5.0  # wait of `koala up` for logins that ask questions
_FIRST_CONTACT_S = 10.0  # time that `koala up` gives clusters to connect before it lists those that are not
_LOOK_S = 0.2
_ANSWER_S = 5.0  # wait for each koalad of `koala grids`
_RECOVERY_LINES = 10  # lines of the recovery that `koala status` shows by default

app = typer.Typer()
config_app = typer.Typer(help="Check the grid file, or show its schema.", no_args_is_help=True)
app.add_typer(config_app, name="config")


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
        patience_s = None if wait is None else seconds_of(wait)
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
        _print_grid_file(document)
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


def _unconnected(koalad: Grid, patience_s: float, to_the_end: bool, clusters: Sequence[str] = ()) -> Sequence[Document]:
    """Return the logins that have not connected in time. `to_the_end`: wait for those that are tried again, too."""
    deadline = time.monotonic() + patience_s
    while True:
        logins = [each for each in koalad.logins() if not clusters or each["cluster"] in clusters]
        found = [each for each in logins if each["state"] != "connected"]
        waits = found if to_the_end else [each for each in found if each["state"] == "connecting"]
        if not waits or time.monotonic() >= deadline:
            return found
        time.sleep(_LOOK_S)


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


@app.command()
def status(
    recovery: Annotated[
        bool, typer.Option("--recovery", help="Show everything that was recovered, not the last lines only.")
    ] = False,
    unknown: Annotated[bool, typer.Option("--unknown", help="Show the tags that the store does not know.")] = False,
    utc: Utc = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show koalad's state, its problems, its pending cancels, and what it recovered.

    With --unknown the clusters are asked for batch jobs and directories of koalapy that this store does not know.
    """
    if unknown:
        return show_unknown(grid, json)
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.status()
    if json:
        return print_json(document)
    out.print(f"koalad {document['version']} of grid {document['grid']}: {document['state']} (pid {document['pid']})")
    for trouble in document["troubles"]:
        out.print(f"  {in_text(trouble)}")
    _print_grid_file(document)
    for each in document["pending_cancels"]:
        why = f": {in_text(each['reason'])}" if each["reason"] else ""
        where = f"batch job {each['batch_id']}" if each["batch_id"] else "its batch job, if there is one,"
        out.print(f"  pending cancel: {where} of {attempt_in_words(each['attempt'])} on {each['cluster']}{why}")
    _print_runners(document["runners"])
    print_unknown(document["unknown_tags"])
    _print_recovery(document["recovery"], None if recovery else _RECOVERY_LINES)
    return None


@app.command()
def grids(json: options.Json = False) -> None:
    """List your grids whose koalad runs on this machine."""
    found = []
    with errors_reported():
        for locations in grids_here():
            calls = Calls(locations, _ANSWER_S)
            with suppress(NotReachable):
                found.append(calls.call("GET", "/v1/status"))
    if json:
        names = ("grid", "grid_file", "state", "pid", "version")
        return print_json(
            {"schema": "koala.grids/1", "grids": [{name: each[name] for name in names} for each in found]}
        )
    if not found:
        return print_message("No koalad of yours runs on this machine. Start one with `koala up`.")
    rows = [(each["grid"], each["state"], each["pid"], each["grid_file"]) for each in found]
    return table(("GRID", "KOALAD", "PID", "GRID FILE"), rows)


def _other_release(version: str) -> str:
    """Return advice for a running koalad of another version, which `koala up` does not replace."""
    advice = "`koala down`, then `koala up` replaces it; its jobs run on."
    return f"It is koalapy {version}, and this is koalapy {__version__}. {advice}"


def _print_grid_file(document: Document) -> None:
    """Print a notice if the grid file has changed since koalad read it."""
    if document["grid_file_changed"]:
        out.print(f"{document['grid_file']} has changed since this koalad read it, which still uses the former text.")
        out.print("`koala reload` uses the new one; jobs run on. `koala reload --check` shows the difference.")


def _print_runners(found: Document) -> None:
    """Print the sweeps in one line, or nothing if there are none."""
    if found["active"] or found["waiting"]:
        waiting = f", {found['waiting']} wait or are held" if found["waiting"] else ""
        nodes = counted_as(found["nodes"], "node")
        out.print(f"  sweeps: {found['active']} active, on {nodes}{waiting}; `koala runners` has more")


def _print_recovery(found: Document, most: int | None) -> None:
    """Print the last `most` lines of the recovery, or all if it is None.

    Nothing is printed if koalad had nothing to recover, unless all lines are requested.
    """
    lines = found["lines"]
    if most is not None and [line["kind"] for line in lines] == ["nothing_recovered"]:
        return
    left_out = found["lines_dropped"] + (max(0, len(lines) - most) if most else 0)
    out.print(f"recovered since its start, {ago(found['at'])}:")
    if left_out:
        out.print(f"  … {left_out} older lines" + ("; `koala status --recovery` has more" if most else ""))
    for line in lines[-most:] if most else lines:
        out.print(f"  {shown(line['at'])}  {in_text(line['text'], at=line['at'])}")
    if found["attempts_unreported"]:
        out.print(f"  without a report since: {found['attempts_unreported']} of {found['attempts']} attempts")


@app.command()
def clusters(
    disk: Annotated[
        bool, typer.Option("--disk", help="Show the disk space that koalapy uses on the clusters and here.")
    ] = False,
    ads: Annotated[
        bool, typer.Option("--ads", help="Show the attributes of each cluster for requirements and ranks.")
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show the processors of each cluster and how old these figures are; or its ad, or koalapy's use of disks."""
    if disk:
        return _print_disk(grid, json)
    if ads:
        return _print_ads(grid, json)
    with errors_reported(), Grid(grid) as koalad:
        found: list[Document] = [*koalad.clusters()]
        about = None if json else koalad.status()
    if json:
        return print_json({"schema": "koala.clusters/1", "clusters": found})
    columns = ("total", "idle", "ours", "scavenged", "others", "waiting_local")
    table(
        ("CLUSTER", "BATCH", "CONNECTION", "TOTAL", "IDLE", "OURS", "SCAVENGED", "OTHERS", "WAITING", "AGE"),
        [
            (each["name"], _batch(each), each["connection"], *(each[name] for name in columns), _age(each))
            for each in found
        ],
    )
    for each in found:
        if each["reason"]:
            out.print(f"{each['name']}: {in_text(each['reason'])}")
        if each["added_by_command"]:
            out.print(f"{each['name']} was added by command, and is not in the grid file.")
    if about is not None:
        _print_grid_file(about)
    return None


@config_app.command("schema")
def schema(
    job: Annotated[bool, typer.Option("--job", help="Show the schema of the job file.")] = False,
    flow: Annotated[bool, typer.Option("--flow", help="Show the schema of a job file with `jobs`.")] = False,
) -> None:
    """Print the JSON Schema of the grid file, of the job file, or of a flow's."""
    if flow:
        from koalapy.languages.flow import json_schema
    elif job:
        from koalapy.languages.native import json_schema
    else:
        from koalapy.config import json_schema
    print_json(json_schema())


@config_app.command("check")
def check(grid: options.Grid = None, json: options.Json = False) -> None:
    """Read the grid file as koalad would, and print its errors."""
    from koalapy.koalad.gridfile import read_grid_file

    with errors_reported():
        locations = Locations.of(grid)
        if locations.grid_file is None:
            message = f"There is no grid file {locations.grid}."
            raise RequestError("no_grid_file", message, "Give the path of one with --grid.")
        found = read_grid_file(locations.grid_file)
    path, clusters = str(locations.grid_file), [*found.clusters]
    if json:
        document = {"schema": "koala.config-check/1", "grid_file": path, "grid": found.grid, "clusters": clusters}
        return print_json(document)
    out.print(f"{path} is fine: grid {found.grid}, {counted_as(len(clusters), 'cluster')}")
    return None


def _print_disk(grid: options.Grid, json: bool) -> None:
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.disk()
    if json:
        return print_json(found)
    table(
        ("PLACE", "BYTES", "DIRECTORIES", "OF THEM"),
        [(each["place"], _bytes(each), each["directories"], _parts(each)) for each in found["places"]],
    )
    for each in found["places"]:
        if each["reason"]:
            out.print(f"{each['place']}: {each['reason']}")
    return None


def _print_ads(grid: options.Grid, json: bool) -> None:
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.ads()
    if json:
        return print_json(found)
    return table(
        ("CLUSTER", "ATTRIBUTE", "VALUE"),
        [
            (each["cluster"] if place == 0 else "", name, json_module.dumps(value, ensure_ascii=False))
            for each in found["ads"]
            for place, (name, value) in enumerate(each["attributes"].items())
        ],
    )


def _bytes(place: Document) -> str | None:
    if place["at"] is None:
        return None
    return in_bytes(place["bytes"]) if place["complete"] else f"over {in_bytes(place['bytes'])}"


def _parts(place: Document) -> str:
    return ", ".join(f"{name} {in_bytes(size)}" for name, size in place["parts"].items() if size)


def _batch(cluster: Document) -> str:
    return f"{cluster['batch']} {cluster['version']}" if cluster["version"] else cluster["batch"]


def _age(cluster: Document) -> str | None:
    return None if cluster["age_s"] is None else f"{cluster['age_s']:.0f}s"
