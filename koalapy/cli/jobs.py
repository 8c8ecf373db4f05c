"""Commands that look at jobs and wait for them: jobs, show, explain, wait."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.ends import exit_by, explained_of, output_lines, print_end
from koalapy.cli.flows import progress_of, show_tree
from koalapy.cli.match import print_choices
from koalapy.cli.moving import moving, transfer_line, wait_with_progress
from koalapy.cli.output import (
    BAD_INPUT,
    ago,
    errors_reported,
    out,
    print_json,
    print_message,
    rich_table,
    table,
)
from koalapy.cli.requests import show_request
from koalapy.cli.runners import hours_of, left_of, nodes_of, rate_of, runner_of
from koalapy.cli.sweep_progress import counted
from koalapy.cli.times import Utc, in_text, shown
from koalapy.client import Grid
from koalapy.client.following import RECONNECT_S
from koalapy.model.errors import RequestError, TransientError
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, parse_duration

app = typer.Typer()
Document = Mapping[str, Any]


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

        def find() -> list[Document]:
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


def _watch(find: Callable[[], list[Document]], last: int) -> None:
    from rich.live import Live

    with Live(console=out.console, auto_refresh=False) as live:
        while True:
            rows = [["-" if cell is None else str(cell) for cell in row] for row in _job_rows(_newest(find(), last))]
            live.update(rich_table(_JOB_COLUMNS, rows), refresh=True)
            time.sleep(_WATCH_S)


def _newest(found: list[Document], last: int) -> list[Document]:
    return found[-last:] if last else found


def _is_wanted(job: Document, after: datetime | None, name: str | None, cluster: str | None) -> bool:
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


def _hidden(unreadable: Iterable[Document], found: Collection[int]) -> list[Document]:
    """Return one unreadable record for each job that was not found, of the job or of an attempt."""
    hiding = {each["job"]: each for each in unreadable if each["kind"] in ("job", "attempt")}
    return [each for job, each in hiding.items() if job not in found]


def _job_rows(found: Sequence[Document]) -> list[tuple[object, ...]]:
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


def _why(job: Document) -> str:
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
    return ", ".join(filter(None, (job["sweep"] and counted(job["sweep"]), _awaited(job), paused, moving(job))))


def _state(job: Document) -> str:
    """Return the state of a job; a running one may be suspended for another."""
    return "suspended" if job["suspended_for"] and job["state"] == "running" else str(job["state"])


def _awaited(job: Document) -> str:
    """Return the jobs for which a blocked job waits."""
    if job["state"] != "blocked":
        return ""
    more = len(job["after"]) - _AFTER
    return f"after {', '.join(map(str, job['after'][:_AFTER]))}{f' and {more} others' if more > 0 else ''}"


def _processors(job: Document) -> int | None:
    return sum(each["processors"] for each in job["components"]) or None


def run_time(job: Document, now: datetime) -> str | None:
    """Return the run time of a job until its end or `now`, such as 5s, 3m20s or 2h05m; None before its start.

    The job's end is that of its last component, and not the instant at which koalad has recorded it.
    """
    if job["started_at"] is None:
        return None
    ends = [each["ended_at"] or job["finished_at"] for each in job["components"] if each["started_at"]]
    ended = all(ends) and max(map(datetime.fromisoformat, ends), default=None)
    end = ended or (datetime.fromisoformat(job["finished_at"]) if job["finished_at"] else now)
    seconds = max(0, int((end - datetime.fromisoformat(job["started_at"])).total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    return f"{minutes}m{seconds % 60:02}s" if minutes < 60 else f"{hours}h{minutes % 60:02}m"


@app.command()
def show(
    jobs: options.JobIds,
    skip: Annotated[
        int, typer.Option("--skip", metavar="N", min=0, help="Leave out the first N jobs of a flow's tree.")
    ] = 0,
    utc: Utc = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show one job in full, or several: components, programs, and the history with every attempt.

    Of a flow, 200 jobs are shown in the order of its tree; --skip goes on, and --json has all. With --json, several
    jobs are one document koala.shown/1.
    """
    with errors_reported(), Grid(grid) as koalad:
        ids = options.ids_of(koalad, jobs)
        documents = [koalad.show(job) for job in ids]
        flows = [each["job"]["id"] for each in documents if each["job"]["flow"] or skip]
        inside: dict[int, Any] = {each: koalad.flow(each) if json else koalad.tree(each, skip) for each in flows}
        sweeps = [each["job"] for each in documents if each["job"]["sweep"] and not json]
        runners = {each["id"]: runner_of(koalad, each) for each in sweeps}
    if json:
        documents = [{**each, "jobs": inside[each["job"]["id"]]} if each["job"]["flow"] else each for each in documents]
        several = {"schema": "koala.shown/1", "jobs": documents}
        return print_json(several if len(documents) > 1 else documents[0])
    for place, document in enumerate(documents):
        if place:
            out.print()
        _show(document, runners.get(document["job"]["id"], {}), inside.get(document["job"]["id"], {}), skip)
    return None


