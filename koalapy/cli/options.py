"""Options that several commands share."""

from typing import Annotated

import typer

GRID_HELP = "Grid file, or the name of a grid whose koalad runs. Default: $KOALA_GRID, else ~/.config/koala/grid.yaml."

Grid = Annotated[str | None, typer.Option("--grid", "-g", metavar="FILE|NAME", help=GRID_HELP)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
JobIds = Annotated[list[int], typer.Argument(metavar="ID…", help="Jobs.")]
JobId = Annotated[int, typer.Argument(metavar="ID", help="A job.")]
