"""The outcome of the DCS experiment as a table and a figure, beside the paper's own numbers."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from koalapy.experiments.dcs.batch import KINDS, PLACEMENTS, QUEUES, BatchOutcome, BatchTask, rows_of
from koalapy.experiments.dcs.das2 import SAMPLE, Load
from koalapy.experiments.dcs.workload import MEASURED, WHOLE, Case
from koalapy.experiments.plan import Row, Table
from koalapy.model.units import SECOND

_TIMES = ("response", "run", "overhead")
_OURS, _OTHERS, _PAPERS = "#3c6fa5", "#c9a227", "#c05a3c"


def means(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each case and load of other users, with means over the sets."""
    names = [*Case._fields, "others"]
    keys = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
    return [_mean([row for row in rows if tuple(row[name] for name in names) == key], names) for key in keys]


def case_of(row: Row) -> Case:
    words = (str(row[name]) for name in ("kind", "queue", "placement"))
    return Case(str(row["system"]), int(row["size"]), *words)


def table(rows: Sequence[Row]) -> Table:
    """Return averages and standard deviations in seconds, with the paper's measurements in brackets."""
    headings = ["system", "jobs", "queue", "placement", "others %", *(f"{name} [s]" for name in _TIMES)]
    return Table([*headings, "makespan [s]", "clusters", "failures"], [_line(row) for row in means(rows)])


def figure(chosen: Sequence[BatchTask], outcomes: Sequence[BatchOutcome]) -> Figure:
    """Draw the paper's five experiments over time (the first set), their averages beside the paper's, and all cases."""
    drawn = Figure(figsize=(14.5, 11.5), layout="constrained")
    panels = drawn.subplot_mosaic([["0", "1", "2"], ["3", "4", "paper"], ["144+64"] * 3, [WHOLE] * 3])
    loads = {each.case: outcome.loads for each, outcome in reversed([*zip(chosen, outcomes, strict=True)])}
    rows = [row for row in means(rows_of(outcomes)) if row["others"] == chosen[0].others]
    for number, case in enumerate(MEASURED):
        _draw_load(panels[str(number)], case, loads[case])
    _draw_beside_paper(panels["paper"], {case_of(row): row for row in rows})
    for system in ("144+64", WHOLE):
        _draw_cases(panels[system], system, [row for row in rows if (row["system"], row["size"]) == (system, 8)])
    return drawn


def _mean(rows: Sequence[Row], names: Sequence[str]) -> Row:
    first = {name: rows[0][name] for name in names}
    numbers = [name for name in rows[0] if name not in (*names, "set")]
    return first | {name: fmean(float(row[name]) for row in rows) for name in numbers}


def _line(row: Row) -> tuple[str, ...]:
    case = case_of(row)
    papers = MEASURED.get(case)
    measured = (papers.response, papers.run, papers.overhead) if papers is not None else (None,) * 3
    cells = (_with_stdev(row, name, theirs) for name, theirs in zip(_TIMES, measured, strict=True))
    failures = f"{float(row['submission_failures']):.3g}+{float(row['completion_failures']):.3g}"
    words = (case.system, f"{case.kind} 4x{case.size}", case.queue, case.placement, str(row["others"]))
    return (*words, *cells, f"{float(row['makespan_s']):.0f}", f"{float(row['clusters']):.2f}", failures)


def _with_stdev(row: Row, name: str, theirs: tuple[float, float] | None) -> str:
    ours = f"{float(row[f'{name}_s']):.1f} ± {float(row[f'{name}_stdev_s']):.1f}"
    return f"{ours} ({theirs[0]} ± {theirs[1]})" if theirs is not None else ours


# ---- the figure


def _draw_load(axes: Axes, case: Case, loads: Sequence[Load]) -> None:
    seconds = [number * SAMPLE / SECOND for number in range(len(loads))]
    ours, others = [each.ours for each in loads], [each.others for each in loads]
    axes.stackplot(seconds, others, ours, colors=[_OTHERS, _OURS], labels=["other users", "the batch"], step="post")
    axes.set_title(f"{MEASURED[case].figure}: {case.system}, {case.kind} 4x{case.size}, {case.queue}", fontsize=8)
    axes.set_ylim(0, 1)
    axes.set_xlabel("seconds", fontsize=8)
    axes.set_ylabel("system load", fontsize=8)
    _dress(axes)


def _draw_beside_paper(axes: Axes, rows: Mapping[Case, Row]) -> None:
    places = range(len(MEASURED))
    ours = [float(rows[case]["response_s"]) for case in MEASURED]
    axes.bar([place - 0.2 for place in places], [each.response[0] for each in MEASURED.values()], 0.38, color=_PAPERS)
    axes.bar([place + 0.2 for place in places], ours, 0.38, color=_OURS)
    axes.legend(["paper", "here"], fontsize=7)
    axes.set_xticks(places, [each.figure.replace(", ", "\n") for each in MEASURED.values()], fontsize=7)
    axes.set_ylabel("response [s]", fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(alpha=0.3, axis="y")


def _draw_cases(axes: Axes, system: str, rows: Sequence[Row]) -> None:
    """Draw the parts of the response time: waiting, overhead, run. Every system has its bars in the same order."""
    rows = sorted(rows, key=_place)
    labels = [f"{row['kind']}\n{row['queue']}\n{row['placement']}" for row in rows]
    run, overhead, response = ([float(row[f"{name}_s"]) for row in rows] for name in ("run", "overhead", "response"))
    bottom = [a + b for a, b in zip(run, overhead, strict=True)]
    wait = [whole - rest for whole, rest in zip(response, bottom, strict=True)]
    axes.bar(labels, run, 0.6, color=_OURS, label="run")
    axes.bar(labels, overhead, 0.6, bottom=run, color=_PAPERS, label="overhead")
    axes.bar(labels, wait, 0.6, bottom=bottom, color="#d8d8d8", label="waiting")
    ends = [float(row["makespan_s"]) for row in rows]
    axes.plot(labels, ends, "k_", markersize=14, label="makespan")
    axes.set_ylim(0, 1.25 * max(ends, default=1.0))  # the legend lies above all bars
    axes.set_title(f"{system}, components of 8", fontsize=8)
    axes.set_ylabel("seconds", fontsize=8)
    _dress(axes)
    axes.legend(fontsize=7, ncols=4, loc="upper right")


def _place(row: Row) -> tuple[int, int, int]:
    case = case_of(row)
    return KINDS.index(case.kind), PLACEMENTS.index(case.placement), QUEUES.index(case.queue)


def _dress(axes: Axes) -> None:
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
