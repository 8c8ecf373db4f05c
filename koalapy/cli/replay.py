"""`koala sim replay`: what if the jobs of a trace came to this grid."""

import csv
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from koalapy.cli import options, output
from koalapy.cli.replay_terms import WrittenOptions, read_clusters, rows_of_policies, terms_of, without_equal_placements
from koalapy.cli.signals import interruptible, uninterrupted
from koalapy.extras import need_extra
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.model.units import SECOND, Duration, format_duration

if TYPE_CHECKING:  # numpy and matplotlib are imported where they are needed: other commands start without them
    from koalapy.experiments.replay.comparison import Figures
    from koalapy.experiments.replay.jobs import Survey, Terms
    from koalapy.experiments.replay.run import ReplayOutcome, ReplayTask


class By(StrEnum):
    """The property that has a colour of its own in the figure."""

    USER = "user"
    GROUP = "group"
    QUEUE = "queue"


_AS_LOGGED = "as logged"
_MUCH = 0.05  # of the jobs or of their work: a replay without it is of another trace
_SILENCE_S = 60.0  # at most, where nobody sees a bar
_UNIT = re.compile(r"\d+[a-z]")
_SUFFIXES = (".gz", ".xz", ".bz2", ".swf", ".gwf", ".json")

TracePath = Annotated[
    Path | None,
    typer.Argument(
        metavar="TRACE", help="SWF or GWF, also .gz, .xz, .bz2; or `koala jobs --json`, kept.", show_default=False
    ),
]
JournalPath = Annotated[
    Path | None,
    typer.Option(
        "--journal", metavar="FILE", help="A journal of `koala bugreport`: check that koalad's decisions are repeated."
    ),
]
GridName = Annotated[
    str | None, typer.Option("--grid", "-g", metavar="FILE", help="Grid file, or a system of configs/systems.")
]
Sizes = Annotated[
    list[str] | None, typer.Option("--size", metavar="CLUSTER=N", help="Processors of a cluster; repeat it.")
]
Measured = Annotated[
    Path | None, typer.Option("--sizes", metavar="FILE", help="`koala clusters --json`, kept: what koalad measured.")
]
Queues = Annotated[str | None, typer.Option("--queue", metavar="P,P…", help="Queueing policies, instead of its own.")]
Placements = Annotated[
    str | None, typer.Option("--placement", metavar="P,P…", help="Placement policies, instead of its own.")
]
Overtakes = Annotated[
    str | None,
    typer.Option(
        "--max-overtakes", metavar="N,N…", help="How often others may pass a waiting job, instead of its own."
    ),
]
Grace = Annotated[
    str | None, typer.Option("--grace", metavar="TIME|N%", help="Time after their walltime when jobs are ended.")
]
Most = Annotated[int | None, typer.Option("--jobs", min=1, help="The most jobs to replay.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Skip invalid jobs, and count them.")]
Pin = Annotated[bool, typer.Option("--pin", help="Run each job on the cluster of its site.")]
Sites = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="SITE=CLUSTER", help="With --pin: the cluster of a site; repeat it."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for table, schedules and pictures.")]
Colour = Annotated[By, typer.Option("--colour", help="The property that has a colour of its own in the pictures.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of processes. Default: one for each processor.")
]


