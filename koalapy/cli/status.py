"""`koala status` and `koala grids`: the state of one koalad, and of all of yours on this machine."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.clean import attempt_in_words, print_unknown, show_unknown
from koalapy.cli.output import errors_reported, out, print_json, print_message, table
from koalapy.cli.times import Utc, ago, in_text, shown
from koalapy.client import Grid
from koalapy.client.calls import Calls, NotReachable
from koalapy.common.locations import grids_here
from koalapy.model.counts import counted_as

if TYPE_CHECKING:
    from koalapy.answers.koalad import KoaladFacts, Recovery, RunnersAtWork

app = typer.Typer()
_ANSWER_S = 5.0  # wait for each koalad of `koala grids`
_RECOVERY_LINES = 10  # lines of the recovery that `koala status` shows by default


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
    print_grid_file(document)
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


def print_grid_file(document: "KoaladFacts") -> None:
    """Print a notice if the grid file has changed since koalad read it."""
    if document["grid_file_changed"]:
        out.print(f"{document['grid_file']} has changed since this koalad read it, which still uses the former text.")
        out.print("`koala reload` uses the new one; jobs run on. `koala reload --check` shows the difference.")


def _print_runners(found: "RunnersAtWork") -> None:
    """Print the sweeps in one line, or nothing if there are none."""
    if found["active"] or found["waiting"]:
        waiting = f", {found['waiting']} wait or are held" if found["waiting"] else ""
        nodes = counted_as(found["nodes"], "node")
        out.print(f"  sweeps: {found['active']} active, on {nodes}{waiting}; `koala runners` has more")


def _print_recovery(found: "Recovery", most: int | None) -> None:
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
