"""Commands about jobs: submit, jobs, show, logs, explain, wait, cancel, hold, release."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.live import Live

from koalapy.calls import error_of
from koalapy.cli import options
from koalapy.cli.moving import LOOK_S, TransferLines, moving, told_of, wait_telling
from koalapy.cli.output import (
    BAD_INPUT,
    DONE,
    FAILED,
    ago,
    counted_as,
    exit_status,
    out,
    print_json,
    rich_table,
    say,
    table,
    tell,
    told,
)
from koalapy.cli.runners import hours_of, left_of, nodes_of, rate_of, runner_of
from koalapy.cli.signals import deferred
from koalapy.cli.sweep_progress import counted
from koalapy.client import Grid
from koalapy.model.errors import RequestError
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, parse_duration

app = typer.Typer()
Document = dict[str, Any]
Override = Annotated[
    list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="Change a key; nothing after = unsets it.")
]


@app.command()
def submit(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Job files: all are accepted, or none.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the jobs are over.")] = False,
    override: Override = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Submit job files."""
    with told(), Grid(grid) as koalad, deferred() as let_in:  # no interrupt between a job and its number
        accepted = _submitted(koalad, files, _overrides(override or []))
        ids = accepted.get("ids") or [accepted["id"]]
        say_accepted(ids, json and wait)
        if not json:
            for job, file in zip(ids, files, strict=True):
                out.print(f"job {job} accepted" + (f": {file}" if len(files) > 1 else ""))
        let_in()
        found = wait_telling(koalad, ids) if wait else []
        if json:
            print_json(accepted | _ends(found, several=len(ids) > 1))
        else:
            for each in found:
                tell_end(each, explained_of(koalad, each))
        exit_by(found)


