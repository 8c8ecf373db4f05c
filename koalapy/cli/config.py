"""`koala config`: the check of the grid file, and the schemas of grid and job files."""

from typing import Annotated

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json
from koalapy.common.locations import Locations
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError

app = typer.Typer()
config_app = options.group(app, "config", "Check the grid file, or show its schema.")


@config_app.command("schema")
def schema(
    job: Annotated[bool, typer.Option("--job", help="Show the schema of the job file.")] = False,
    flow: Annotated[bool, typer.Option("--flow", help="Show the schema of a job file with `jobs`.")] = False,
) -> None:
    """Print the JSON Schema of the grid file, of the job file, or of a flow's."""
    if flow:
        from koalapy.languages.flow import json_schema
    elif job:
        from koalapy.languages.reading import json_schema
    else:
        from koalapy.config import json_schema
    print_json(json_schema())


@config_app.command("check")
def check(grid: options.Grid = None, json: options.Json = False) -> None:
    """Read the grid file as koalad would, and print its errors."""
    from koalapy.koalad.gridfile import read_grid_file

    with errors_reported():
        locations = Locations.of(grid)
        if locations.grid_file is None:
            message = f"There is no grid file {locations.grid}."
            raise RequestError("no_grid_file", message, "Give the path of one with --grid.")
        found = read_grid_file(locations.grid_file)
    path, clusters = str(locations.grid_file), [*found.clusters]
    if json:
        document = {"schema": "koala.config-check/1", "grid_file": path, "grid": found.grid, "clusters": clusters}
        return print_json(document)
    out.print(f"{path} is fine: grid {found.grid}, {counted_as(len(clusters), 'cluster')}")
    return None
