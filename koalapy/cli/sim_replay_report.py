"""The report on a replay: the trace, the progress of its runs, a table on disk, tables on the terminal, or JSON."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from koalapy.cli import output
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.units import SECOND, Duration, format_duration

if TYPE_CHECKING:  # numpy is imported on use: other commands start without it
    from koalapy.experiments.replay.background import BackgroundRules
    from koalapy.experiments.replay.comparison import Figures
    from koalapy.experiments.replay.jobs import Survey
    from koalapy.experiments.replay.rules import ReplayRules
    from koalapy.experiments.replay.run import ReplayOutcome, ReplayTask

_AS_LOGGED = "as logged"
_SILENCE_S = 60.0  # the longest time between two lines of a run without a terminal
_MUCH = 0.05  # part of the jobs or of their processor time that matters if it is left out
_LITTLE = 0.001  # part of the processor time of a log's jobs that is not worth a message
_MOST_LOAD = 3.0
_UNIT = re.compile(r"\d+[a-z]")


def survey(trace: Path, rules: "ReplayRules") -> "Survey":
    """Read the trace, and show that meanwhile. Raises RequestError."""
    from koalapy.experiments.replay import jobs

    if not output.errors.is_terminal:
        output.print_message(f"reading {trace}")
        return jobs.survey(trace, rules)
    with output.errors.status(f"reading {trace}"):
        return jobs.survey(trace, rules)


def print_survey(found: "Survey") -> None:
    """Print the number of jobs to replay, and the parts of the trace that are left out or changed."""
    from koalapy.experiments.workloads.reading import counts_text

    output.print_message(f"{counted_as(f'{found.jobs:,}', 'job')} to replay")
    if found.left_out:
        output.print_message(f"left out: {counts_text(found.left_out)}")
    if found.lost.jobs:
        jobs, work = _parts_left_out(found)
        share = f"{100 * jobs:.3g} % of the jobs that ran, with {100 * work:.3g} % of their processor time"
        loud = max(jobs, work) >= _MUCH
        rest = (
            ". The replay has little meaning for this trace: check the sizes of the clusters (--size)." if loud else "."
        )
        output.print_message(f"{'WARNING: left out are' if loud else 'left out are'} {share}{rest}")
    if found.changed:
        output.print_message(f"changed: {counts_text(found.changed)}")
    if not len(found.logged):
        output.print_message("no row as logged: the trace does not have the waits of its jobs")
    elif len(found.logged) < found.jobs:
        output.print_message(
            f"as logged: the waits of {len(found.logged):,} jobs; the trace does not give those of the others"
        )


def background(log: Path, load: float | None, seed: int, rules: "ReplayRules") -> "BackgroundRules":
    """Return the rules of the local jobs, after a first reading of their log, whose left out jobs are printed.

    Raises RequestError if the log has an error, or no jobs for a cluster.
    """
    from koalapy.experiments.replay.background import BackgroundRules, read_background, work_beyond
    from koalapy.experiments.workloads.reading import counts_text

    if load is not None and not 0 < load <= _MOST_LOAD:
        message = f"--background-load {load:g} is not above 0 and at most {_MOST_LOAD:g}."
        raise RequestError("bad_option", message, "Write --background-load 0.85 for 85 % of all processors.")
    found = read_background(log, rules.lenient, rules.grace)
    if not found.jobs:
        raise RequestError("no_jobs", f"{log} has no job that ran.", "Is it the right file?")
    output.print_message(f"{counted_as(f'{len(found.jobs):,}', 'job')} in {log.name} for the local jobs")
    if found.left_out:
        output.print_message(f"left out there: {counts_text(found.left_out)}")
    for name, size in rules.sizes.items():
        if (beyond := work_beyond(found.jobs, size)) >= _LITTLE:
            output.print_message(f"left out on {name}: larger jobs, {100 * beyond:.3g} % of the processor time there")
    return BackgroundRules(log=log, load=load, seed=seed, lenient=rules.lenient, grace=rules.grace)


def as_logged(found: "Survey") -> "Figures | None":
    """Return the figures of the trace itself; None if it has no waits."""
    from koalapy.experiments.replay.comparison import figures

    return figures(found.logged) if len(found.logged) else None


def run_all(tasks: "Sequence[ReplayTask]", jobs: int, workers: int) -> "list[ReplayOutcome]":
    """Return the outcomes of all runs, in their order. Their progress is shown meanwhile."""
    from koalapy.experiments.replay.run import side_by_side

    found: dict[int, ReplayOutcome] = {}
    with _shown([task.name for task in tasks], jobs) as show:
        for index, done, outcome in side_by_side(tasks, workers):
            show(index, done)
            if outcome is not None:
                found[index] = outcome
    return [found[index] for index in range(len(tasks))]


@contextmanager
def _shown(names: Sequence[str], jobs: int) -> Iterator[Any]:
    """Yield a function that shows the progress of a run, given its index and its number of finished jobs.

    On a terminal each run has a bar; in a pipe it has lines.
    """
    if not output.errors.is_terminal:
        yield Lines(names, jobs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=output.errors.console) as bars:
        tasks = [bars.add_task(name, total=jobs) for name in names]
        yield lambda index, done: bars.update(tasks[index], completed=done)


class Lines:
    """Progress as lines: one for every tenth of a run's jobs, and at least one a minute.

    A line gives the time left if that is a minute or more.
    """

    def __init__(self, names: Sequence[str], jobs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._jobs, self._clock = names, jobs, clock
        self._begun: dict[int, tuple[float, int]] = {}  # by run: (time of its first progress, its jobs then)
        self._printed: dict[int, tuple[float, int]] = {}  # by run: (time of its last line, its tenth then)

    def __call__(self, index: int, done: int) -> None:
        now, tenth = self._clock(), 10 * done // self._jobs
        began = self._begun.setdefault(index, (now, done))
        last, before = self._printed.setdefault(index, (now, 0))
        if tenth > before or now - last >= _SILENCE_S:
            self._printed[index] = now, tenth
            left = self._left(now - began[0], done - began[1], self._jobs - done)
            output.print_message(f"{self._names[index]}: {done:,} of {self._jobs:,} jobs{left}")

    def _left(self, took_s: float, done: int, left: int) -> str:
        seconds = took_s * left / done if done else 0.0
        return f", about {rounded_duration(seconds)} to go" if seconds >= _SILENCE_S else ""


def write_table(outcomes: "Sequence[ReplayOutcome]", logged: "Figures | None", path: Path) -> Path:
    """Write all figures as CSV, a row for each outcome and one for the trace itself. Return the path."""
    from koalapy.experiments import files

    rows: list[dict[str, Any]] = [
        {"queue": each.queue, "max_overtakes": _bound(each), "placement": each.placement}
        | asdict(each.figures)
        | (_busy(each) or {})
        for each in outcomes
    ]
    if logged is not None:
        rows.append(dict.fromkeys(rows[0], "") | {"queue": _AS_LOGGED} | asdict(logged))
    files.write_table(path, rows)
    return path


def print_outcomes(outcomes: "Sequence[ReplayOutcome]", logged: "Figures | None", sizes: Mapping[str, int]) -> None:
    """Print the main figures as tables, and the numbers of jobs that were ended or never started.

    `logged`: the figures of the trace itself; None if it has no waits. `sizes`: the processors of each cluster.
    """
    from koalapy.experiments.replay.comparison import MEDIUM, SMALL
    from koalapy.experiments.replay.run import label_of

    rows = [(label_of(each.queue, each.max_overtakes), _placement(each), each.figures) for each in outcomes]
    if logged is not None:
        rows.append((_AS_LOGGED, "-", logged))
    columns = ("QUEUE", "PLACEMENT", "WAIT", "MEDIAN", "95 %", "SLOWDOWN", "USED %", "MAKESPAN", "BACKLOG")
    output.table(columns, [(queue, placement, *_cells(figures)) for queue, placement, figures in rows])
    print()
    by_size = ("QUEUE", "PLACEMENT", "WAIT OF SMALL", "MEDIUM", "LARGE JOBS")
    output.table(by_size, [(queue, placement, *_cells_by_size(figures)) for queue, placement, figures in rows])
    largest = max(sizes.values())
    parts = f"1/{SMALL} and 1/{MEDIUM} of the largest cluster"
    small = counted_as(f"{largest // SMALL:,}", "processor")
    output.print_message(f"Small jobs: up to {small}; medium: up to {largest // MEDIUM:,} ({parts}).")
    for queue, placement, figures in rows:
        if figures.killed:
            advice = "; --grace lets them run on"
            output.print_message(
                f"{queue}, {placement}: {figures.killed:,} of the jobs were ended by their walltime{advice}."
            )
    for each in outcomes:
        for reason, count in each.reasons.items():
            name = f"{label_of(each.queue, each.max_overtakes)}, {_placement(each)}"
            output.print_message(f"{name}: {count:,} of the jobs never started. {reason}")


def print_busy(outcomes: "Sequence[ReplayOutcome]") -> None:
    """Print what jobs cost and gained beside local jobs: failures, hours at barriers, and the waits of those users."""
    from koalapy.experiments.replay.run import label_of

    rows = []
    for each in outcomes:
        if (busy := each.busy) is not None:
            hours = f"{busy.held_hours:,.1f}", f"{busy.used_hours:,.1f}"
            waits = map(rounded_duration, (busy.local_wait_mean_s, busy.local_wait_median_s, busy.local_wait_95_s))
            name = label_of(each.queue, each.max_overtakes), _placement(each)
            rows.append((*name, f"{busy.failed:,}", *hours, f"{busy.local_jobs:,}", *waits))
    if rows:
        print()
        columns = ("FAILED", "HELD [h]", "USED [h]", "LOCAL JOBS", "LOCAL WAIT", "MEDIAN", "95 %")
        output.table(("QUEUE", "PLACEMENT", *columns), rows)


def document(
    trace: Path, rules: "ReplayRules", found: "Survey", outcomes: "Sequence[ReplayOutcome]", logged: "Figures | None",
    out: Path, table: Path, local: "BackgroundRules | None",
) -> dict[str, Any]:  # fmt: skip
    """Return the document of `koala sim replay --json`. `out`: the directory of the outcomes' files."""
    jobs, work = _parts_left_out(found)
    return {
        "schema": "koala.replay/1",
        "trace": str(trace),
        "jobs": found.jobs,
        "left_out": dict(found.left_out),
        "left_out_of_jobs_that_ran": jobs,
        "left_out_of_processor_time": work,
        "changed": dict(found.changed),
        "grace": {"seconds": rules.grace.time / SECOND, "part": rules.grace.part},
        "clusters": dict(rules.sizes),
        "background": {"log": str(local.log), "load": local.load, "seed": local.seed} if local is not None else None,
        "table": str(table),
        "as_logged": asdict(logged) if logged is not None else None,
        "policies": [_policy(each, out) for each in outcomes],
    }


