"""`koala usage`: sums of processor time."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json, table
from koalapy.client import Grid
from koalapy.model.units import SECOND, Instant
from koalapy.model.usage import By
from koalapy.views.usage import KEYS, LEASED, PARTS, as_csv

if TYPE_CHECKING:
    from koalapy.answers.koalad import Leased, UsageAnswer, Used

app = typer.Typer()
_OF_PILOTS = ("on_pilots", "used")  # the last of PARTS: no columns where no job ran on a pilot
_SINCE = "A date (in UTC), an RFC 3339 instant, or how long ago: 2030-01-31, 7d."


@app.command()
def usage(
    by: Annotated[By, typer.Option("--by", help="Sum by user, cluster, job, day or neighbouring site.")] = By.USER,
    since: Annotated[str | None, typer.Option("--since", metavar="WHEN", help=_SINCE)] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="End of the period; default: now.")
    ] = None,
    lines: Annotated[bool, typer.Option("--csv", help="Print comma-separated values, with a header.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Sum up processor time by user, cluster, job, day or site: run, held at barriers, lost to retries, scavenged.

    The processor time of a batch job is the time from its start to its end, in seconds, times its processors.
    """
    with errors_reported(), Grid(grid) as koalad:
        now = Instant(round(datetime.now(UTC).timestamp() * SECOND))
        document = koalad.usage(str(by), options.instant_or_ago(since, now), options.instant_or_ago(until, now))
    if json:
        return print_json(document)
    if lines:
        sys.stdout.write(as_csv(document["rows"], by))
        return None
    if by is By.SITE:
        return _print_sites(document)
    keys = KEYS[by]
    parts = PARTS if document["total"]["on_pilots"] else PARTS[: -len(_OF_PILOTS)]
    found = [_cells(row, (*keys, *parts)) for row in document["rows"]]
    total = [["total", *[""] * (len(keys) - 1), *_cells(document["total"], parts)]] if len(found) > 1 else []
    table([name.replace("_", " ").upper() for name in (*keys, *parts)], found + total)
    out.print("All but ATTEMPTS are processor seconds.")
    if document["total"]["on_pilots"]:
        out.print("ON PILOTS: by jobs on pilots; it is the part USED of the pilots' time, and adds nothing to TOTAL.")
    if document["total"]["estimated"]:
        out.print("ESTIMATED: by the times of koalapy's own processes, without a batch system's accounting.")
    return None


def _print_sites(document: "UsageAnswer") -> None:
    """Print what batch jobs used by neighbour, and the charges of leases."""
    rows = [[row["site"] or "-", *_of_site(row, row["leased"])] for row in document["rows"]]
    total = [["total", *_of_site(document["total"], document["leased"])]] if len(rows) > 1 else []
    table(["SITE", "TOTAL", "OPEN", *(name.replace("_", " ").upper() for name in LEASED)], rows + total)
    out.print("All but LEASES are processor seconds.")
    out.print("-: this site's own jobs on its own clusters. LENT, BORROWED: as the lender charges its leases.")


def _of_site(used: "Used", leased: "Leased | None") -> list[object]:
    return [*_cells(used, ("total", "open")), *([""] * len(LEASED) if leased is None else _cells(leased, LEASED))]


def _cells(row: Mapping[str, object], names: Sequence[str]) -> list[object]:
    """Return the values of these names; seconds are rounded."""
    return [f"{round(value)}" if isinstance(value, float) else value for value in (row[name] for name in names)]