@app.command()
def resubmit(
    job: options.JobId,
    override: Override = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job is over.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Submit a job once more, as it was or with other values."""
    with told(), Grid(grid) as koalad:
        submit_again(koalad, job, wait, json, overrides=_overrides(override or []))


def submit_again(koalad: Grid, job: int, wait: bool, json: bool, **wishes: Any) -> NoReturn:
    """`wishes`: of Grid.accept_again."""
    with deferred() as let_in:
        accepted = koalad.accept_again(job, **wishes)
        again = accepted["id"]
        say_accepted([again], json and wait)
        let_in()
        if not json:
            out.print(f"job {again} accepted, as job {job}")
        found = wait_telling(koalad, [again]) if wait else []
        if json:
            print_json(accepted | _ends(found, several=False))
        else:
            for each in found:
                tell_end(each, explained_of(koalad, each))
        exit_by(found)


def say_accepted(jobs: Sequence[int], wanted: bool) -> None:
    """On standard error, where the document comes only at the end: who is interrupted knows the numbers."""
    for job in jobs if wanted else ():
        say(f"job {job} accepted")


def _submitted(koalad: Grid, files: list[Path], overrides: dict[str, str]) -> Document:
    if len(files) == 1:
        return koalad.accept(files[0], overrides=overrides)
    return {"schema": "koala.submits/1", "ids": koalad.submit_many(files, overrides=overrides)}


def _ends(found: list[Document], several: bool) -> Document:
    """Of jobs that were waited for, lists if there are several."""
    if not found:
        return {}
    if several:
        return {"states": [job["state"] for job in found]}
    return {"state": found[0]["state"]} | ({"sweep": found[0]["sweep"]} if found[0]["sweep"] else {})


@app.command()
def jobs(
    state: Annotated[list[JobState] | None, typer.Option("--state", help="Only jobs in this state; repeat it.")] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=0, metavar="N", help="The newest N; 20 if not said, 0 for all.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Submitted within this time, like 2h or 1d.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="PATTERN", help="Of this name; * and ? match.")] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", help="Only jobs on this cluster.", autocompletion=options.complete_clusters),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show them again and again, until Ctrl-C.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """List jobs, finished ones too, the newest last.

    With --json all of them are listed, unless --last says how many.
    """
    if watch and (json or not out.is_terminal):
        say("koala: --watch needs a terminal, and no --json. Leave it out, and ask again.")
        raise typer.Exit(BAD_INPUT)
    with told(), Grid(grid) as koalad:
        after = datetime.now(UTC) - _time_of(since) if since is not None else None

        def find() -> list[Document]:
            found = koalad.jobs([str(each) for each in state or ()])
            return [job for job in found if _is_wanted(job, after, name, cluster)]

        if watch:
            return _watch(find, _LAST if last is None else last)
        found = find()
        filtered = state or since is not None or name is not None or cluster is not None
        broken = [] if filtered else [each for each in koalad.unreadable()["records"] if each["kind"] == "job"]
    if json:
        return print_json({"schema": "koala.jobs/1", "jobs": _newest(found, last or 0), "unreadable": broken})
    shown = _newest(found, _LAST if last is None else last)
    unreadable = [(each["job"], None, "unreadable", *[None] * 4, each["reason"]) for each in broken]
    table(_JOB_COLUMNS, [*_job_rows(shown), *unreadable])
    if len(shown) < len(found):
        say(f"… {len(found) - len(shown)} older jobs; `koala jobs --last 0` lists all.")
    return None


_LAST = 20
_WATCH_S = 2.0
_LEAST_WHY = 16  # characters
_JOB_COLUMNS = ("ID", "NAME", "STATE", "PROCS", "RUN", "CLUSTERS", "SUBMITTED", "WHY")


def _watch(find: Callable[[], list[Document]], last: int) -> None:
    with Live(console=out, auto_refresh=False) as live:
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


def _job_rows(found: Sequence[Document]) -> list[tuple[object, ...]]:
    """A line each: on a terminal what is said of a job is cut to what the other cells leave."""
    rows = [
        (
            job["id"], job["name"], job["state"], _processors(job), run_time(job, datetime.now(UTC)), _clusters(job),
            ago(job["submitted_at"]), _why(job),
        )
        for job in found
    ]  # fmt: skip
    if not out.is_terminal:
        return [*rows]
    cells = [tuple("-" if cell is None else str(cell) for cell in row[:-1]) for row in rows]
    taken = sum(max(map(len, column)) + 1 for column in zip(_JOB_COLUMNS[:-1], *cells, strict=True))
    most = max(_LEAST_WHY, out.width - taken - 1)
    return [(*row[:-1], why if len(why) <= most else why[: most - 1] + "…") for row in rows for why in [row[-1] or ""]]


def _why(job: Document) -> str:
    """The reason's first sentence; how far a sweep is; what is on its way."""
    told = " ".join((job["reason"] or "").split())
    sentence, dot, _ = told.partition(". ")
    if told:
        return f"{sentence}." if dot else told
    return ", ".join(filter(None, (job["sweep"] and counted(job["sweep"]), moving(job))))


def _processors(job: Document) -> int | None:
    return sum(each["processors"] for each in job["components"]) or None


def run_time(job: Document, now: datetime) -> str | None:
    """How long a job ran, or has run until now, as in 5s, 3m20s or 2h05m."""
    if job["started_at"] is None:
        return None
    end = datetime.fromisoformat(job["finished_at"]) if job["finished_at"] else now
    seconds = max(0, int((end - datetime.fromisoformat(job["started_at"])).total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    return f"{minutes}m{seconds % 60:02}s" if minutes < 60 else f"{hours}h{minutes % 60:02}m"


@app.command()
def show(job: options.JobId, grid: options.Grid = None, json: options.Json = False) -> None:
    """All of one job: its components, and its whole story, every attempt of them."""
    with told(), Grid(grid) as koalad:
        document = koalad.show(job)
        found = document["job"]
        runner = runner_of(koalad, found) if found["sweep"] and not json else {}
    if json:
        return print_json(document)
    hidden = ["components", "reason_code", "transfers", "sweep", *(_OF_JOBS_ONLY if found["sweep"] else ())]
    for name, value in found.items():
        if name not in hidden and value not in (None, ""):
            out.print(f"{name.replace('_', ' '):24}{value}")
    if found["sweep"]:
        _show_runner(found["sweep"], runner)
    else:
        _show_components(found["components"])
    for transfer in found["transfers"]:
        out.print(f"\n{told_of(transfer)}")
    _show_request(document["request"])
    out.print()
    for event in document["events"]:
        out.print(f"{event['at']}  {event['text']}")
    return None


_OF_JOBS_ONLY = ("submission_failures", "completion_failures", "held_processor_seconds")


def _show_runner(sweep: Document, runner: Document) -> None:
    """How far a sweep is, and what it has."""
    told = {
        "parameters": counted(sweep),
        "preempted": sweep["preempted"] or None,
        "running": runner["running"] or None,
        "nodes": nodes_of(runner),
        "suspended nodes": sum(each["suspended"] for each in runner["clusters"]) or None,
        "per minute": rate_of(runner),
        "ends in": left_of(runner, datetime.now(UTC)),
        "processor hours": hours_of(runner),
    }
    for name, value in told.items():
        if value is not None:
            out.print(f"{name:24}{value}")


def _show_request(request: Document) -> None:
    """What it runs, component by component, as its user wrote it; what is as if nothing were said is left out."""
    job = request["job"]
    out.print()
    for index, component in enumerate(job["components"]):
        command = shlex.join([component["executable"], *component.get("arguments", ())])
        out.print(f"component {index} runs          "[:24] + command)
        for name, value in component.items():
            if name not in ("executable", "arguments", "processors", "cluster", "environment"):
                out.print(f"  {name.replace('_', ' '):22}{_words(value)}")
        for name, value in component.get("environment", {}).items():
            out.print(f"  {'environment':22}{name}={shlex.quote(value)}")
    out.print(f"{'directory':24}{request['directory']}")
    for name in ("when_busy", "retry_on", "communication", "stage_in", "stage_out", "order"):
        if name in job:
            out.print(f"{name.replace('_', ' '):24}{_words(job[name])}")
    for each in request["parameters"]:
        values = ":".join(each["loop"] or ()) or each["file"] or ", ".join(each["values"])
        out.print(f"{'parameter ' + ', '.join(each['names']):24}{_shortened(values)}")


def _words(value: Any) -> str:
    """A value of a job file in a line."""
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value['path']} to {value['to']}" if isinstance(value, dict) else str(value)


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]} …"


