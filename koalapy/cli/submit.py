"""Commands that submit job files: submit, resubmit."""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from koalapy.cli import options
from koalapy.cli.ends import exit_by, found_after, print_end
from koalapy.cli.explain import explained_of
from koalapy.cli.output import (
    DONE,
    FAILED,
    errors_reported,
    out,
    print_error,
    print_json,
    print_message,
    table,
)
from koalapy.cli.show import show_request
from koalapy.cli.signals import deferred
from koalapy.cli.wait import wait_with_progress
from koalapy.client import Grid
from koalapy.client.calls import error_of
from koalapy.client.submission import JobOrFile
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError

if TYPE_CHECKING:
    from koalapy.answers.jobs import CheckAnswer, CheckedJob, Job, SubmitAnswer, SubmitsAnswer

app = typer.Typer()


@app.command()
def submit(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Job files, - for standard input: all are accepted, or none.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the jobs are final: done, failed or cancelled.")
    ] = False,
    check: options.Check = False,
    override: options.Override = None,
    after: Annotated[
        list[int] | None,
        typer.Option(
            "--after",
            metavar="ID",
            help="Begin only once this job, sweep or flow is done; repeat it.",
            autocompletion=options.complete_jobs,
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--begin", metavar="WHEN", help="Place the jobs no sooner: 2030-01-31T20:00, or after 2h."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="WHEN", help="Fail the jobs if they have not started by then, or after 3d."),
    ] = None,
    label: options.Label = None,
    notify: options.Notify = None,
    notify_on: options.NotifyOn = None,
    key: options.Key = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Submit job files. The exit status is 1 if a job fails at once, for example because it can never fit."""
    with errors_reported():
        overrides = options.overrides_of(override or []) | ({"after": str(after)} if after else {})
        overrides |= {name: when for name, when in (("begin", begin), ("expires", expires)) if when}
        settings = {"overrides": overrides, **options.submission_options(label, notify, notify_on)}
    if check:
        with errors_reported(), Grid(grid) as koalad:
            print_checked(koalad.check(*_read(files), **settings), [*map(str, files)], json)
    with errors_reported(), Grid(grid) as koalad, deferred() as let_in:  # no interrupt between submission and id
        accepted, ids = _submitted(koalad, files, settings, key)
        print_accepted(ids, json and wait)
        if not json:
            for job, file in zip(ids, files, strict=True):
                out.print(f"job {job} accepted" + (f": {file}" if len(files) > 1 else ""))
        let_in()
        _finish(koalad, accepted, ids, wait, json)


@app.command()
def resubmit(
    job: options.JobId,
    override: options.Override = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what failed: jobs of a flow, or parameters of a sweep.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job is final: done, failed or cancelled.")
    ] = False,
    key: options.Key = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Submit a job once more, as it was or with other values, or only what failed of a flow or sweep."""
    with errors_reported(), Grid(grid) as koalad:
        submit_again(koalad, job, wait, json, failed=failed, overrides=options.overrides_of(override or []), key=key)


def submit_again(koalad: Grid, job: int, wait: bool, json: bool, **settings: Any) -> NoReturn:
    """Submit the job again, print the result, and end the command. `settings`: see Grid.accept_again."""
    with deferred() as let_in:
        accepted = koalad.accept_again(job, **settings)
        again = accepted["id"]
        print_accepted([again], json and wait)
        let_in()
        if not json:
            out.print(f"job {again} accepted, as job {job}")
        _finish(koalad, accepted, [again], wait, json)


def _finish(
    koalad: Grid, accepted: "SubmitAnswer | SubmitsAnswer", ids: Sequence[int], wait: bool, json: bool
) -> NoReturn:
    """Wait if `wait` is true, print how the jobs ended, and end the command.

    Without `wait`, only the jobs that failed at once are printed.
    """
    if wait:
        found = wait_with_progress(koalad, ids)
        ended = [] if json else [(each, explained_of(koalad, each)) for each in found]
    else:
        found, ended = found_after(koalad, ids)
    if json:
        print_json({**accepted, **(_ends(found, several=len(ids) > 1) if wait or ended else {})})
    else:
        for job, explained in ended:
            print_end(job, explained)
    if wait:
        exit_by(found)
    raise typer.Exit(FAILED if ended else DONE)


def _submitted(
    koalad: Grid, files: list[Path], settings: dict[str, Any], key: str | None
) -> tuple["SubmitAnswer | SubmitsAnswer", list[int]]:
    """Submit the job files. Returns the answer, and the ids of the jobs."""
    jobs = _read(files)
    if len(jobs) == 1:
        accepted = koalad.accept(jobs[0], **settings, key=key)
        return accepted, [accepted["id"]]
    ids = koalad.submit_many(jobs, **settings, keys=None if key is None else _keys_of(key, files))
    return {"schema": "koala.submits/1", "ids": ids}, ids


def _keys_of(key: str, files: Sequence[Path]) -> list[str]:
    """Return a key for each of several files: the given one, and a digest of the file's path and how often it came."""
    paths = [str(file.absolute()) for file in files]
    places = [f"{path}\n{paths[:index].count(path)}" for index, path in enumerate(paths)]
    return [f"{key}/{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}" for place in places]


def _read(files: list[Path]) -> list[JobOrFile]:
    """Return the job files as Grid takes them. Raises RequestError if standard input is named twice."""
    if [str(file) for file in files].count("-") > 1:
        raise RequestError("stdin_twice", "Standard input is named twice.", "Name it once.")
    return [sys.stdin.buffer if str(file) == "-" else file for file in files]


def print_checked(checked: "CheckAnswer", sources: Sequence[str], json: bool) -> NoReturn:
    """Print the result of a check and end the command, with status 1 if a job would fail at once.

    `sources`: the name of each job's file.
    """
    jobs = checked["jobs"]
    if json:
        print_json(checked)
    else:
        for place, (job, source) in enumerate(zip(jobs, sources, strict=True)):
            if place:
                out.print()
            _print_checked_job(job, source)
    raise typer.Exit(FAILED if any(job["fits"] == "never" for job in jobs) else DONE)


def _print_checked_job(job: "CheckedJob", source: str) -> None:
    asked = job["request"]["job"]
    out.print(f"{source}: {asked['name']}, not submitted")
    at_sites = sorted({each["site"] for each in asked.get("jobs", [asked]) if each.get("site")})
    if "jobs" in asked:
        _print_checked_flow(asked["jobs"])
    else:
        components = asked["components"]
        table(
            ("COMPONENT", "CLUSTER", "PROCESSORS"),
            [(index, each.get("cluster", "any"), each["processors"]) for index, each in enumerate(components)],
        )
    show_request(job["request"])
    if job["parameters"] is not None:
        out.print(counted_as(f"{job['parameters']:,}", "parameter"))
    if job["reason"]:
        print_error(error_of(job["reason"]))
    elif job["lacks"]:
        print_message("It would wait: the clusters that meet its requirements now are not enough.")
        for each in job["lacks"]:
            of = f" (component {each['component']})" if len(asked.get("components", ())) > 1 else ""
            out.print(f"{each['cluster']}{of}: {each['message']} {each['advice']}".rstrip())
        if job["unknown_clusters"]:
            print_message(f"Not asked, since they cannot be reached now: {', '.join(job['unknown_clusters'])}.")
    elif job["fits"] == "unknown":
        why = f"{', '.join(job['unknown_clusters'])} cannot be asked now"
        if not job["unknown_clusters"] and at_sites:
            why = f"{'the site' if len(at_sites) == 1 else 'the sites'} {', '.join(at_sites)} will decide"
        elif not job["unknown_clusters"]:
            why = "it is too large for these clusters, and a neighbouring site may lend it processors"
        print_message(f"It is not known whether it can ever fit: {why}.")
    else:
        out.print("It fits on its clusters.")


def _print_checked_flow(jobs: Sequence[Mapping[str, Any]]) -> None:
    rows = [(job["name"], _wanted(job), ", ".join(job.get("after", ())) or None) for job in jobs]
    table(("JOB", "PROCESSORS", "AFTER"), rows)


def _wanted(job: Mapping[str, Any]) -> int | str:
    """Return the processors of a job; of jobs that a site runs as a flow, how many there are."""
    if "jobs" in job:
        return f"{counted_as(len(job['jobs']), 'job')} at {job['site']}"
    return sum(
        amount if isinstance(amount := each["processors"], int) else amount["want"] for each in job["components"]
    )


def _ends(found: Sequence["Job"], several: bool) -> dict[str, Any]:
    """Return the states of the jobs; as lists if there are several jobs."""
    if several:
        return {"states": [job["state"] for job in found]}
    return {"state": found[0]["state"]} | ({"sweep": found[0]["sweep"]} if found[0]["sweep"] else {})


def print_accepted(jobs: Sequence[int], wanted: bool) -> None:
    """Print the ids on standard error if `wanted`: with --json, standard output gets the document only at the end."""
    for job in jobs if wanted else ():
        print_message(f"job {job} accepted")