def replay(
    context: typer.Context,
    trace: TracePath = None,
    journal: JournalPath = None,
    grid: GridName = None,
    size: Sizes = None,
    measured: Measured = None,
    queue: Queues = None,
    placement: Placements = None,
    max_overtakes: Overtakes = None,
    grace: Grace = None,
    jobs: Most = None,
    lenient: Lenient = False,
    pin: Pin = False,
    site: Sites = None,
    out: Out = Path("results"),
    colour: Colour = By.USER,
    workers: Workers = None,
    as_json: options.Json = False,
) -> None:
    """Replay a trace on a grid's clusters, simulated: a table, schedules (SWF), pictures (PNG, SVG). The same trace
    and options give the same bytes.

    With --journal, replay what a koalad was given through the same engine instead. Status 1: it decides otherwise.
    """
    if journal is not None:
        _refuse_beside_journal(context)
        from koalapy.cli.replay_journal import replay_journal

        with output.errors_reported(), interruptible():
            raise typer.Exit(replay_journal(journal, as_json))
    if trace is None:
        raise typer.BadParameter("Give a TRACE, or --journal FILE.", param_hint="TRACE")
    with output.errors_reported(), interruptible():
        need_extra("experiments", "A replay")
        settings, known = read_clusters(grid, measured)
        rows = rows_of_policies(settings, queue, placement, max_overtakes)
        sites = (site or []) if pin or site else None
        said = WrittenOptions(sizes=size or [], sites=sites, most=jobs, lenient=lenient, grace=grace)
        terms = terms_of(trace, settings, known, said)
        found = _survey(trace, terms)
        _print_survey(found)
        several, rows = rows, without_equal_placements(rows, terms)
        if len(rows) < len(several):
            why = "there is one cluster" if len(terms.sizes) == 1 else "every job has its cluster"
            output.print_message(f"All placement policies give the same schedule, since {why}: only one is run.")
        with _aside(out) as directory:
            bounds = len({each.max_overtakes for each in rows}) > 1
            tasks = [_task(trace, terms, found, chosen, directory, colour, bounds) for chosen in rows]
            outcomes = _outcomes(tasks, found.jobs, workers or os.cpu_count() or 1)
            logged = _logged(found)
            table = _write_table(outcomes, logged, directory / f"{_stem(trace)}.csv")
            files = _publish([table.name, *(name for each in outcomes for name in each.files)], directory, out)
    if as_json:
        output.print_json(_document(trace, terms, found, outcomes, logged, out, files[0]))
    else:
        _print(outcomes, logged, terms.sizes)
        if max_overtakes is None and any(each.queue != "fcfs" for each in outcomes):
            output.print_message(
                f"Nobody is passed more than {settings.max_overtakes} times; vary that with --max-overtakes."
            )
        output.print_message(f"Written: {', '.join(str(file) for file in files)}.")


def _refuse_beside_journal(context: typer.Context) -> None:
    """Raises BadParameter for what says nothing to a journal, which has its own clusters and policies."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if wrong := [name for name in given if name not in ("journal", "as_json")]:
        names = ", ".join("TRACE" if name == "trace" else f"--{name.replace('_', '-')}" for name in wrong)
        raise typer.BadParameter(f"Leave out {names}: a journal has its own clusters and policies.")


def _task(
    trace: Path, terms: "Terms", found: "Survey", settings: Settings, directory: Path, colour: By, bounds: bool
) -> "ReplayTask":
    """`bounds`: the files' names have the bound of overtakes."""
    from koalapy.experiments.replay.run import ReplayTask
    from koalapy.runtime.load_policies import policies

    queue = f"{settings.queue}-{settings.max_overtakes}" if bounds and settings.queue != "fcfs" else settings.queue
    return ReplayTask(
        trace=trace,
        terms=terms,
        survey=found,
        settings=settings,
        policies=policies(settings),
        base=directory / f"{_stem(trace)}-{queue}-{settings.placement}",
        by=colour.value,
    )


def _stem(trace: Path) -> str:
    name = trace.name
    while (suffix := Path(name).suffix) in _SUFFIXES:
        name = name[: -len(suffix)]
    return name


# ---- how far it is


def _survey(trace: Path, terms: "Terms") -> "Survey":
    from koalapy.experiments.replay.jobs import survey

    if not output.errors.is_terminal:
        output.print_message(f"reading {trace}")
        return survey(trace, terms)
    with output.errors.status(f"reading {trace}"):
        return survey(trace, terms)


