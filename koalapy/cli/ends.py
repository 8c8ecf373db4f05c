"""How jobs ended: in words for a person, and as an exit status."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import typer

from koalapy.cli.output import DONE, FAILED, say
from koalapy.cli.sweep_progress import counted
from koalapy.cli.times import in_text
from koalapy.client import Grid

Document = Mapping[str, Any]


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
    ends = {"done": "is done", "failed": f"failed: {in_text(reason or '')}", "cancelled": "was cancelled"}
    parameters = f": {counted(job['sweep'])}" if job["sweep"] and job["state"] != "failed" else ""
    say(f"job {job['id']} {ends.get(job['state'], 'is ' + job['state'])}{parameters}")
    for line in [*(words_of(why) if why else ()), *(explained["notes"] if explained else ())]:
        say(f"  {line}")
    if job["sweep"] and job["sweep"]["failed"]:
        say(f"`koala results {job['id']} --failed` lists those that failed.")


def explained_of(koalad: Grid, job: Document) -> Document | None:
    """What `koala explain` has of a job that is over, and that may have more to tell than its state."""
    return koalad.explain(job["id"]) if job["state"] in ("done", "failed") else None


def exit_by(jobs: Sequence[Document]) -> NoReturn:
    """0 if all are done, every parameter of sweeps well."""
    raise typer.Exit(DONE if all(_well(job) for job in jobs) else FAILED)


def _well(job: Document) -> bool:
    return job["state"] == "done" and not (job["sweep"] and job["sweep"]["failed"])
