"""The outcome of the fairness experiment, as a table and as a figure."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koalapy.experiments.plan import Row, Table
from koalapy.experiments.sweeps.fairness import ABOUT, POLICIES, USERS, FairnessOutcome, FairnessTask, rows_of
from koalapy.experiments.sweeps.workload import WORKLOADS

_MEANS = ("done", "per_minute", "preemptions", "nodes", "lost_hours")
_COLOURS = {"equipartition-all": "#c05a3c", "equipartition-persite": "#3c6fa5"}


def means(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each user under each policy and workload, with means over the sets."""
    keys = dict.fromkeys((row["workload"], row["policy"], row["user"]) for row in rows)
    return [_mean([row for row in rows if (row["workload"], row["policy"], row["user"]) == key]) for key in keys]


def _mean(rows: Sequence[Row]) -> Row:
    first = {name: rows[0][name] for name in ("workload", "policy", "user")}
    return first | {name: fmean(float(row[name]) for row in rows) for name in _MEANS if name in rows[0]}


def table(rows: Sequence[Row]) -> Table:
    """Return the means over the sets as a table."""
    return Table(
        ["workload", "policy", "user", "done", "per min", "preempted", "nodes", "lost [h]"],
        [
            (
                str(row["workload"]),
                str(row["policy"]),
                str(row["user"]),
                *(f"{float(row[name]):.3g}" for name in _MEANS),
            )
            for row in means(rows)
        ],
    )


def figure(chosen: Sequence[FairnessTask], outcomes: Sequence[FairnessOutcome], about: str = ABOUT) -> Figure:
    """Draw the parameters done per user and workload, as in the paper's figure 5, and each user's nodes in the first
    set.
    """
    held = {each: outcome for each, outcome in zip(chosen, outcomes, strict=True) if each.number == 1}
    return _drawn(rows_of(outcomes), held, about)


def _drawn(rows: Sequence[Row], held: Mapping[FairnessTask, FairnessOutcome], about: str) -> Figure:
    figure = Figure(figsize=(13.5, 7.2), layout="constrained")
    panels = figure.subplots(len(WORKLOADS), 1 + len(POLICIES), squeeze=False, width_ratios=[1, 1.3, 1.3])
    for line, workload in zip(panels, WORKLOADS, strict=True):
        _draw_done(line[0], workload, means(rows))
        for axes, policy in zip(line[1:], POLICIES, strict=True):
            found = [outcome for each, outcome in held.items() if (each.workload, each.policy) == (workload, policy)]
            _draw_held(axes, f"{policy}, {workload}", found[0].held if found else {})
    figure.suptitle(about, fontsize=10)
    return figure


def _draw_done(axes: Axes, workload: str, rows: Sequence[Row]) -> None:
    for number, policy in enumerate(POLICIES):
        mine = [row for row in rows if (row["workload"], row["policy"]) == (workload, policy)]
        places = [float(row["user"]) + 0.36 * (number - 0.5) for row in mine]
        axes.bar(places, [float(row["done"]) for row in mine], 0.34, label=policy, color=_COLOURS[policy])
    axes.set_xticks(range(1, USERS + 1), [f"user {user}" for user in range(1, USERS + 1)], fontsize=8)
    axes.set_ylabel(f"parameters done in an hour, {workload}", fontsize=8)
    _dress(axes)


def _draw_held(axes: Axes, title: str, held: Mapping[str, Sequence[int]]) -> None:
    for user, nodes in held.items():
        axes.plot([60 * place / len(nodes) for place in range(len(nodes))], nodes, linewidth=1.1, label=user)
    axes.set_title(title, fontsize=8)
    axes.set_xlabel("minutes", fontsize=8)
    axes.set_ylabel("nodes", fontsize=8)
    axes.set_ylim(bottom=0)
    _dress(axes)


def _dress(axes: Axes) -> None:
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