def _show_components(components: list[Document]) -> None:
    out.print()
    table(
        ("COMPONENT", "CLUSTER", "PROCESSORS", "STATE", "ATTEMPT", "BATCH ID", "HOSTS", "EXIT", "REASON"),
        [
            (
                each["index"], each["cluster"], each["processors"], each["state"].replace("_", " "), each["attempt"],
                each["batch_id"], ",".join(each["hosts"]) or None, each["exit_status"], each["reason"],
            )
            for each in components
        ],
    )  # fmt: skip


@app.command()
def logs(
    job: options.JobId,
    component: Annotated[int | None, typer.Option("--component", "-c", help="Of this component only.")] = None,
    errors: Annotated[bool, typer.Option("--errors", "-e", help="Standard error instead.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    parameter: Annotated[
        int | None, typer.Option("--parameter", "-p", metavar="N", help="Of this parameter of a sweep, from 1.")
    ] = None,
    label: options.Label = None,
    grid: options.Grid = None,
) -> None:
    """The standard output of all processes of the last attempt, or of one parameter of a sweep."""
    if component is not None and parameter is not None:
        say("koala: There are both --component and --parameter. Say --parameter of a sweep, --component of other jobs.")
        raise typer.Exit(BAD_INPUT)
    with told(), Grid(grid) as koalad:
        stream = "errors" if errors else "output"
        pieces = koalad.output(
            job, stream=stream, component=component, follow=follow, parameter=parameter, labels=label
        )
        for piece in pieces:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


@app.command()
def fetch(
    job: options.JobId,
    paths: Annotated[
        list[str] | None,
        typer.Argument(help="Files, directories, patterns, out-{x} of a sweep; what is staged out if none."),
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", help="Into this directory, not the job's.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Bring files that a job left on its clusters, once more or for the first time."""
    with told(), Grid(grid) as koalad, TransferLines() as lines:
        while (found := koalad.fetch(job, paths or (), directory=to, timeout_s=LOOK_S))["state"] == "fetching":
            lines.tell(koalad.jobs(ids=[job])[0])
    if json:
        print_json(found)
    else:
        out.print(f"job {job}: {counted_as(found['files'], 'file')}, {counted_as(found['bytes'], 'byte')}")
        for each in filter(None, (*found["notes"], found["lack"])):
            say(each)
    raise typer.Exit(FAILED if found["lack"] else DONE)


@app.command()
def explain(job: options.JobId, grid: options.Grid = None, json: options.Json = False) -> None:
    """Why a job still waits, or why it failed."""
    with told(), Grid(grid) as koalad:
        document = koalad.explain(job)
    if json:
        return print_json(document)
    out.print(f"Job {job}: {document['summary']}")
    for lack in document["lacks"]:
        out.print(f"  component {lack['component']} on {lack['cluster']}: {lack['message']}")
    for each in document["no_more_nodes"]:
        out.print(f"  no more nodes of {each['cluster']}: {each['why']}.")
    if document["reason"]:
        for line in words_of(document["reason"]):
            out.print(f"  {line}")
    for note in document["notes"]:
        out.print(f"  {note}")
    return None


@app.command()
def wait(
    jobs: options.JobIds,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0, help="Seconds; then exit status 1.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Wait until jobs are over."""
    with told(), Grid(grid) as koalad:
        try:
            found = wait_telling(koalad, jobs, timeout)
        except TimeoutError as error:
            say(f"koala: {error}\nWhat is left goes on; wait again, or longer than {timeout:g} s.")
            raise typer.Exit(FAILED) from None
        explained = {job["id"]: explained_of(koalad, job) for job in found}
    if json:
        print_json({"schema": "koala.jobs/1", "jobs": found})
    else:
        for job in found:
            tell_end(job, explained[job["id"]])
    exit_by(found)


@app.command()
def cancel(
    jobs: options.JobIds,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait for clusters out of reach; what is there becomes a debt.")
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Cancel jobs."""
    with told(), Grid(grid) as koalad:
        _tell_changed(koalad.cancel_many(jobs, force=force), json)


@app.command()
def hold(jobs: options.JobIds, grid: options.Grid = None, json: options.Json = False) -> None:
    """Keep waiting jobs from being started, and sweeps from going on."""
    with told(), Grid(grid) as koalad:
        _tell_changed(koalad.hold_many(jobs), json, stopping=", to be held")


@app.command()
def release(jobs: options.JobIds, grid: options.Grid = None, json: options.Json = False) -> None:
    """Let held jobs go."""
    with told(), Grid(grid) as koalad:
        _tell_changed(koalad.release_many(jobs), json, stopping=", and goes on then")


def _tell_changed(changed: Document, json: bool, stopping: str = "") -> NoReturn:
    """What is wrong with some is told too, and the exit status says so. `stopping`: what becomes of jobs that stop."""
    status = DONE
    for refused in changed["refused"]:
        error = error_of(refused["error"])
        tell(error)
        status = exit_status(error)
    if json:
        print_json({"schema": "koala.jobs/1", "jobs": changed["jobs"]})
    else:
        for job in changed["jobs"]:
            out.print(f"job {job['id']} is {job['state']}{stopping if job['state'] == 'stopping' else ''}")
    raise typer.Exit(status)


def _overrides(pairs: list[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        say(f"koala: {wrong[0]!r} is not KEY=VALUE. Write it like -o priority=5.")
        raise typer.Exit(BAD_INPUT)
    return dict(pair.split("=", 1) for pair in pairs)


def words_of(why: Document) -> list[str]:
    """What the batch system, or a process that failed, said of it: a line for who, and one for each of its lines."""
    if not why["words"]:
        return []
    return [f"{why['command'] or 'The batch system'} said:", *(f"  {line}" for line in why["words"].splitlines())]


def tell_end(job: Document, explained: Document | None = None, *, output_shown: bool = False) -> None:
    """How a job ended, for a person; `explained`: see explained_of.

    `output_shown`: what its processes wrote was shown before; so neither quote it nor say where it is.
    """
    reason, why = job["reason"], explained["reason"] if explained and job["state"] == "failed" else None
    if output_shown and why and why["code"] in ("exit_status", "killed"):
        reason, why = why["message"], None
    ends = {"done": "is done", "failed": f"failed: {reason}", "cancelled": "was cancelled"}
    parameters = f": {counted(job['sweep'])}" if job["sweep"] and job["state"] != "failed" else ""
    say(f"job {job['id']} {ends.get(job['state'], 'is ' + job['state'])}{parameters}")
    for line in [*(words_of(why) if why else ()), *(explained["notes"] if explained else ())]:
        say(f"  {line}")
    if job["sweep"] and job["sweep"]["failed"]:
        say(f"`koala results {job['id']} --failed` lists those that failed.")


def explained_of(koalad: Grid, job: Document) -> Document | None:
    """What `koala explain` has of a job that is over, and that may have more to tell than its state."""
    return koalad.explain(job["id"]) if job["state"] in ("done", "failed") else None


def exit_by(jobs: list[Document]) -> NoReturn:
    """0 if all are done, every parameter of sweeps well."""
    raise typer.Exit(DONE if all(_well(job) for job in jobs) else FAILED)


def _well(job: Document) -> bool:
    return job["state"] == "done" and not (job["sweep"] and job["sweep"]["failed"])


def _clusters(job: Document) -> str | None:
    named = [each["cluster"] for each in job["components"]] if not job["sweep"] else job["sweep"]["clusters"]
    return ",".join(dict.fromkeys(cluster for cluster in named if cluster)) or None
