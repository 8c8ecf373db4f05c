"""The files of an experiment: tables as CSV, the figure as PNG and SVG. The same rows give the same bytes."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
from matplotlib.figure import Figure

from koalapy.experiments.plan import Row
from koalapy.model.errors import RequestError


def check(directory: Path) -> None:
    """Check, before hours of work, that files can be written there. Raises RequestError if they cannot."""
    there = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        what = "no directory" if not there.is_dir() else "not writable"
        raise RequestError("unwritable", f"{directory}: {there} is {what}.", "Write another --out DIR.")


def write(
    name: str, rows: Sequence[Row], figure: Figure, directory: Path, more: Mapping[str, Sequence[Row]] | None = None
) -> list[Path]:
    """Write the files, create the directory if necessary, and return their paths.

    They are written elsewhere first and then moved, so that each file is complete. Raises RequestError if this fails.
    """
    tables = {f"{name}.csv": rows} | {f"{name}-{part}.csv": further for part, further in (more or {}).items()}
    names = [*tables, f"{name}.png", f"{name}.svg"]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", dir=directory) as made:
            for file, table in tables.items():
                write_table(Path(made, file), table)
            _write_figure(figure, Path(made, name))
            for file in names:
                Path(made, file).replace(directory / file)
    except OSError as error:
        message = f"{directory} cannot be written to: {error.strerror or error}."
        raise RequestError("unwritable", message, "Make room there, or write another --out DIR.") from error
    return [directory / file for file in names]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV, with a header. Raises OSError."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({column: _written(value) for column, value in row.items()} for row in rows)


def _write_figure(figure: Figure, base: Path) -> None:
    with matplotlib.rc_context({"svg.hashsalt": "koala"}):
        figure.savefig(f"{base}.png", dpi=110, metadata={"Software": None})
        figure.savefig(f"{base}.svg", metadata={"Date": None, "Creator": None})


def _written(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
