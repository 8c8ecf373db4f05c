"""`koala sim imbalance` and `koala sim batches`: what the log of a grid shows (SC'07, figures 2 and 6)."""

from pathlib import Path
from typing import Annotated

import typer

from koalapy.cli import output
from koalapy.cli.options import Json
from koalapy.cli.signals import interruptible
from koalapy.cli.sim_run import Out
from koalapy.common.extras import need_extra
from koalapy.model.errors import RequestError
from koalapy.model.units import Duration, parse_duration

Log = Annotated[Path, typer.Argument(metavar="LOG", help="SWF or GWF, also .gz, .xz, .bz2.")]
Sizes = Annotated[list[str] | None, typer.Option("--size", metavar="SITE=N", help="Processors of a site; repeat it.")]
Within = Annotated[str, typer.Option("--within", metavar="TIME", help="Time after the first job of a batch.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip invalid jobs, and count them.")]
_SHOWN = 20


def imbalance(
    log: Log, size: Sizes = None, lenient: Lenient = False, out: Out = Path("results"), as_json: Json = False
) -> None:
    """Compare the loads of the sites of a grid's log: a table (CSV) and a figure (PNG, SVG)."""
    with output.errors_reported(), interruptible():
        need_extra("experiments", "The comparison")
        from koalapy.experiments.files import check, write
        from koalapy.experiments.replay.rules import processors_of
        from koalapy.experiments.workloads import grids
        from koalapy.experiments.workloads.pictures import draw_imbalance

        check(out)
        read = grids.read_log(log, lenient)
        found = grids.imbalance(read, processors_of(size or []))
        rows: list[dict[str, str | int | float]] = [each._asdict() for each in found.sites]
        picture = draw_imbalance(found, f"{log.name}: load of {len(found.sites)} sites (after SC'07, figure 2)")
        files = write(f"{_stem(log)}-imbalance", rows, picture, out)
    _print_left_out(read.left_out)
    if not size:
        output.print_message(
            "No sizes are known: loads are jobs, not jobs per processor. Give sizes with --size SITE=N."
        )
    elif found.others:
        output.print_message(f"{found.others:,} jobs of sites without --size are left out.")
    if as_json:
        document = {"schema": "koala.imbalance/1", "log": str(log), "overall": found.overall}
        document |= {"temporary": found.temporary, "hour": found.hour, "sites": rows}
        output.print_json(document | {"files": [str(file) for file in files]})
        return
    table = [(each.site, each.jobs, each.processors or None, f"{each.load:.4g}") for each in found.sites]
    output.table(["SITE", "JOBS", "PROCESSORS", "LOAD"], table[:_SHOWN])
    if len(table) > _SHOWN:
        output.print_message(f"{len(table) - _SHOWN} more sites are in the table on disk.")
    print(f"Overall imbalance: {found.overall:,.3g} to 1.")
    print(f"Temporary imbalance: {found.temporary:,.4g} to 1, in hour {found.hour:,} of the log.")
    output.print_message(f"Written: {', '.join(str(file) for file in files)}.")


def batches(
    log: Log, within: Within = "2m", lenient: Lenient = False, out: Out = Path("results"), as_json: Json = False
) -> None:
    """Show how the run times of jobs that a user submitted together differ: a table (CSV) and a figure (PNG, SVG)."""
    with output.errors_reported(), interruptible():
        need_extra("experiments", "The comparison")
        from koalapy.experiments.files import check, write
        from koalapy.experiments.workloads import grids
        from koalapy.experiments.workloads.pictures import draw_batches

        check(out)
        span = _duration_of(within)
        read = grids.read_log(log, lenient)
        found = grids.batches(read, span)
        rows: list[dict[str, str | int | float]] = [each._asdict() for each in found]
        picture = draw_batches(found, f"{log.name}: run times within batches (after SC'07, figure 6)")
        files = write(f"{_stem(log)}-batches", rows, picture, out)
    _print_left_out(read.left_out)
    if as_json:
        document = {"schema": "koala.batches/1", "log": str(log), "within_s": span / 1e6, "classes": rows}
        output.print_json(document | {"files": [str(file) for file in files]})
        return
    output.table(
        ["JOBS OF A BATCH", "BATCHES", "JOBS", "% OF JOBS", "% OF WORK", "LONGEST BY SHORTEST", "MEDIAN"],
        [
            (
                f"{each.least} or more", each.batches, each.jobs, f"{100 * each.share_of_jobs:.1f}",
                f"{100 * each.share_of_work:.1f}", f"{each.spread_mean:,.4g}", f"{each.spread_median:,.4g}",
            )
            for each in found
        ],
    )  # fmt: skip
    output.print_message(f"Written: {', '.join(str(file) for file in files)}.")


def _print_left_out(left_out: str) -> None:
    if left_out:
        output.print_message(f"left out: {left_out}")


def _stem(log: Path) -> str:
    return log.name.partition(".swf")[0].partition(".gwf")[0] or log.name


def _duration_of(within: str) -> Duration:
    try:
        return parse_duration(within)
    except ValueError as error:
        raise RequestError("bad_option", f"--within: {error}.", "Write --within 2m.") from None
