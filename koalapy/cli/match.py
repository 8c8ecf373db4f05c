"""`koala match`: the clusters and groups of clusters that a job fits on now, without its submission."""

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json
from koalapy.client import Grid
from koalapy.model.counts import counted_as

if TYPE_CHECKING:
    from koalapy.answers.clusters import Choice, MatchedComponent

app = typer.Typer()


@app.command()
def match(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file, - for standard input.")],
    override: options.Override = None,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show the clusters and groups of clusters that a job fits on now, the first choice first. Nothing is submitted.

    Below them are the other clusters, each with the reason: requirements that it does not meet, an attribute that it
    does not have, or processors that are not idle.
    """
    with errors_reported(), Grid(grid) as koalad:
        job = sys.stdin.buffer if str(file) == "-" else file
        found = koalad.match(job, overrides=options.overrides_of(override or []))
    if json:
        return print_json(found)
    for place, component in enumerate(found["components"]):
        if place:
            out.print()
        if len(found["components"]) > 1:
            out.print(f"component {component['index']}")
        _print_component(component)
    return None


def _print_component(component: "MatchedComponent") -> None:
    if not component["choices"]:
        out.print(f"No cluster or group of clusters has {counted_as(component['processors'], 'processor')} for it now.")
    print_choices(component["choices"])
    if component["choices"] and component["others"]:
        out.print()
    for each in component["others"]:
        out.print(f"{each['cluster']}: {each['reason']['message']} {each['reason']['advice']}".rstrip())


def print_choices(choices: Sequence["Choice"]) -> None:
    """Print choices by the number of their clusters, in the form of figure 2b of the EU-CrossGrid paper.

    Choices that a job has kept have no free processors; theirs are the ones that the job takes of each cluster.
    """
    for place, (size, group) in enumerate(groupby(choices, key=lambda choice: len(choice["clusters"]))):
        if place:
            out.print()
        out.print(f"[Groups with {size} CEs]")
        for choice in group:
            rank = "none" if choice["rank"] is None else f"{choice['rank']:g}"
            out.print(f"[Rank={rank}]")
            for each in choice["clusters"]:
                free = each["free"]
                out.print(each["cluster"])
                out.print(f"processors = {each['processors']}" if free is None else f"freeCPUs = {free}")
            if choice["refused"]:
                out.print(f"refused: {choice['refused']['message']}")
