"""The outcome of an experiment: its table, and a figure like the paper's. The same rows give the same bytes."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koalapy.experiments.interop.experiment import Experiment, Panel
from koalapy.experiments.plan import Row, Table

# Student's t for 95 % by degrees of freedom; from 30 on it is the normal distribution's.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
      2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)  # fmt: skip


def table(rows: Sequence[Row]) -> Table:
    """Return a row for each architecture and load, with half of the 95 % confidence interval."""
    keys = dict.fromkeys((row["load"], row["varied"], row["architecture"]) for row in rows)
    lines = [_line([row for row in rows if (row["load"], row["varied"], row["architecture"]) == key]) for key in keys]
    return Table(["load %", "varied", "architecture", "finished %", "goodput [y]", "wait [s]", "slowdown"], lines)


def _line(alike: Sequence[Row]) -> tuple[str, ...]:
    share, _ = mean([100 * float(row["finished"]) / max(1, float(row["jobs"])) for row in alike])
    cells = [_with_error(mean([float(row[name]) for row in alike])) for name in ("goodput", "wait_s", "slowdown")]
    return (*(str(alike[0][name]) for name in ("load", "varied", "architecture")), f"{share:.1f}", *cells)


def _with_error(found: tuple[float, float]) -> str:
    value, half = found
    return f"{value:.4g} ± {half:.2g}" if half else f"{value:.4g}"


def mean(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % confidence interval (0 for a single value)."""
    if len(values) < 2:
        return fmean(values), 0.0
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
    return fmean(values), t * stdev(values) / math.sqrt(len(values))


_MARKERS = "os^Dv*"
Points = dict[str | int | float, tuple[float, float]]  # by their place on the axis: mean, half of the interval


def figure(experiment: Experiment, rows: Sequence[Row], series: Sequence[Row]) -> Figure:
    """Draw the table with means over the sets. Panels along `hour` show the samples over time."""
    across = min(3, len(experiment.panels))
    down = math.ceil(len(experiment.panels) / across)
    drawn = Figure(figsize=(4.6 * across, 3.5 * down), layout="constrained")
    for number, panel in enumerate(experiment.panels, 1):
        axes = drawn.add_subplot(down, across, number)
        _draw(axes, panel, experiment.along, series if experiment.along == "hour" else rows)
        axes.set_xlabel(_axis(experiment), fontsize=8)
    drawn.suptitle(experiment.about, fontsize=10, wrap=True)
    return drawn


def _axis(experiment: Experiment) -> str:
    return {"load": "load [%]", "hour": "hours", "varied": experiment.varied}[experiment.along]


def _draw(axes: Axes, panel: Panel, along: str, rows: Sequence[Row]) -> None:
    shown = [row for row in rows if not panel.only or row["architecture"] in panel.only]
    if panel.beside is not None:
        points = _points(shown, along, panel.beside)
        axes.plot(list(points), [height for height, _ in points.values()], "k:", label=panel.beside)
    places = {value: place for place, value in enumerate(dict.fromkeys(row[along] for row in shown))}
    for number, (label, points) in enumerate(_lines(shown, panel, along).items()):
        means, halves = zip(*points.values(), strict=True)
        if along == "hour":
            axes.plot(list(points), means, linewidth=1.2, label=label)
        else:
            axes.errorbar(
                [places[value] for value in points], means, halves, marker=_MARKERS[number % len(_MARKERS)],
                markersize=4, linewidth=1.2, capsize=2, label=label,
            )  # fmt: skip
    if along != "hour":
        axes.set_xticks(list(places.values()), [str(value) for value in places])
    _finish(axes, panel)
    if panel.log and any(float(row[column]) > 0 for row in shown for column in panel.columns):
        axes.set_yscale("log")


def _finish(axes: Axes, panel: Panel) -> None:
    axes.set_ylabel(panel.title, fontsize=8)
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def _lines(rows: Sequence[Row], panel: Panel, along: str) -> dict[str, Points]:
    """Return the lines by label: architecture, column and variant, each if there are several."""
    second, unit = ("varied", "") if along == "load" else ("load", " %")
    keys = dict.fromkeys((str(row["architecture"]), row[second]) for row in rows)
    several = len({other for _, other in keys}) > 1
    of_columns = len(panel.columns) > 1 or not several
    alone = len({architecture for architecture, _ in keys}) == 1 and of_columns
    lines: dict[str, Points] = {}
    for architecture, other in keys:
        alike = [row for row in rows if row["architecture"] == architecture and row[second] == other]
        for column in panel.columns:
            words = ([] if alone else [architecture]) + ([column] if alone or len(panel.columns) > 1 else [])
            lines[" ".join([*words, *([f"{other}{unit}"] if several else [])])] = _points(alike, along, column)
    return lines


def _points(rows: Sequence[Row], along: str, column: str) -> Points:
    values: dict[str | int | float, list[float]] = {}
    for row in rows:
        values.setdefault(row[along], []).append(float(row[column]))
    return {value: _with_interval(found) for value, found in values.items()}


def _with_interval(found: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half its confidence interval.

    The half is 0 for two sets: their interval (Student's t is 12.7) would hide the rest of the figure.
    """
    middle, half = mean(found)
    return middle, half if len(found) > 2 else 0.0
