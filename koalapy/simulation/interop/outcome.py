"""What an experiment came to, as a table for people and as a figure. The same rows give the same of both."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koalapy.simulation.experiments.plan import Row, Table
from koalapy.simulation.interop.experiment import Experiment, Panel

# Student's t for 95 % by degrees of freedom; from 30 on it is the normal distribution's.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
      2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)  # fmt: skip
_MARKERS = "os^Dv*"


def table(rows: Sequence[Row]) -> Table:
    """Each architecture at each load, with half of the 95 % confidence interval."""
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
    """The mean, and half of its 95 % confidence interval (0 of a single value)."""
    if len(values) < 2:
        return fmean(values), 0.0
    t = _T[len(values) - 2] if len(values) - 2 < len(_T) else 1.96
    return fmean(values), t * stdev(values) / math.sqrt(len(values))


def figure(experiment: Experiment, rows: Sequence[Row]) -> Figure:
    across = min(3, len(experiment.panels))
    down = math.ceil(len(experiment.panels) / across)
    drawn = Figure(figsize=(4.6 * across, 3.5 * down), layout="constrained")
    for number, panel in enumerate(experiment.panels, 1):
        _draw(drawn.add_subplot(down, across, number), experiment, panel, rows)
    drawn.suptitle(experiment.about, fontsize=10, wrap=True)
    return drawn


def _draw(axes: Axes, experiment: Experiment, panel: Panel, rows: Sequence[Row]) -> None:
    along = list(dict.fromkeys(row[experiment.along] for row in rows))
    second = "varied" if experiment.along == "load" else "load"
    lines = list(dict.fromkeys((row["architecture"], row[second]) for row in rows))
    for number, ((architecture, other), column) in enumerate(
        (line, column) for line in lines for column in panel.columns
    ):
        points = [
            mean([float(row[column]) for row in rows if _is(row, architecture, experiment.along, value, second, other)])
            for value in along
        ]
        words = [str(architecture), *([column] if len(panel.columns) > 1 else []), *_other(lines, other)]
        axes.errorbar(
            range(len(along)), [point for point, _ in points], [half for _, half in points],
            marker=_MARKERS[number % len(_MARKERS)], markersize=4, linewidth=1.2, capsize=2, label=" ".join(words),
        )  # fmt: skip
    axes.set_xticks(range(len(along)), [str(value) for value in along], fontsize=8)
    axes.set_xlabel("load [%]" if experiment.along == "load" else "varied", fontsize=8)
    axes.set_ylabel(panel.title, fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(alpha=0.3)
    if panel.log:
        axes.set_yscale("log")
    axes.legend(fontsize=7)


def _is(row: Row, architecture: object, along: str, value: object, second: str, other: object) -> bool:
    return row["architecture"] == architecture and row[along] == value and row[second] == other


def _other(lines: Sequence[tuple[object, object]], other: object) -> list[str]:
    """Said only where there are several."""
    return [str(other)] if len({each for _, each in lines}) > 1 else []
