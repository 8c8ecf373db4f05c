"""`koala jobs`: the list of jobs."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import (
    BAD_INPUT,
    errors_reported,
    out,
    print_json,
    print_message,
    rich_table,
    table,
)
from koalapy.cli.progress import progress_of, transfers_in_words
from koalapy.cli.sweep_progress import counted
from koalapy.cli.times import ago, in_text
from koalapy.client import Grid
from koalapy.model.errors import RequestError
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, parse_duration

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job
    from koalapy.answers.koalad import UnreadableRecord

app = typer.Typer()


@app.command()
def jobs(
    state: Annotated[list[JobState] | None, typer.Option("--state", help="Only jobs in this state; repeat it.")] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=0, metavar="N", help="Show the newest N jobs; 0: all. Default: 20.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Submitted within this time, like 2h or 1d.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="PATTERN", help="Only jobs with this name; * and ? match.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", help="Only jobs on this cluster.", autocompletion=options.complete_clusters),
    ] = None,
    label: options.WithLabel = None,
    flow: Annotated[int | None, typer.Option("--flow", metavar="ID", help="List the jobs of this flow.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh the list until Ctrl-C.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """List jobs, finished ones too, the newest last. A flow is one line; --flow lists its jobs.

    With --json all of them are listed, unless --last limits their number.
    """
    if watch and (json or not out.is_terminal):
        print_message("koala: --watch needs a terminal, and no --json. Leave it out, and ask again.")
        raise typer.Exit(BAD_INPUT)
    with errors_reported(), Grid(grid) as koalad:
        after = datetime.now(UTC) - _time_of(since) if since is not None else None

        def find() -> list["Job"]:
            states = [str(each) for each in state or ()]
            if flow is not None:
                found = koalad.flow(flow, states)
            else:
                parts = bool(json or state or label or name is not None or cluster is not None)
                found = koalad.jobs(states, labels=label or (), parts=parts)
            return [job for job in found if _is_wanted(job, after, name, cluster)]

        if watch:
            return _watch(find, _LAST if last is None else last)
        found = find()
        filtered = flow is not None or state or since is not None or name is not None or cluster is not None or label
        broken = [] if filtered else _hidden(koalad.unreadable()["records"], {job["id"] for job in found})
    if json:
        return print_json({"schema": "koala.jobs/1", "jobs": _newest(found, last or 0), "unreadable": broken})
    shown = _newest(found, _LAST if last is None else last)
    unreadable = [(each["job"], None, "unreadable", *[None] * 4, each["reason"]) for each in broken]
    table(_JOB_COLUMNS, [*_job_rows(shown), *unreadable])
    if len(shown) < len(found):
        print_message(f"… {len(found) - len(shown)} older jobs; `koala jobs --last 0` lists all.")
    return None


_LAST = 20
_WATCH_S = 2.0
_LEAST_WHY = 16  # characters
_LONGEST_NAME = 30  # characters
_AFTER = 3  # ids that a line names
_JOB_COLUMNS = ("ID", "NAME", "STATE", "PROCS", "RUN", "CLUSTERS", "SUBMITTED", "WHY")


def _watch(find: Callable[[], list["Job"]], last: int) -> None:
    from rich.live import Live

    with Live(console=out.console, auto_refresh=False) as live:
        while True:
            rows = [["-" if cell is None else str(cell) for cell in row] for row in _job_rows(_newest(find(), last))]
            live.update(rich_table(_JOB_COLUMNS, rows), refresh=True)
            time.sleep(_WATCH_S)


def _newest(found: list["Job"], last: int) -> list["Job"]:
    return found[-last:] if last else found


def _is_wanted(job: "Job", after: datetime | None, name: str | None, cluster: str | None) -> bool:
    if after is not None and datetime.fromisoformat(job["submitted_at"]) < after:
        return False
    if name is not None and not fnmatchcase(job["name"], name):
        return False
    return cluster is None or cluster in (_clusters(job) or "").split(",")


def _time_of(text: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text) / SECOND)
    except ValueError as error:
        raise RequestError("bad_time", f"{error}.", "Give --since such as 2h or 1d.") from error


def _hidden(unreadable: Iterable["UnreadableRecord"], found: Collection[int]) -> list["UnreadableRecord"]:
    """Return one unreadable record for each job that was not found, of the job or of an attempt."""
    hiding = {each["job"]: each for each in unreadable if each["kind"] in ("job", "attempt")}
    return [each for job, each in hiding.items() if job not in found]


def _job_rows(found: Sequence["Job"]) -> list[tuple[object, ...]]:
    """Return a row for each job. On a terminal the reason is cut to the width that the other cells leave."""
    rows = [
        (
            job["id"], _cut(job["name"], _LONGEST_NAME), _state(job), _processors(job),
            run_time(job, datetime.now(UTC)), _clusters(job), ago(job["submitted_at"]), _why(job),
        )
        for job in found
    ]  # fmt: skip
    if not out.is_terminal:
        return [*rows]
    cells = [tuple("-" if cell is None else str(cell) for cell in row[:-1]) for row in rows]
    taken = sum(max(map(len, column)) + 1 for column in zip(_JOB_COLUMNS[:-1], *cells, strict=True))
    most = max(_LEAST_WHY, out.width - taken - 1)
    return [(*row[:-1], _cut(row[-1] or "", most)) for row in rows]


def _cut(text: str, most: int) -> str:
    """Return the text with at most this many characters; what is cut off is an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _why(job: "Job") -> str:
    """Return the first sentence of the reason; without a reason, the progress of a sweep or flow, and the transfers."""
    if job["flow"] and job["state"] not in ("failed", "cancelled"):
        return progress_of(job["flow"])
    if job["sent"] and job["sent"]["jobs"] > 1 and job["state"] not in ("failed", "cancelled"):
        return f"{job['sent']['done']}/{job['sent']['jobs']} done there"
    text = " ".join(in_text(job["reason"] or "").split())
    sentence, dot, _ = text.partition(". ")
    if text:
        return f"{sentence}." if dot else text
    paused = f"for job {job['suspended_for']}" if job["suspended_for"] else ""
    return ", ".join(
        filter(None, (job["sweep"] and counted(job["sweep"]), _awaited(job), paused, transfers_in_words(job)))
    )


