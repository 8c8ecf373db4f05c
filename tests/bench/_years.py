"""Common parts of the benches of a year: the growth that is allowed, the command line, and the figure."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from koalapy.store.open import FILE_NAME

BATCH = 200  # jobs that are pruned with one request
EVERY = 10  # days from one line to the next


def memory_mb() -> float:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def store_mb(place: Path) -> float:
    """The store's file, with its log, in this directory."""
    return sum(path.stat().st_size for path in place.iterdir() if path.name.startswith(FILE_NAME)) / 1e6


def options(name: str, about: str | None, jobs: int, parameters: int) -> argparse.Namespace:
    """The command line of the bench, with these defaults."""
    parser = argparse.ArgumentParser(prog=f"tests/bench/run {name}", description=about)
    parser.add_argument("--jobs", type=int, default=jobs, help="a day (%(default)s)")
    parser.add_argument("--parameters", type=int, default=parameters, help="a day, in one sweep (%(default)s)")
    parser.add_argument("--keep", type=int, default=30, help="days (%(default)s)")
    parser.add_argument("--days", type=int, default=365, help="(%(default)s)")
    parser.add_argument("--figure", type=Path, help="draw it into this file")
    return parser.parse_args()


def draw(
    days: Sequence[int], sizes: Mapping[str, Sequence[float]], counts: Mapping[str, Sequence[int]],
    jobs: Sequence[int], path: Path,
) -> None:  # fmt: skip
    """Sizes in MB above counts in thousands, each by its label, over the days; `jobs`: how many there were ever."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    for label, values in sizes.items():
        above.plot(days, values, label=f"{label}, MB")
    for label, numbers in counts.items():
        below.plot(days, [number / 1000 for number in numbers], label=f"{label}, thousands")
    below.plot(days, [number / 1000 for number in jobs], ":", label="jobs ever, thousands")
    below.set_xlabel("day")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.legend()
    figure.savefig(path, dpi=120)
