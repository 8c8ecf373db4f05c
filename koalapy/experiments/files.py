"""The files of an experiment: tables as CSV, the figure as PNG and SVG. The same rows give the same bytes."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox

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
            write_figure(figure, Path(made, name))
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


def write_figure(figure: Figure, base: Path) -> list[Path]:
    """Write `base`.png and `base`.svg, and return their paths. Raises OSError."""
    png, svg = (base.with_name(f"{base.name}.{suffix}") for suffix in ("png", "svg"))
    figure.set_layout_engine(_Repeatable())
    with matplotlib.rc_context({"svg.hashsalt": "koala"}):
        figure.savefig(png, dpi=110, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]


class _Repeatable(ConstrainedLayoutEngine):
    """The constrained layout, which is the same in each process.

    The last bits of its solver's results depend on addresses in memory, and the names of an SVG on these bits.
    """

    def execute(self, fig: Figure) -> None:
        super().execute(fig)
        for axes in fig.get_axes():
            axes.set_position(Bbox(axes.get_position(original=True).get_points().round(9)))
            axes.set_in_layout(True)  # `set_position` ends that


def _written(value: str | int | float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
