"""`koala cancel`."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.hold import print_changed
from koalapy.cli.output import (
    BAD_INPUT,
    confirm,
    errors_reported,
    print_message,
)
from koalapy.client import Grid
from koalapy.model.counts import counted_as
from koalapy.model.states import JobState

app = typer.Typer()


@app.command()
def cancel(
    jobs: Annotated[list[str] | None, options.IDS] = None,
    state: Annotated[list[JobState] | None, typer.Option("--state", help="Jobs in this state; repeat it.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="PATTERN", help="Jobs with this name; * and ? match.")
    ] = None,
    label: options.WithLabel = None,
    everything: Annotated[bool, typer.Option("--all", help="All jobs that are not final.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --all.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Do not wait for unreachable clusters; their batch jobs are cancelled later."),
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Cancel jobs: those that are named, or all that match. A job that is final is not an error."""
    filtered = bool(state) or name is not None or bool(label)
    if sum((bool(jobs), filtered, everything)) != 1:
        print_message(
            "koala: It is not clear which jobs to cancel. Name jobs, or use --state, --name or --label, or --all."
        )
        raise typer.Exit(BAD_INPUT)
    with errors_reported(), Grid(grid) as koalad:
        if jobs:
            ids = options.ids_of(koalad, jobs)
        else:
            ids = _live_jobs(koalad, state or (), name, label or ())
            if not ids and not json:
                print_message("No job matches, so nothing was cancelled.")
            if ids and everything and not yes:
                _confirm(len(ids))
        changed = koalad.cancel_many(ids, force=force)
        final = [each["id"] for each in changed["refused"] if each["error"]["code"] == "wrong_state"]
        if final:
            what = f"Job {final[0]} is" if len(final) == 1 else f"{len(final)} jobs are"
            print_message(f"koala: {what} final already; nothing was left to cancel.")
        print_changed(changed, json, known=final)


def _live_jobs(koalad: Grid, states: Sequence[JobState], name: str | None, labels: Sequence[str]) -> list[int]:
    """Return the ids of jobs that are not final and match all criteria."""
    matching = koalad.jobs([str(state) for state in states], labels=labels)
    found = [job for job in matching if job["finished_at"] is None]
    return [job["id"] for job in found if name is None or fnmatchcase(job["name"], name)]


def _confirm(count: int) -> None:
    """End the command unless a person at a terminal confirms. Raises RequestError without a terminal."""
    what = f"all {counted_as(count, 'job')}" if count > 1 else "the only job"
    refusal = f"To cancel {what}, confirm it on a terminal."
    confirm(f"Cancel {what} of this grid?", refusal, "Without a terminal, use --yes.")