def rounded_duration(seconds: float) -> str:
    """Format a duration in seconds with its two largest units, such as `2d7h`."""
    return "".join(_UNIT.findall(format_duration(Duration(round(seconds) * SECOND)))[:2])


def _parts_left_out(found: "Survey") -> tuple[float, float]:
    """Return the part of the jobs that ran in the trace, and of their processor time, that the replay leaves out."""
    jobs, work = found.kept.jobs + found.lost.jobs, found.kept.work + found.lost.work
    return found.lost.jobs / max(jobs, 1), found.lost.work / max(work, 1)


def _bound(outcome: "ReplayOutcome") -> int | str:
    return "" if outcome.queue == "fcfs" else outcome.max_overtakes


def _placement(outcome: "ReplayOutcome") -> str:
    """Return the placement policy, and what jobs do that find no idle processors if there are local jobs."""
    return outcome.placement if outcome.busy is None else f"{outcome.placement}, {outcome.when_busy}"


def _busy(outcome: "ReplayOutcome") -> dict[str, Any] | None:
    """Return the settings and figures of a replay beside local jobs; None for another one."""
    if outcome.busy is None:
        return None
    ways = {"when_busy": outcome.when_busy, "barrier_wait_s": outcome.barrier_wait / SECOND, "race": outcome.race}
    return ways | asdict(outcome.busy)


