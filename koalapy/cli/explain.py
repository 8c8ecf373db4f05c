"""`koala explain`: why a job waits, or why it failed."""

from typing import TYPE_CHECKING

import typer

from koalapy.cli import options
from koalapy.cli.output import (
    errors_reported,
    out,
    print_json,
)
from koalapy.cli.times import Utc, in_text
from koalapy.client import Grid

if TYPE_CHECKING:
    from koalapy.answers.errors import Reason
    from koalapy.answers.jobs import ExplainAnswer, Job

app = typer.Typer()


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


def output_lines(why: "Reason") -> list[str]:
    """Return the output of the batch system, or of a process that failed, below a line that names its source."""
    if not why["output"]:
        return []
    return [f"{why['command'] or 'The batch system'} said:", *(f"  {line}" for line in why["output"].splitlines())]


def explained_of(koalad: Grid, job: "Job") -> "ExplainAnswer | None":
    """Return the answer of `koala explain` for a job that is done or failed, else None."""
    return koalad.explain(job["id"]) if job["state"] in ("done", "failed") else None
