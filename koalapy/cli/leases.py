"""`koala leases`: lists what is lent to neighbouring sites and borrowed of them; `end` ends one."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json, table
from koalapy.cli.times import shown
from koalapy.client import Grid
from koalapy.model.units import SECOND, Instant

if TYPE_CHECKING:
    from koalapy.answers.leases import EndedLease, Lease, LeasesAnswer

app = typer.Typer()
leases = options.group(
    app, "leases", "List what is lent to neighbouring sites and borrowed of them, or end a lease.", alone=True
)
_POLL_S = 0.5
_ENDED = ("NAME", "DIRECTION", "NEIGHBOUR", "USER", "JOB", "PROCESSORS", "ON", "BEGAN", "ENDED", "CHARGED")
_COLUMNS = ("NAME", "DIRECTION", "NEIGHBOUR", "STATE", "PROCESSORS", "ON", "ENDS", "JOBS")


@leases.callback()
def list_leases(
    ctx: typer.Context,
    everything: Annotated[
        bool, typer.Option("--all", help="List those that have ended too, with their charges.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only those that ended after it: 2030-01-31, 7d. Implies --all."),
    ] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """List the leases that are not over, then the processor time of those that are, by neighbour."""
    if ctx.invoked_subcommand is not None:
        return
    with errors_reported(), Grid(grid) as koalad:
        now = Instant(round(time.time() * SECOND))
        found = koalad.leases(ended=everything or since is not None, since=options.instant_or_ago(since, now))
    if json:
        print_json(found)
    else:
        _print(found)


@leases.command("end", short_help="Take back a lease that is lent, or return a borrowed one.")
def end_lease(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A lease, as `koala leases` names it.")],
    force: Annotated[
        bool, typer.Option("--force", help="End a lent one at once; return one even if jobs are on it.")
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Take back a lease that this site lends, or return one that it has borrowed; return when it is over.

    The borrower of a lent one is given the notice of lend.grace. Ctrl-C ends the waiting, and not the ending.
    """
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.end_lease(name, force=force)["lease"]
        while any(_is_same(each, found) for each in koalad.leases()["leases"]):
            time.sleep(_POLL_S)
    if json:
        print_json({"schema": "koala.lease/1", "lease": {**found, "state": "ended"}})
    else:
        out.print(f"{name} has ended.")


def _is_same(one: "Lease", other: "Lease") -> bool:
    return (one["name"], one["direction"]) == (other["name"], other["direction"])


def _print(found: "LeasesAnswer") -> None:
    if found["leases"]:
        table(_COLUMNS, [_row(each) for each in found["leases"]])
    else:
        out.print("Nothing is lent or borrowed now.")
    if found["ended"]:
        table(_ENDED, [_ended_row(each) for each in found["ended"]])
    for each in found["usage"]:
        lent, borrowed = round(each["lent_s"]), round(each["borrowed_s"])
        out.print(f"{each['neighbour']}: lent {lent:,}, borrowed {borrowed:,} processor seconds so far")


def _ended_row(each: "EndedLease") -> tuple[object, ...]:
    user = each["user"] if each["site"] is None else f"{each['user']} at {each['site']}"
    place = each["on"] if each["beyond"] is None else f"site {each['beyond']}"
    charged = f"{round(each['charged_s'])}" if each["reported"] else "not reported"
    times = shown(each["began_at"]), shown(each["ended_at"])
    job = f"{each['request']} {each['job_name']}".strip()
    return each["name"], each["direction"], each["neighbour"], user, job, each["processors"], place, *times, charged


def _row(each: "Lease") -> tuple[object, ...]:
    jobs = None if each["job"] is None else ", ".join(map(str, each["jobs"] or [each["job"]]))
    place = each["on"] if each["beyond"] is None else f"site {each['beyond']}"
    ends = None if each["ends_at"] is None else shown(each["ends_at"])
    state = each["state"] if each["reachable"] else f"{each['state']}, out of reach"
    return each["name"], each["direction"], each["neighbour"], state, each["processors"], place, ends, jobs
