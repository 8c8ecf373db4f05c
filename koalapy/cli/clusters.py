"""`koala clusters`: the processors of each cluster, its ad, and the disk space of koalapy there."""

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, in_bytes, out, print_json, table
from koalapy.cli.status import print_grid_file
from koalapy.cli.times import in_text
from koalapy.client import Grid
from koalapy.model.counts import counted_as

if TYPE_CHECKING:
    from koalapy.answers.clusters import Cluster
    from koalapy.answers.koalad import DiskPlace

app = typer.Typer()


@app.command()
def clusters(
    disk: Annotated[
        bool, typer.Option("--disk", help="Show the disk space that koalapy uses on the clusters and here.")
    ] = False,
    ads: Annotated[
        bool, typer.Option("--ads", help="Show the attributes of each cluster for requirements and ranks.")
    ] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show the processors of each cluster and how old these figures are; or its ad, or koalapy's use of disks."""
    if disk:
        return _print_disk(grid, json)
    if ads:
        return _print_ads(grid, json)
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.clusters()
        about = None if json else koalad.status()
    if json:
        return print_json({"schema": "koala.clusters/1", "clusters": found})
    table(
        ("CLUSTER", "BATCH", "CONNECTION", "TOTAL", "IDLE", "OURS", "SCAVENGED", "OTHERS", "WAITING", "AGE"),
        [
            (
                each["name"], _batch(each), each["connection"], each["total"], each["idle"], each["ours"],
                each["scavenged"], each["others"], each["waiting_local"], _age(each),
            )
            for each in found
        ],
    )  # fmt: skip
    for each in found:
        if each["reason"]:
            out.print(f"{each['name']}: {in_text(each['reason'])}")
        if each["candidates"]:
            count = counted_as(each["candidates"], "component")
            out.print(f"{each['name']}: {count} in its queue wait elsewhere too, and start where they come first.")
        if each["added_by_command"]:
            out.print(f"{each['name']} was added by command, and is not in the grid file.")
    if about is not None:
        print_grid_file(about)
    return None


def _print_disk(grid: options.Grid, json: bool) -> None:
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.disk()
    if json:
        return print_json(found)
    table(
        ("PLACE", "BYTES", "DIRECTORIES", "OF THEM"),
        [(each["place"], _bytes(each), each["directories"], _parts(each)) for each in found["places"]],
    )
    for each in found["places"]:
        if each["reason"]:
            out.print(f"{each['place']}: {each['reason']}")
    return None


def _print_ads(grid: options.Grid, json: bool) -> None:
    with errors_reported(), Grid(grid) as koalad:
        found = koalad.ads()
    if json:
        return print_json(found)
    return table(
        ("CLUSTER", "ATTRIBUTE", "VALUE"),
        [
            (each["cluster"] if place == 0 else "", name, json_module.dumps(value, ensure_ascii=False))
            for each in found["ads"]
            for place, (name, value) in enumerate(each["attributes"].items())
        ],
    )


def _bytes(place: "DiskPlace") -> str | None:
    if place["at"] is None:
        return None
    return in_bytes(place["bytes"]) if place["complete"] else f"over {in_bytes(place['bytes'])}"


def _parts(place: "DiskPlace") -> str:
    return ", ".join(f"{name} {in_bytes(size)}" for name, size in place["parts"].items() if size)


def _batch(cluster: "Cluster") -> str:
    return f"{cluster['batch']} {cluster['version']}" if cluster["version"] else cluster["batch"]


def _age(cluster: "Cluster") -> str | None:
    return None if cluster["age_s"] is None else f"{cluster['age_s']:.0f}s"