def _print_survey(found: "Survey") -> None:
    from koalapy.experiments.workloads.reading import counts_text

    output.print_message(f"{counted_as(f'{found.jobs:,}', 'job')} to replay")
    if found.left_out:
        output.print_message(f"left out: {counts_text(found.left_out)}")
    if found.lost.jobs:
        jobs, work = _lost(found)
        share = f"{100 * jobs:.3g} % of the jobs that ran, with {100 * work:.3g} % of their processor time"
        loud = max(jobs, work) >= _MUCH
        rest = ". The replay says little about this trace: check the sizes of the clusters (--size)." if loud else "."
        output.print_message(f"{'WARNING: left out are' if loud else 'left out are'} {share}{rest}")
    if found.changed:
        output.print_message(f"changed: {counts_text(found.changed)}")
    if not len(found.logged):
        output.print_message("no row as logged: the trace does not say how long its jobs waited")
    elif len(found.logged) < found.jobs:
        output.print_message(
            f"as logged: the waits of {len(found.logged):,} jobs, of the others the trace does not say them"
        )


def _lost(found: "Survey") -> tuple[float, float]:
    """The part of the jobs that ran in the trace, and that of their processor time, that is left out."""
    jobs, work = found.kept.jobs + found.lost.jobs, found.kept.work + found.lost.work
    return found.lost.jobs / max(jobs, 1), found.lost.work / max(work, 1)


def _logged(found: "Survey") -> "Figures | None":
    """The figures of the trace itself; None if it has no waits."""
    from koalapy.experiments.replay.comparison import figures

    return figures(found.logged) if len(found.logged) else None


def _outcomes(tasks: "Sequence[ReplayTask]", jobs: int, workers: int) -> "list[ReplayOutcome]":
    """The outcomes of all runs, in their order; their progress is shown meanwhile."""
    from koalapy.experiments.replay.run import side_by_side

    found: dict[int, ReplayOutcome] = {}
    with _shown([task.name for task in tasks], jobs) as tell:
        for index, over, outcome in side_by_side(tasks, workers):
            tell(index, over)
            if outcome is not None:
                found[index] = outcome
    return [found[index] for index in range(len(tasks))]


@contextmanager
def _shown(names: Sequence[str], jobs: int) -> Iterator[Any]:
    """A bar for each on a terminal, lines when piped."""
    if not output.errors.is_terminal:
        yield Lines(names, jobs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=output.errors.console) as bars:
        tasks = [bars.add_task(name, total=jobs) for name in names]
        yield lambda index, over: bars.update(tasks[index], completed=over)


