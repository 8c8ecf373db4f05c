"""The outcome of the experiment as a table and a figure, with comparisons set by set."""

from collections.abc import Sequence
from itertools import product
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koalapy.experiments.busy.tasks import REFERENCE, WITHOUT
from koalapy.experiments.interop.outcome import mean
from koalapy.experiments.plan import Row, Table

_KEY = ("log", "load", "components", "way")
_MARKERS = "os^Dv*PX"
_HOUR_S = 3600
Interval = tuple[float, float]  # the mean over the sets, and half of its 95 % confidence interval


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each log, load, number of components and way: sums and means over the sets.

    `wait_ratio` compares the mean wait with that of the reference, `local_wait_ratio` that of the local jobs with the
    runs that have only those. A number is followed by half of its 95 % confidence interval, whose name ends in `_ci`.
    """
    by_set = {(*(row[name] for name in _KEY), row["set"]): row for row in rows}
    found = []
    for key in dict.fromkeys(tuple(row[name] for name in _KEY) for row in rows):
        alike = [row for row in rows if tuple(row[name] for name in _KEY) == key]
        log, load, components, _ = key
        if not components:
            continue
        base = [by_set[log, load, components, REFERENCE, row["set"]] for row in alike]
        alone = [by_set[log, load, 0, WITHOUT, row["set"]] for row in alike]
        used = sum(float(row["used_hours"]) for row in alike)
        found.append(
            dict(zip(_KEY, key, strict=True))
            | {name: sum(int(row[name]) for row in alike) for name in ("jobs", "failed")}
            | _with_interval("wait_h", mean([float(row["wait_mean_s"]) / _HOUR_S for row in alike]))
            | _with_interval("wait_ratio", _ratio(alike, base, "wait_mean_s"))
            | {"held_by_used": sum(float(row["held_hours"]) for row in alike) / used if used else 0.0}
            | _with_interval("local_wait_h", mean([float(row["local_wait_mean_s"]) / _HOUR_S for row in alike]))
            | _with_interval("local_wait_ratio", _ratio(alike, alone, "local_wait_mean_s"))
        )
    return found


def table(rows: Sequence[Row]) -> Table:
    """Return the summary as it is printed."""
    headings = ("log", "load %", "components", "way", "failed", "wait [h]", "ratio", "held/used")
    return Table((*headings, "local wait [h]", "ratio"), [_line(row) for row in summary(rows)])


def figure(rows: Sequence[Row]) -> Figure:
    """Draw waits by the number of components, failures, and the waits of local users, over the load; a row a log."""
    found = summary(rows)
    logs = list(dict.fromkeys(str(row["log"]) for row in found))
    counts = sorted({int(row["components"]) for row in found})
    drawn = Figure(figsize=(4.2 * (len(counts) + 2), 3.3 * len(logs)), layout="constrained")
    panels = drawn.subplots(len(logs), len(counts) + 2, squeeze=False)
    for (place, log), (column, count) in product(enumerate(logs), enumerate(counts)):
        alike = [row for row in found if row["log"] == log and row["components"] == count]
        title = f"{log}: {count} component{'s' if count > 1 else ''}, mean wait [h]"
        _draw(panels[place][column], title, alike, "wait_h")
    for place, log in enumerate(logs):
        several = [row for row in found if row["log"] == log and row["components"] == min(2, counts[-1])]
        for row in several:
            row["failed_share"] = 100 * int(row["failed"]) / max(1, int(row["jobs"]))
        failed, local = panels[place][len(counts)], panels[place][len(counts) + 1]
        which = f"{several[0]['components']} components" if len(counts) > 1 else "one component"
        _draw(failed, f"{log}: {which}, failed [%]", several, "failed_share")
        _draw(local, f"{log}: {which}, others' wait by that without them", several, "local_wait_ratio")
    drawn.suptitle("Jobs on four busy clusters: waiting for idle processors, and in batch queues", fontsize=10)
    return drawn


def _with_interval(name: str, found: Interval) -> Row:
    return {name: found[0], f"{name}_ci": found[1]}


def _ratio(rows: Sequence[Row], others: Sequence[Row], name: str) -> Interval:
    """Return the ratio of two means over the same sets; 0 if the others' is.

    Its interval is that of a ratio estimator (W. Cochran, "Sampling techniques", 6.4): a set with short waits counts
    little.
    """
    ours, theirs = ([float(row[name]) for row in each] for each in (rows, others))
    base = fmean(theirs)
    if not base:
        return 0.0, 0.0
    ratio = fmean(ours) / base
    _, half = mean([one - ratio * other for one, other in zip(ours, theirs, strict=True)])
    return ratio, half / base


def _line(row: Row) -> tuple[str, ...]:
    cells = (str(row[name]) for name in _KEY)
    return (
        *cells, f"{row['failed']} of {row['jobs']}", _cell(row, "wait_h"), _cell(row, "wait_ratio"),
        f"{float(row['held_by_used']):.2f}", _cell(row, "local_wait_h"), _cell(row, "local_wait_ratio"),
    )  # fmt: skip


def _cell(row: Row, name: str) -> str:
    return f"{float(row[name]):.2f} ± {float(row[f'{name}_ci']):.2f}"


def _draw(axes: Axes, title: str, rows: Sequence[Row], column: str) -> None:
    """Draw a line for each way over the load."""
    for number, each in enumerate(dict.fromkeys(row["way"] for row in rows)):
        alike = [row for row in rows if row["way"] == each]
        axes.errorbar(
            [str(row["load"]) for row in alike], [float(row[column]) for row in alike],
            [float(row.get(f"{column}_ci", 0.0)) for row in alike], marker=_MARKERS[number % len(_MARKERS)],
            markersize=4, linewidth=1.2, capsize=2, label=str(each),
        )  # fmt: skip
    axes.set_title(title, fontsize=8)
    axes.set_xlabel("load of other users [%]", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
