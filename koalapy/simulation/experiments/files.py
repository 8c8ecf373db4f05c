"""An experiment's outcome on disk: the table as CSV, the figure as PNG and SVG. The same rows give the same bytes."""

import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from koalapy.simulation.experiments.plan import Row


def write(name: str, rows: Sequence[Row], figure: Figure, directory: Path) -> list[Path]:
    """The files, whose directory is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    table, png, svg = (directory / f"{name}{suffix}" for suffix in (".csv", ".png", ".svg"))
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({column: _written(value) for column, value in row.items()} for row in rows)
    with matplotlib.rc_context({"svg.hashsalt": "koala"}):
        figure.savefig(png, dpi=110, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [table, png, svg]


def _written(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