class Lines:
    """A line for every tenth of a course's jobs, at least one a minute, and how long is left if it is long."""

    def __init__(self, names: Sequence[str], jobs: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._names, self._jobs, self._clock = names, jobs, clock
        self._begun: dict[int, tuple[float, int]] = {}  # when a course was first heard of, and how far it was
        self._said: dict[int, tuple[float, int]] = {}  # when it was last told of, and at which tenth

    def __call__(self, index: int, over: int) -> None:
        now, tenth = self._clock(), 10 * over // self._jobs
        began = self._begun.setdefault(index, (now, over))
        last, before = self._said.setdefault(index, (now, 0))
        if tenth > before or now - last >= _SILENCE_S:
            self._said[index] = now, tenth
            left = self._left(now - began[0], over - began[1], self._jobs - over)
            output.print_message(f"{self._names[index]}: {over:,} of {self._jobs:,} jobs{left}")

    def _left(self, took_s: float, done: int, left: int) -> str:
        seconds = took_s * left / done if done else 0.0
        return f", about {_span(seconds)} to go" if seconds >= _SILENCE_S else ""


# ---- what came of it


@contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A directory in which files wait until all of them are whole; nothing is left of it, whatever happens."""
    made, directory = not out.exists(), None
    try:
        out.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=".replay-", dir=out))
        yield directory
    except OSError as error:
        message = f"{error.filename or out} cannot be written: {error.strerror}."
        raise RequestError("unwritable", message, "Make room there, or name another place with --out.") from error
    finally:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
            if made and not any(out.iterdir()):
                out.rmdir()


def _publish(names: Sequence[str], directory: Path, out: Path) -> list[Path]:
    with uninterrupted():
        return [(directory / name).replace(out / name) for name in names]


def _write_table(outcomes: "Sequence[ReplayOutcome]", logged: "Figures | None", path: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {"queue": each.queue, "max_overtakes": _bound(each), "placement": each.placement} | asdict(each.figures)
        for each in outcomes
    ]
    if logged is not None:
        rows.append({"queue": _AS_LOGGED, "max_overtakes": "", "placement": ""} | asdict(logged))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)  # fmt: skip
    return path


def _bound(outcome: "ReplayOutcome") -> int | str:
    return "" if outcome.queue == "fcfs" else outcome.max_overtakes


def _print(outcomes: "Sequence[ReplayOutcome]", logged: "Figures | None", sizes: Mapping[str, int]) -> None:
    from koalapy.experiments.replay.comparison import MEDIUM, SMALL
    from koalapy.experiments.replay.run import label_of

    rows = [(label_of(each.queue, each.max_overtakes), each.placement, each.figures) for each in outcomes]
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
            name = f"{label_of(each.queue, each.max_overtakes)}, {each.placement}"
            output.print_message(f"{name}: {count:,} of the jobs never started. {reason}")


def _cells(figures: "Figures") -> tuple[str, ...]:
    """The figures that fit into the lines of most terminals; the table on disk has more."""
    waits = (figures.wait_mean_s, figures.wait_median_s, figures.wait_95_s)
    return (
        *map(_span, waits), f"{figures.bounded_slowdown:.4g}", f"{100 * figures.utilisation:.1f}",
        _span(figures.makespan_s), f"{figures.backlog_mean:,.0f}",
    )  # fmt: skip


def _cells_by_size(figures: "Figures") -> tuple[str, ...]:
    """Mean waits; `-` where no such job has run."""
    classes = (
        (figures.small_ran, figures.small_wait_mean_s),
        (figures.medium_ran, figures.medium_wait_mean_s),
        (figures.large_ran, figures.large_wait_mean_s),
    )
    return tuple(_span(wait) if ran else "-" for ran, wait in classes)


def _span(seconds: float) -> str:
    """To its two largest units, `2d7h`."""
    return "".join(_UNIT.findall(format_duration(Duration(round(seconds) * SECOND)))[:2])


def _document(
    trace: Path, terms: "Terms", found: "Survey", outcomes: "Sequence[ReplayOutcome]", logged: "Figures | None",
    out: Path, table: Path,
) -> dict[str, Any]:  # fmt: skip
    jobs, work = _lost(found)
    return {
        "schema": "koala.replay/1",
        "trace": str(trace),
        "jobs": found.jobs,
        "left_out": dict(found.left_out),
        "left_out_of_jobs_that_ran": jobs,
        "left_out_of_processor_time": work,
        "changed": dict(found.changed),
        "grace": {"seconds": terms.grace.time / SECOND, "part": terms.grace.part},
        "clusters": dict(terms.sizes),
        "table": str(table),
        "as_logged": asdict(logged) if logged is not None else None,
        "policies": [_policy(each, out) for each in outcomes],
    }


def _policy(outcome: "ReplayOutcome", out: Path) -> dict[str, Any]:
    return {
        "queue": outcome.queue,
        "max_overtakes": None if outcome.queue == "fcfs" else outcome.max_overtakes,
        "placement": outcome.placement,
        **asdict(outcome.figures),
        "engine_calls": outcome.calls,
        "never_started": [{"jobs": count, "reason": reason} for reason, count in outcome.reasons.items()],
        "files": [str(out / name) for name in outcome.files],
    }
