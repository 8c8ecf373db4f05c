"""The outcome of an experiment as a table."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

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
