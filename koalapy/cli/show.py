"""`koala show`: jobs in full, with program, components and history, and flows as trees."""

import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from koalapy.cli import options
from koalapy.cli.match import print_choices
from koalapy.cli.output import (
    errors_reported,
    out,
    print_json,
    table,
)
from koalapy.cli.progress import progress_of, transfer_line
from koalapy.cli.runners import hours_of, left_of, nodes_of, rate_of, runner_of
from koalapy.cli.sweep_progress import counted
from koalapy.cli.times import Utc, in_text, shown
from koalapy.client import Grid

if TYPE_CHECKING:
    from koalapy.answers.jobs import Candidate, Component, Job, JobAnswer, JobRequest, TreeAnswer, TreeJob
    from koalapy.answers.sweeps import Runner, SweepProgress

app = typer.Typer()
_SHOWN_BELOW = ("components", "labels", "reason_code", "transfers", "sweep", "flow", "choices", "choice", "sent")
_OF_JOBS_ONLY = ("submission_failures", "completion_failures", "held_processor_seconds")
_DEEPEST = 20  # levels that are indented; behind these the number of a level is written
_FAILED = frozenset({"failed", "cancelled"})


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
        flows = [each for each in documents if each["job"]["flow"] or skip]
        if json:
            for each in flows:
                each["jobs"] = koalad.flow(each["job"]["id"])
        trees = {} if json else {each["job"]["id"]: koalad.tree(each["job"]["id"], skip) for each in flows}
        sweeps = [each["job"] for each in documents if each["job"]["sweep"] and not json]
        runners = {each["id"]: runner_of(koalad, each) for each in sweeps}
    if json:
        several = {"schema": "koala.shown/1", "jobs": documents}
        return print_json(several if len(documents) > 1 else documents[0])
    for place, document in enumerate(documents):
        if place:
            out.print()
        _show(document, runners.get(document["job"]["id"]), trees.get(document["job"]["id"]), skip)
    return None


def _show(document: "JobAnswer", runner: "Runner | None", tree: "TreeAnswer | None", skip: int) -> None:
    found = document["job"]
    of_jobs_only = _OF_JOBS_ONLY if found["sweep"] or found["flow"] or found["site"] else ()
    hidden = [*_SHOWN_BELOW, *of_jobs_only]
    for name, value in found.items():
        if name not in hidden and value not in (None, "", []):
            out.print(f"{name.replace('_', ' '):24}{_value(name, value)}")
    for key, value in found["labels"].items():
        out.print(f"{'label':24}{key}={value}")
    if found["sweep"] and runner:
        _show_runner(found["sweep"], runner)
    elif found["sent"]:
        there = found["sent"]
        progress = f", {there['done']}/{there['jobs']} done" if there["jobs"] > 1 else ""
        named = f"job {there['job']}" if there["job"] else "no job yet"
        out.print(f"{'there':24}{named}, {there['state']}{progress}")
    elif found["flow"] and tree:
        out.print(f"{'jobs':24}{progress_of(found['flow'])}")
        out.print(f"{'states':24}{', '.join(f'{count:,} {state}' for state, count in tree['states'].items())}")
        out.print(f"{'levels':24}{tree['levels']:,}\n")
        show_tree(tree, skip)
    else:
        _show_components(found["components"])
    if document["candidates"]:
        _show_candidates(document["candidates"])
    if found["choice"] is not None:
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


def _show_runner(sweep: "SweepProgress", runner: "Runner") -> None:
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


def _why_so(component: "Component") -> str | None:
    """Return the reason for the state of a component, and the instant of its last sign of life."""
    silent = component["silent_since"] and f"no sign of life since {shown(component['silent_since'])}"
    words = [silent, component["reason"] and in_text(component["reason"])]
    return "; ".join(each for each in words if each) or None


def _show_components(components: list["Component"]) -> None:
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