def _show(document: Document, runner: Document, tree: Document, skip: int) -> None:
    found = document["job"]
    of_jobs_only = _OF_JOBS_ONLY if found["sweep"] or found["flow"] or found["site"] else ()
    hidden = [*_SHOWN_BELOW, *of_jobs_only]
    for name, value in found.items():
        if name not in hidden and value not in (None, "", []):
            out.print(f"{name.replace('_', ' '):24}{_value(name, value)}")
    for key, value in found["labels"].items():
        out.print(f"{'label':24}{key}={value}")
    if found["sweep"]:
        _show_runner(found["sweep"], runner)
    elif found["sent"]:
        there = found["sent"]
        progress = f", {there['done']}/{there['jobs']} done" if there["jobs"] > 1 else ""
        named = f"job {there['job']}" if there["job"] else "no job yet"
        out.print(f"{'there':24}{named}, {there['state']}{progress}")
    elif found["flow"]:
        out.print(f"{'jobs':24}{progress_of(found['flow'])}")
        out.print(f"{'states':24}{', '.join(f'{count:,} {state}' for state, count in tree['states'].items())}")
        out.print(f"{'levels':24}{tree['levels']:,}\n")
        show_tree(tree, skip)
    else:
        _show_components(found["components"])
    if found["choices"]:
        out.print(f"\nchoices of clusters, of which number {found['choice'] + 1} was tried last")
        print_choices(found["choices"])
    for transfer in found["transfers"]:
        out.print(f"\n{transfer_line(transfer)}")
    show_request(document["request"], found["type"] == "pilot")
    for each in document["notify"]:
        out.print(f"{'notify':24}{each['to']} ({', '.join(each['on'])})")
    out.print()
    for event in document["events"]:
        out.print(f"{shown(event['at'])}  {in_text(event['text'], at=event['at'])}")


def _value(name: str, value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return shown(value) if name.endswith("_at") else in_text(str(value))


_SHOWN_BELOW = ("components", "labels", "reason_code", "transfers", "sweep", "flow", "choices", "choice", "sent")
_OF_JOBS_ONLY = ("submission_failures", "completion_failures", "held_processor_seconds")


def _show_runner(sweep: Document, runner: Document) -> None:
    """Print the progress of a sweep, and its nodes."""
    facts = {
        "parameters": counted(sweep),
        "preempted": sweep["preempted"] or None,
        "running": runner["running"] or None,
        "nodes": nodes_of(runner),
        "suspended nodes": sum(each["suspended"] for each in runner["clusters"]) or None,
        "per minute": rate_of(runner),
        "ends in": left_of(runner, datetime.now(UTC)),
        "processor hours": hours_of(runner),
    }
    for name, value in facts.items():
        if value is not None:
            out.print(f"{name:24}{value}")


def _why_so(component: Document) -> str | None:
    """Return the reason for the state of a component, and the instant of its last sign of life."""
    silent = component["silent_since"] and f"no sign of life since {shown(component['silent_since'])}"
    words = [silent, component["reason"] and in_text(component["reason"])]
    return "; ".join(each for each in words if each) or None


def _show_components(components: list[Document]) -> None:
    out.print()
    table(
        ("COMPONENT", "CLUSTER", "PROCESSORS", "STATE", "ATTEMPT", "BATCH ID", "HOSTS", "EXIT", "REASON"),
        [
            (
                each["index"], each["cluster"], each["processors"], each["state"].replace("_", " "), each["attempt"],
                each["batch_id"], ",".join(each["hosts"]) or None, each["exit_status"],
                _why_so(each),
            )
            for each in components
        ],
    )  # fmt: skip


@app.command()
def explain(job: options.JobId, utc: Utc = False, grid: options.Grid = None, json: options.Json = False) -> None:
    """Explain why a job waits, or why it failed."""
    with errors_reported(), Grid(grid) as koalad:
        document = koalad.explain(job)
    if json:
        return print_json(document)
    out.print(f"Job {job}: {in_text(document['summary'])}")
    for lack in document["lacks"]:
        out.print(f"  component {lack['component']} on {lack['cluster']}: {in_text(lack['message'])}")
    for site in document["not_borrowed"]:
        out.print(f"  from the site {site['site']}: {in_text(site['reason'])}")
    for each in document["no_more_nodes"]:
        out.print(f"  no more nodes of {each['cluster']}: {in_text(each['reason'])}.")
    if document["reason"]:
        for line in output_lines(document["reason"]):
            out.print(f"  {line}")
    for note in document["notes"]:
        out.print(f"  {note}")
    return None


@app.command()
def wait(
    jobs: options.JobIds,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="Seconds to wait; then exit status 1.")
    ] = None,
    reconnect: options.Reconnect = RECONNECT_S,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Wait until jobs are final."""
    with errors_reported(), Grid(grid) as koalad:
        try:
            found = wait_with_progress(koalad, options.ids_of(koalad, jobs), timeout, reconnect)
        except TimeoutError as error:
            advice = f"The jobs go on; wait again, or longer than {timeout:g} s."
            raise TransientError("not_over", str(error), advice) from None
        explained = {job["id"]: explained_of(koalad, job) for job in found}
    if json:
        print_json({"schema": "koala.jobs/1", "jobs": found})
    else:
        for job in found:
            print_end(job, explained[job["id"]])
    exit_by(found)


def _clusters(job: Document) -> str | None:
    if job["site"]:
        return f"site {job['site']}"
    named = [each["cluster"] for each in job["components"]] if not job["sweep"] else job["sweep"]["clusters"]
    return ",".join(dict.fromkeys(cluster for cluster in named if cluster)) or None