def _state(job: "Job") -> str:
    """Return the state of a job; a running one may be suspended for another."""
    return "suspended" if job["suspended_for"] and job["state"] == "running" else str(job["state"])


def _awaited(job: "Job") -> str:
    """Return the jobs for which a blocked job waits."""
    if job["state"] != "blocked":
        return ""
    more = len(job["after"]) - _AFTER
    return f"after {', '.join(map(str, job['after'][:_AFTER]))}{f' and {more} others' if more > 0 else ''}"


def _processors(job: "Job") -> int | None:
    return sum(each["processors"] for each in job["components"]) or None


def run_time(job: "Job", now: datetime) -> str | None:
    """Return the run time of a job until its end or `now`, such as 5s, 3m20s or 2h05m; None before its start.

    The job's end is that of its last component, and not the instant at which koalad has recorded it.
    """
    if job["started_at"] is None:
        return None
    ends = [each["ended_at"] or job["finished_at"] or "" for each in job["components"] if each["started_at"]]
    end = max(ends) if ends and all(ends) else job["finished_at"]
    until = datetime.fromisoformat(end) if end else now
    seconds = max(0, int((until - datetime.fromisoformat(job["started_at"])).total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    return f"{minutes}m{seconds % 60:02}s" if minutes < 60 else f"{hours}h{minutes % 60:02}m"


def _clusters(job: "Job") -> str | None:
    if job["site"]:
        return f"site {job['site']}"
    named = [each["cluster"] for each in job["components"]] if not job["sweep"] else job["sweep"]["clusters"]
    return ",".join(dict.fromkeys(cluster for cluster in named if cluster)) or None