def _show_candidates(candidates: list["Candidate"]) -> None:
    """Print the attempts of components that waited in several queues, and how each ended."""
    out.print("\nqueues of its components")
    table(
        ("COMPONENT", "ATTEMPT", "CLUSTER", "BATCH ID", "SINCE", "ENDED"),
        [
            (
                each["component"], each["attempt"], each["cluster"], each["batch_id"], shown(each["queued_at"]),
                each["ended"] or "waits",
            )
            for each in candidates
        ],
    )  # fmt: skip


def show_request(request: "JobRequest", pilot: bool = False) -> None:
    """Print the program, component by component, as its user wrote it, without values that are defaults.

    `pilot`: whether the job is one, which has no program of its user's.
    """
    job = request["job"]
    out.print()
    for index, component in enumerate(job.get("components", ())):
        command = shlex.join([component["executable"], *component.get("arguments", ())])
        command = "other jobs: it holds processors for them" if pilot else command
        out.print(f"component {index} runs          "[:24] + command)
        for name, value in component.items():
            if name not in ("executable", "arguments", "processors", "cluster", "environment"):
                out.print(f"  {name.replace('_', ' '):22}{_words(value)}")
        for name, value in component.get("environment", {}).items():
            out.print(f"  {'environment':22}{name}={shlex.quote(value)}")
    out.print(f"{'directory':24}{request['directory']}")
    for name in (
        "when_busy",
        "retry_on",
        "communication",
        "on_error",
        "begin",
        "claim_before",
        "expires",
        "stage_in",
        "stage_out",
        "order",
        "on_failure",
        "interactive",
    ):
        if name in job:
            out.print(f"{name.replace('_', ' '):24}{_words(job[name])}")
    for name, value in job.get("barrier", {}).items():
        out.print(f"{'barrier ' + name.replace('_', ' '):24}{_words(value)}")
    for each in request["parameters"]:
        values = ":".join(each["loop"] or ()) or each["file"] or ", ".join(each["values"])
        out.print(f"{'parameter ' + ', '.join(each['names']):24}{_shortened(values)}")


def _words(value: Any) -> str:
    """Format a value of a job file in a line."""
    if isinstance(value, list):
        return ", ".join(map(_words, value))
    return f"{value['path']} to {value['to']}" if isinstance(value, dict) else str(value)


def _shortened(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]} …"


def at_site(job: "Job | TreeJob") -> str:
    """Return where a job runs that another site runs, such as ` at lyon (job 12 there, 2/5 done)`; '' for any other."""
    if not job["site"]:
        return ""
    sent = job["sent"]
    if not sent or not sent["job"]:
        return f" at {job['site']}"
    progress = f", {sent['done']}/{sent['jobs']} done" if sent["jobs"] > 1 else ""
    return f" at {job['site']} (job {sent['job']} there{progress})"


def show_tree(tree: "TreeAnswer", skip: int) -> None:
    """Print a part of the tree of a flow, each job below the last of those that it waits for, with its state.

    The others that it waits for are named beside it. `skip`: how many jobs precede the part.
    """
    for job in tree["jobs"]:
        deeper = f"[{job['level']}] " if job["level"] > _DEEPEST else ""
        line = f"{'  ' * min(job['level'], _DEEPEST)}{deeper}{job['id']} {job['name']}: {job['state']}{at_site(job)}"
        if job["others"]:
            all_named = job["others"] == len(job["other_names"])
            others = ", ".join(job["other_names"]) if all_named else f"{job['others']:,} others"
            line += f", after {others} too"
        if job["state"] in _FAILED and job["reason"]:
            line += f": {in_text(job['reason']).split('. ')[0].rstrip('.')}."
        out.print(line)
    if tree["more"]:
        id, place = tree["id"], skip + len(tree["jobs"])
        out.print(f"and {tree['more']:,} more; `koala show {id} --skip {place}` goes on, and --json has all.")
