"""Commands about jobs: submit, run, jobs, show, logs, explain, wait, cancel, hold, release."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.follow import follow_output
from koalapy.cli.output import BAD_INPUT, DONE, FAILED, ago, out, print_json, say, table, told
from koalapy.client import Grid

app = typer.Typer()
Document = dict[str, Any]


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A job file.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the job is over.")] = False,
    override: Annotated[list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="Change a key.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Submit a job file."""
    with told(), Grid(grid) as koalad:
        job = koalad.submit(file, overrides=_overrides(override or []))
        document: Document = {"schema": "koala.submit/1", "id": job}
        if not json:
            say(f"job {job} accepted")
        if wait:
            found = koalad.wait([job])[0]
            document["state"] = found["state"]
        if json:
            print_json(document)
        elif wait:
            _tell_end(found)
        _exit_by([document["state"]] if wait else [])


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    program: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARG…", help="The program and its arguments.")],
    processors: Annotated[list[int], typer.Option("-n", metavar="N", help="A component of N processors; repeat it.")],
    on: Annotated[list[str] | None, typer.Option("--on", metavar="CLUSTER", help="Its cluster, in turn.")] = None,
    walltime: Annotated[str | None, typer.Option("--walltime", "-t", help="Like 10m or 2h.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Run a program on components of so many processors, wait, and pass its output through."""
    clusters = list(on or [])
    if len(clusters) > len(processors):
        say("koala: there are more --on than -n. Name a cluster for each component at most.")
        raise typer.Exit(BAD_INPUT)
    shared: Document = {"executable": program[0], "arguments": program[1:]}
    if walltime:
        shared["walltime"] = walltime
    components = [{"processors": count, **shared} for count in processors]
    for component, cluster in zip(components, clusters, strict=False):
        component["cluster"] = cluster
    request: Document = {"name": name or Path(program[0]).name, "components": components}
    if "/" in program[0] and not os.path.isabs(program[0]):
        request["stage_in"] = [program[0]]
    with told(), Grid(grid) as koalad:
        _run(koalad, request, json)


def _run(koalad: Grid, request: Document, json: bool) -> None:
    job = koalad.submit(request)
    say(f"job {job} accepted")
    try:
        follow_output(koalad, job, sys.stderr.buffer if json else sys.stdout.buffer, sys.stderr.buffer)
    except KeyboardInterrupt:
        koalad.cancel(job)
        say(f"job {job} cancelled")
        raise
    document = koalad.show(job)
    if json:
        print_json(document)
    if document["job"]["state"] != "done":
        _tell_end(document["job"])
    _exit_by([document["job"]["state"]])


@app.command()
def jobs(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only jobs in this state; repeat it.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """List jobs, finished ones too."""
    with told(), Grid(grid) as koalad:
        found = koalad.jobs(state or ())
    if json:
        return print_json({"schema": "koala.jobs/1", "jobs": found})
    return table(
        ("ID", "NAME", "STATE", "TYPE", "CLUSTERS", "SUBMITTED", "REASON"),
        [
            (
                job["id"], job["name"], job["state"], job["type"], _clusters(job), ago(job["submitted_at"]),
                job["reason"],
            )
            for job in found
        ],
    )  # fmt: skip


@app.command()
def show(job: options.JobId, grid: options.Grid = None, json: options.Json = False) -> None:
    """All of one job: its components and its story."""
    with told(), Grid(grid) as koalad:
        document = koalad.show(job)
    if json:
        return print_json(document)
    found = document["job"]
    hidden = ("components", "reason_code")
    for name, value in found.items():
        if name not in hidden and value not in (None, ""):
            out.print(f"{name:24}{value}", markup=False)
    out.print()
    table(
        ("COMPONENT", "CLUSTER", "PROCESSORS", "STATE", "ATTEMPT", "BATCH ID", "HOSTS", "EXIT", "REASON"),
        [
            (
                each["index"], each["cluster"], each["processors"], each["state"], each["attempt"], each["batch_id"],
                ",".join(each["hosts"]) or None, each["exit_status"], each["reason"],
            )
            for each in found["components"]
        ],
    )  # fmt: skip
    out.print()
    for event in document["events"]:
        details = " ".join(f"{name}={value}" for name, value in event.items() if name not in ("at", "kind") and value)
        out.print(f"{event['at']}  {event['kind']}  {details}".rstrip(), markup=False)
    return None


@app.command()
def logs(
    job: options.JobId,
    component: Annotated[int | None, typer.Option("--component", "-c", help="Of this component only.")] = None,
    errors: Annotated[bool, typer.Option("--errors", "-e", help="Standard error instead.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    grid: options.Grid = None,
) -> None:
    """The standard output of all processes of the last attempt."""
    with told(), Grid(grid) as koalad:
        stream = "errors" if errors else "output"
        for piece in koalad.output(job, stream=stream, component=component, follow=follow):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


@app.command()
def explain(job: options.JobId, grid: options.Grid = None, json: options.Json = False) -> None:
    """Why a job still waits, or why it failed."""
    with told(), Grid(grid) as koalad:
        document = koalad.explain(job)
    if json:
        return print_json(document)
    out.print(f"Job {job} is {document['state']}. {document['summary']}", markup=False)
    for lack in document["lacks"]:
        out.print(f"  component {lack['component']} on {lack['cluster']}: {lack['message']}", markup=False)
    why = document["reason"]
    if why and why["words"]:
        out.print(f"  {why['command'] or 'The batch system'} said: {why['words']}", markup=False)
    return None


@app.command()
def wait(
    jobs: options.JobIds,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds; then exit status 1.")] = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Wait until jobs are over."""
    with told(), Grid(grid) as koalad:
        try:
            found = koalad.wait(jobs, timeout)
        except TimeoutError as error:
            say(f"koala: after {timeout} s some jobs are {error}. They go on; wait again.")
            raise typer.Exit(FAILED) from None
    if json:
        print_json({"schema": "koala.jobs/1", "jobs": found})
    else:
        for job in found:
            _tell_end(job)
    _exit_by([job["state"] for job in found])


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
        _answer([koalad.cancel(job, force=force) for job in jobs], json)


@app.command()
def hold(jobs: options.JobIds, grid: options.Grid = None, json: options.Json = False) -> None:
    """Keep waiting jobs from being started."""
    with told(), Grid(grid) as koalad:
        _answer([koalad.hold(job) for job in jobs], json)


@app.command()
def release(jobs: options.JobIds, grid: options.Grid = None, json: options.Json = False) -> None:
    """Let held jobs go."""
    with told(), Grid(grid) as koalad:
        _answer([koalad.release(job) for job in jobs], json)


def _answer(found: list[Document], json: bool) -> None:
    if json:
        return print_json({"schema": "koala.jobs/1", "jobs": found})
    for job in found:
        out.print(f"job {job['id']} is {job['state']}", markup=False)
    return None


def _overrides(pairs: list[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        say(f"koala: {wrong[0]!r} is not KEY=VALUE. Write it like -o priority=5.")
        raise typer.Exit(BAD_INPUT)
    return dict(pair.split("=", 1) for pair in pairs)


def _tell_end(job: Document) -> None:
    why = f": {job['reason']}" if job["reason"] else ""
    say(f"job {job['id']} is {job['state']}{why}")


def _exit_by(states: list[str]) -> None:
    raise typer.Exit(DONE if all(state == "done" for state in states) else FAILED)


def _clusters(job: Document) -> str | None:
    return ",".join(dict.fromkeys(each["cluster"] for each in job["components"] if each["cluster"])) or None
