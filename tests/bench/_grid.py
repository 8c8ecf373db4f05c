"""Common parts of the benches: a koalad of their own on the test grid, figures, and the last line."""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from koalapy import Grid, testgrid
from koalapy.testgrid import layout

KOALA = [sys.executable, "-m", "koalapy.cli.main"]


@contextmanager
def koalad_on_test_grid(**scheduling: Any) -> Iterator[tuple[Grid, Path]]:
    """A koalad over the main job's clusters, on the test grid, brought up and empty. See `koalad_of`."""
    with testgrid.reserved():
        grid = testgrid.up().grid(*layout.MAIN)
        testgrid.reset()
        if scheduling:
            grid["scheduling"] = scheduling
        with koalad_of(grid) as koalad:
            yield koalad


@contextmanager
def koalad_of(grid: dict[str, Any], timeout_s: float = 60) -> Iterator[tuple[Grid, Path]]:
    """A koalad of this grid file, and the file, its state in a temporary place; in the end it and its jobs are gone."""
    end_orderly()
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as place:
        grid_file = Path(place, "grid.yaml")
        grid_file.write_text(yaml.safe_dump(grid | {"grid": "bench"}))
        os.environ |= {"XDG_STATE_HOME": place, "XDG_RUNTIME_DIR": place}
        try:
            subprocess.run([*KOALA, "up", "--grid", str(grid_file)], check=True, stdout=sys.stderr)
            with Grid(grid_file, timeout=timeout_s) as koalad:
                try:
                    yield koalad, grid_file
                finally:
                    koalad.down(cancel=True)
        finally:
            os.environ.clear()
            os.environ |= before


def end_orderly() -> None:
    """A bench that is asked to end leaves nothing behind, as one that comes to its end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def wait_until_measured(koalad: Grid, patience_s: float = 60) -> None:
    """Until every cluster is known and idle."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        clusters = koalad.clusters()
        if all(each["idle"] is not None and each["idle"] == each["total"] for each in clusters):
            return
        time.sleep(0.1)
    raise SystemExit(f"the test grid is not idle: {clusters}")


def bootstrap(values: Sequence[float], draws: int = 4000) -> tuple[float, float]:
    """The 95 % interval of the median."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(values, k=len(values))) for _ in range(draws))
    return medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def last_line(bench: str, figure: float, unit: str, bound: float, holds: bool, detail: dict[str, Any]) -> None:
    document = {"bench": bench, "figure": figure, "unit": unit, "bound": bound, "holds": holds, "detail": detail}
    print(json.dumps(document))
    sys.exit(0 if holds else 1)
