"""`koala pilots`: lists the pilots; `open` holds processors, and `close` gives them back."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import FAILED, errors_reported, out, print_json, print_message, table
from koalapy.cli.times import in_text, shown
from koalapy.client import Grid
from koalapy.model.counts import counted_as
from koalapy.model.intervals import Intervals
from koalapy.model.request import Isolate

if TYPE_CHECKING:
    from koalapy.answers.pilots import Pilot

app = typer.Typer()
pilots = options.group(app, "pilots", "List the pilots, open one, or close it.", alone=True)
_POLL_S = 0.5
_COLUMNS = ("NAME", "STATE", "ON", "PROCESSORS", "SHARED", "ENDS", "JOBS")
_FINAL = ("ended", "failed")


def complete_pilots(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the clusters of pilots that begin with `incomplete`."""
    return [each for each in options.complete_clusters(ctx, incomplete) if "~" in each[0]]


@pilots.callback()
def list_pilots(
    ctx: typer.Context,
    ended: Annotated[bool, typer.Option("--all", help="List ended ones too, until they are pruned.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """List the pilots that are not over. A pilot is a job that holds processors, and is a cluster while it runs."""
    if ctx.invoked_subcommand is not None:
        return None
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.pilots(ended=ended)
    if json:
        return print_json({"schema": "koala.pilots/1", "pilots": found})
    if not found:
        return out.print("There is no pilot. `koala pilots open CLUSTER -n 8` opens one.")
    table(_COLUMNS, [_row(each) for each in found])
    for each in found:
        if each["reason"] is not None:
            out.print(f"{each['name']}: {in_text(each['reason'])}")
    return None


@pilots.command("open")
def open_pilot(
    cluster: Annotated[
        str,
        typer.Argument(metavar="CLUSTER", help="Cluster of the processors.", autocompletion=options.complete_clusters),
    ],
    processors: Annotated[int, typer.Option("-n", "--processors", min=1, help="How many processors.")],
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="How many nodes; by default the batch system decides.")
    ] = None,
    walltime: Annotated[str, typer.Option("--walltime", "-t", help="Its time limit.")] = "4h",
    idle: Annotated[str, typer.Option("--idle", help="Time without a job after which it ends.")] = "10m",
    shared: Annotated[bool, typer.Option("--shared", help="Place jobs there that do not name it, and sweeps.")] = False,
    isolate: Annotated[
        Isolate | None, typer.Option("--isolate", help="Isolate programs there; by default as in the grid file.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Queue or partition.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="Account that pays.")] = None,
    qos: Annotated[str | None, typer.Option("--qos", help="Quality of service.")] = None,
    constraint: Annotated[str | None, typer.Option("--constraint", help="Features that the nodes must have.")] = None,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is a cluster.")] = False,
    key: options.Key = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Hold processors of a cluster by one batch job. While it runs they are a cluster of their own, such as pilot~7.

    Jobs there wait for no batch queue. Ctrl-C ends the waiting, and not the pilot.
    """
    named = {"queue": queue, "account": account, "qos": qos, "constraint": constraint}
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.open_pilot(
            cluster,
            processors,
            nodes=nodes,
            walltime_s=options.seconds_of(walltime),
            idle_s=options.seconds_of(idle),
            shared=shared,
            isolate=None if isolate is None else isolate.value,
            options={name: value for name, value in named.items() if value is not None},
            key=key,
        )["pilot"]
        if not no_wait:
            found = _until(koalad, found, json, lambda each: each["state"] != "binding" and _is_up(koalad, each))
    if json:
        print_json({"schema": "koala.pilot/1", "pilot": found})
    elif found["state"] == "bound":
        held = counted_as(found["processors"], "processor")
        out.print(f"{found['name']} holds {held} of {cluster}; `koala pilots close {found['name']}` ends it.")
    elif found["state"] == "binding":
        out.print(f"{found['name']} is submitted to {cluster}; `koala pilots` shows it.")
    if found["state"] in _FINAL:
        why = found["reason"] or "It has ended."
        print_message(f"koala: {found['name']} is {found['state']}: {why} `koala explain {found['job']}` shows more.")
        raise typer.Exit(FAILED)


@pilots.command("close")
def close_pilot(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A pilot.", autocompletion=complete_pilots)],
    drain: Annotated[
        bool, typer.Option("--drain", help="Place nothing there any more, and wait until nothing is left there.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="End what is there too: each job's retry_on decides whether it runs again.")
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """End a pilot, and return when its processors are free. Refused while jobs are there, unless --drain or --force.

    Ctrl-C ends the waiting, and not the closing; `koala cluster resume NAME` ends the draining.
    """
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.close_pilot(name, drain=drain, force=force)["pilot"]
        found = _until(koalad, found, json, lambda each: each["state"] in _FINAL)
    if json:
        return print_json({"schema": "koala.pilot/1", "pilot": found})
    out.print(f"{name} is {found['state']}.")
    return None


def _until(koalad: Grid, pilot: "Pilot", quiet: bool, is_so: Callable[["Pilot"], bool]) -> "Pilot":
    """Return the pilot once this is so, or it is over. Raises KoalaError."""
    last = ""
    while not is_so(pilot) and pilot["state"] not in _FINAL:
        line = _progress(pilot)
        if line != last and not quiet:
            last = line
            out.print(line)
        time.sleep(_POLL_S)
        found = next((each for each in koalad.pilots() if each["job"] == pilot["job"]), None)
        pilot = _ended(koalad, pilot) if found is None else found
    return pilot


def _progress(pilot: "Pilot") -> str:
    if pilot["state"] == "draining" and pilot["jobs"]:
        return f"{pilot['name']} is being drained; there {_are(pilot['jobs'])}."
    why = f": {pilot['reason']}" if pilot["reason"] is not None else "."
    return f"{pilot['name']} is {pilot['state']}{why}"


def _are(jobs: list[int]) -> str:
    return f"{'is' if len(jobs) == 1 else 'are'} still {counted_as(len(jobs), 'job')}"


def _ended(koalad: Grid, pilot: "Pilot") -> "Pilot":
    """Return a pilot whose job is final."""
    (job,) = koalad.jobs(ids=[pilot["job"]])
    return {**pilot, "state": "failed" if job["state"] == "failed" else "ended", "jobs": [], "reason": job["reason"]}


def _is_up(koalad: Grid, pilot: "Pilot") -> bool:
    """Return whether jobs can be placed on the pilot."""
    found = next((each for each in koalad.clusters() if each["name"] == pilot["name"]), None)
    return found is not None and found["connection"] == "up" and found["idle"] is not None


def _row(each: "Pilot") -> tuple[object, ...]:
    ranges = Intervals.numbers(each["jobs"]).pairs
    jobs = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or None
    at = each["ended_at"] or each["ends_at"]
    ends = None if at is None else shown(at)
    shared = "yes" if each["shared"] else "no"
    return each["name"], each["state"], each["on"], each["processors"], shared, ends, jobs
