"""Prints how jobs ended, and derives the exit status from it."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import typer

from koalapy.cli.flows import progress_of
from koalapy.cli.output import DONE, FAILED, print_message
from koalapy.cli.sweep_progress import counted
from koalapy.cli.times import in_text
from koalapy.client import Grid

Document = Mapping[str, Any]


def output_lines(why: Document) -> list[str]:
    """Return the output of the batch system, or of a process that failed, below a line that names its source."""
    if not why["output"]:
        return []
    return [f"{why['command'] or 'The batch system'} said:", *(f"  {line}" for line in why["output"].splitlines())]


def print_end(job: Document, explained: Document | None = None, *, output_shown: bool = False) -> None:
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


def explained_of(koalad: Grid, job: Document) -> Document | None:
    """Return the answer of `koala explain` for a job that is done or failed, else None."""
    return koalad.explain(job["id"]) if job["state"] in ("done", "failed") else None


def exit_by(jobs: Sequence[Document]) -> NoReturn:
    """End the command with status 0 if all jobs are done and no parameter of a sweep failed, else with 1."""
    raise typer.Exit(DONE if all(_well(job) for job in jobs) else FAILED)


def _well(job: Document) -> bool:
    return job["state"] == "done" and not (job["sweep"] and job["sweep"]["failed"])