def _cells(figures: "Figures") -> tuple[str, ...]:
    """Return the figures that fit into the lines of most terminals; the table on disk has more."""
    waits = (figures.wait_mean_s, figures.wait_median_s, figures.wait_95_s)
    return (
        *map(rounded_duration, waits), f"{figures.bounded_slowdown:.4g}", f"{100 * figures.utilisation:.1f}",
        rounded_duration(figures.makespan_s), f"{figures.backlog_mean:,.0f}",
    )  # fmt: skip


def _cells_by_size(figures: "Figures") -> tuple[str, ...]:
    """Return the mean waits of small, medium and large jobs; `-` if no such job has run."""
    classes = (
        (figures.small_ran, figures.small_wait_mean_s),
        (figures.medium_ran, figures.medium_wait_mean_s),
        (figures.large_ran, figures.large_wait_mean_s),
    )
    return tuple(rounded_duration(wait) if ran else "-" for ran, wait in classes)


def _policy(outcome: "ReplayOutcome", out: Path) -> dict[str, Any]:
    return {
        "queue": outcome.queue,
        "max_overtakes": None if outcome.queue == "fcfs" else outcome.max_overtakes,
        "placement": outcome.placement,
        **asdict(outcome.figures),
        "busy": _busy(outcome),
        "engine_calls": outcome.calls,
        "never_started": [{"jobs": count, "reason": reason} for reason, count in outcome.reasons.items()],
        "files": [str(out / name) for name in outcome.files],
    }
