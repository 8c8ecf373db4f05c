"""The figures of a grid's log, similar to figures 2 and 6 of the SC'07 paper. The same log gives the same bytes."""

from collections.abc import Sequence

import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koalapy.experiments.workloads.grids import BatchClass, Imbalance

_SHOWN = 8  # the number of sites with the highest loads that are drawn
_WEEK = 7 * 24  # hours


def draw_imbalance(found: Imbalance, title: str) -> Figure:
    """Draw the cumulative load by day, and the arrivals by hour in the week with most of them."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = drawn.subplots(1, 2)
    totals = found.hourly.sum(axis=0)
    busiest = numpy.convolve(totals, numpy.ones(min(_WEEK, len(totals)), dtype=numpy.int64), mode="valid").argmax()
    week = slice(int(busiest), int(busiest) + _WEEK)
    for row, site in enumerate(found.sites[:_SHOWN]):
        left.plot(numpy.cumsum(found.daily[row]) / max(site.processors, 1), label=site.site, linewidth=1)
        right.plot(found.hourly[row, week], label=site.site, linewidth=0.8)
    sized = bool(found.sites[0].processors)
    _finish(left, "days", "jobs per processor, cumulative" if sized else "jobs, cumulative")
    _finish(right, f"hours from hour {int(busiest):,} on", "jobs that arrive in an hour")
    drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    drawn.suptitle(title, fontsize=10)
    return drawn


def draw_batches(found: Sequence[BatchClass], title: str) -> Figure:
    drawn = Figure(figsize=(6, 4), layout="constrained")
    axes = drawn.subplots()
    shown = [each for each in found if each.batches]
    places = range(len(shown))
    axes.plot(places, [each.spread_mean for each in shown], "o-", label="mean")
    axes.plot(places, [each.spread_median for each in shown], "s--", label="median")
    axes.set_xticks(list(places), [f"{each.least} or more" for each in shown])
    axes.set_yscale("log")
    axes.legend(fontsize=7)
    _finish(axes, "jobs of a batch", "longest run time by shortest")
    drawn.suptitle(title, fontsize=10)
    return drawn


def _finish(axes: Axes, across: str, upwards: str) -> None:
    axes.set_xlabel(across, fontsize=8)
    axes.set_ylabel(upwards, fontsize=8)
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)
