"""Prints how jobs ended, and derives the exit status from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

from koalapy.cli.explain import explained_of, output_lines
from koalapy.cli.output import DONE, FAILED, print_message
from koalapy.cli.progress import progress_of
from koalapy.cli.sweep_progress import counted
from koalapy.cli.times import in_text
from koalapy.client import Grid
from koalapy.model.errors import KoalaError

if TYPE_CHECKING:
    from koalapy.answers.jobs import ExplainAnswer, Job

OWN_FAILURE = 125  # of a command whose status is the program's: the same as of docker run, timeout and env
INTERRUPTED = 130


def print_end(job: Job, explained: ExplainAnswer | None = None, *, output_shown: bool = False) -> None:
    """Print how a job ended, and why.

    `output_shown`: the output of its processes was shown before, so it is neither quoted nor located.
    """
    reason, why = job["reason"], explained["reason"] if explained and job["state"] == "failed" else None
    if output_shown and why and why["code"] in ("exit_status", "killed"):
        reason, why = why["message"], None
    ends = {"done": "is done", "failed": f"failed: {in_text(reason or '')}", "cancelled": "was cancelled"}
    parameters = f": {counted(job['sweep'])}" if job["sweep"] and job["state"] != "failed" else ""
    if job["flow"]:
        parameters = f": {progress_of(job['flow'])}" if job["state"] != "failed" else ""
    print_message(f"job {job['id']} {ends.get(job['state'], 'is ' + job['state'])}{parameters}")
    for line in [*(output_lines(why) if why else ()), *(explained["notes"] if explained else ())]:
        print_message(f"  {line}")
    if job["sweep"] and job["sweep"]["failed"]:
        print_message(f"`koala results {job['id']} --failed` lists those that failed.")


def found_after(koalad: Grid, accepted: Sequence[int]) -> tuple[list[Job], list[tuple[Job, ExplainAnswer | None]]]:
    """Return the jobs that were accepted, and with its explanation each one that failed at once.

    Without an answer, both are empty and a message is printed. The jobs are recorded: asking again would submit twice.
    """
    try:
        found = koalad.jobs(ids=accepted)
        return found, [(job, explained_of(koalad, job)) for job in found if job["state"] == "failed"]
    except KoalaError as error:
        them = "it is" if len(accepted) == 1 else "all are"
        print_message(f"koala: {in_text(error.reason.message)}")
        print_message(f"What was accepted stays so: {them} recorded. `koala jobs` has the states once koalad answers.")
        return [], []


def exit_by(jobs: Sequence[Job]) -> NoReturn:
    """End the command with status 0 if all jobs are done and no parameter of a sweep failed, else with 1."""
    raise typer.Exit(DONE if all(_well(job) for job in jobs) else FAILED)


def _well(job: Job) -> bool:
    return job["state"] == "done" and not (job["sweep"] and job["sweep"]["failed"])


@contextmanager
def own_failures() -> Iterator[None]:
    """Let a command whose exit status is a program's end with OWN_FAILURE for a failure of its own.

    Raises typer.Exit.
    """
    try:
        yield
    except typer.Exit as ended:
        raise ended if ended.exit_code in (DONE, INTERRUPTED) else typer.Exit(OWN_FAILURE) from None


def exit_status_of(job: Job) -> int:
    """Return the program's exit status if it ended by itself, else that of a failure of koala."""
    if job["state"] == "done":
        return DONE
    statuses = [each["exit_status"] for each in job["components"] if each["exit_status"]]
    return statuses[0] if job["reason_code"] in ("exit_status", "killed") and statuses else OWN_FAILURE
