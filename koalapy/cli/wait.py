"""`koala wait`, and the wait of other commands for the end of jobs, with their progress."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.ends import exit_by, print_end
from koalapy.cli.explain import explained_of
from koalapy.cli.output import (
    errors_reported,
    print_json,
    print_message,
)
from koalapy.cli.progress import POLL_S, StateLines, TransferLines
from koalapy.cli.signals import interruptible
from koalapy.cli.sweep_progress import wait_for_all
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.following import RECONNECT_S, Reconnecting
from koalapy.model.errors import TransientError

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job

app = typer.Typer()


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
            raise TransientError("not_final", str(error), advice) from None
        explained = {job["id"]: explained_of(koalad, job) for job in found}
    if json:
        print_json({"schema": "koala.jobs/1", "jobs": found})
    else:
        for job in found:
            print_end(job, explained[job["id"]])
    exit_by(found)


def wait_with_progress(
    koalad: Grid, jobs: Sequence[int], timeout_s: float | None = None, reconnect_s: float = RECONNECT_S
) -> list["Job"]:
    """Wait until the jobs are final, and print their progress meanwhile: states, reasons, transfers, sweeps.

    Return the jobs. Raises TimeoutError after `timeout_s`, and KoalaError if koalad is unreachable for `reconnect_s`.
    """
    try:
        with interruptible():
            deadline = None if timeout_s is None else time.monotonic() + timeout_s
            return _when_final(koalad, jobs, deadline, Reconnecting(reconnect_s, print_message))
    except KeyboardInterrupt:
        ids = " ".join(map(str, jobs))
        what = f"job {ids} goes" if len(jobs) == 1 else f"{len(jobs)} jobs go"
        again = f"waits for {'it' if len(jobs) == 1 else 'them'} again"
        print_message(
            f"{what} on: `koala wait {ids}` {again}, `koala cancel {ids}` ends {'it' if len(jobs) == 1 else 'them'}."
        )
        raise


def _when_final(koalad: Grid, jobs: Sequence[int], deadline: float | None, reconnecting: Reconnecting) -> list["Job"]:
    states = StateLines(koalad)
    with TransferLines() as lines:
        while True:
            asked_at = time.monotonic()
            left = None if deadline is None else max(0.0, deadline - asked_at)
            try:
                try:
                    final = koalad.wait(jobs, POLL_S if left is None else min(POLL_S, left))
                    reconnecting.answered(asked_at)
                    return final
                except TimeoutError:
                    reconnecting.answered(asked_at)
                    if left is not None and left <= POLL_S:
                        raise
                found = koalad.jobs(ids=jobs)
                if any(job["sweep"] and job["finished_at"] is None for job in found):
                    return wait_for_all(koalad, jobs, left)
                states.print_changes(*found)
                lines.show(*found)
            except NotReachable as error:
                if left == 0:
                    raise
                reconnecting.pause(error)
