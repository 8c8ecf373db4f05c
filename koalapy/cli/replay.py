"""`koala sim replay`: replays the jobs of a trace on a grid's simulated clusters."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from koalapy.cli import options, output
from koalapy.cli.replay_report import document, print_outcomes, print_survey, rounded_duration, write_table
from koalapy.cli.replay_terms import WrittenOptions, read_clusters, rows_of_policies, terms_of, without_equal_placements
from koalapy.cli.signals import interruptible, uninterrupted
from koalapy.common.extras import need_extra
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings

if TYPE_CHECKING:  # numpy and matplotlib are imported on use: other commands start without them
    from koalapy.experiments.replay.comparison import Figures
    from koalapy.experiments.replay.jobs import Survey, Terms
    from koalapy.experiments.replay.run import ReplayOutcome, ReplayTask


class By(StrEnum):
    """The property of a job that gives it its colour in the figure."""

    USER = "user"
    GROUP = "group"
    QUEUE = "queue"


_SILENCE_S = 60.0  # the longest time between two lines of a run without a terminal
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

    With --journal, replay the events of a koalad instead. The exit status is 1 if the engine decides otherwise.
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
        written = WrittenOptions(sizes=size or [], sites=sites, most=jobs, lenient=lenient, grace=grace)
        terms = terms_of(trace, settings, known, written)
        found = _survey(trace, terms)
        print_survey(found)
        several, rows = rows, without_equal_placements(rows, terms)
        if len(rows) < len(several):
            why = "there is one cluster" if len(terms.sizes) == 1 else "every job has its cluster"
            output.print_message(f"All placement policies give the same schedule, since {why}: only one is run.")
        with _aside(out) as directory:
            bounds = len({each.max_overtakes for each in rows}) > 1
            tasks = [_task(trace, terms, found, chosen, directory, colour, bounds) for chosen in rows]
            outcomes = _outcomes(tasks, found.jobs, workers or os.cpu_count() or 1)
            logged = _logged(found)
            table = write_table(outcomes, logged, directory / f"{_stem(trace)}.csv")
            files = _publish([table.name, *(name for each in outcomes for name in each.files)], directory, out)
    if as_json:
        output.print_json(document(trace, terms, found, outcomes, logged, out, files[0]))
    else:
        print_outcomes(outcomes, logged, terms.sizes)
        if max_overtakes is None and any(each.queue != "fcfs" for each in outcomes):
            passed = counted_as(settings.max_overtakes, "time")
            output.print_message(f"Nobody is passed more than {passed}; vary that with --max-overtakes.")
        output.print_message(f"Written: {', '.join(str(file) for file in files)}.")


def _refuse_beside_journal(context: typer.Context) -> None:
    """Raises BadParameter for options that do not apply to a journal, which has its own clusters and policies."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if wrong := [name for name in given if name not in ("journal", "as_json")]:
        names = ", ".join("TRACE" if name == "trace" else f"--{name.replace('_', '-')}" for name in wrong)
        raise typer.BadParameter(f"Leave out {names}: a journal has its own clusters and policies.")


def _task(
    trace: Path, terms: "Terms", found: "Survey", settings: Settings, directory: Path, colour: By, bounds: bool
) -> "ReplayTask":
    """Return the task of one run. `bounds`: whether the files' names contain the bound of overtakes."""
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


# ---- progress


def _survey(trace: Path, terms: "Terms") -> "Survey":
    from koalapy.experiments.replay.jobs import survey

    if not output.errors.is_terminal:
        output.print_message(f"reading {trace}")
        return survey(trace, terms)
    with output.errors.status(f"reading {trace}"):
        return survey(trace, terms)


def _logged(found: "Survey") -> "Figures | None":
    """Return the figures of the trace itself; None if it has no waits."""
    from koalapy.experiments.replay.comparison import figures

    return figures(found.logged) if len(found.logged) else None


def _outcomes(tasks: "Sequence[ReplayTask]", jobs: int, workers: int) -> "list[ReplayOutcome]":
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


# ---- files


@contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """Yield a directory in which files wait until all of them are complete. It is removed at the end.

    Raises RequestError if a file cannot be written.
    """
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
