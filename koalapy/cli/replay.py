"""`koala sim replay`: what if the jobs of a trace came to this grid."""

import csv
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from koalapy.cli import options, output
from koalapy.cli.experiments import need_matplotlib
from koalapy.cli.replay_terms import Said, pairs_of_policies, read_clusters, terms_of
from koalapy.cli.signals import interruptible, uninterrupted
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.model.units import SECOND, Duration, format_duration

if TYPE_CHECKING:  # numpy and matplotlib are imported where they are needed: other commands start without them
    from koalapy.simulation.replay.course import Course, Outcome
    from koalapy.simulation.replay.jobs import Survey, Terms


class By(StrEnum):
    """What has a colour of its own."""

    USER = "user"
    GROUP = "group"
    QUEUE = "queue"


_SILENCE_S = 60.0  # at most, where nobody sees a bar
_UNIT = re.compile(r"\d+[a-z]")
_SUFFIXES = (".gz", ".xz", ".bz2", ".swf", ".gwf", ".json")

TracePath = Annotated[
    Path, typer.Argument(metavar="TRACE", help="SWF or GWF, also .gz, .xz, .bz2; or `koala jobs --json`, kept.")
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
Most = Annotated[int | None, typer.Option("--jobs", min=1, help="At most so many jobs.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Leave out what is wrong, and count it.")]
Pin = Annotated[bool, typer.Option("--pin", help="Jobs go to the cluster that their site is.")]
Sites = Annotated[
    list[str] | None, typer.Option("--site", metavar="SITE=CLUSTER", help="With --pin: what a site is; repeat it.")
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where table, schedules and pictures go.")]
Colour = Annotated[By, typer.Option("--colour", help="Whose jobs have a colour of their own in the pictures.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes. Default: one a processor.")]


def replay(
    trace: TracePath,
    grid: GridName = None,
    size: Sizes = None,
    measured: Measured = None,
    queue: Queues = None,
    placement: Placements = None,
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
    and options give the same bytes."""
    with output.told(), interruptible():
        need_matplotlib("A replay draws its pictures")
        settings, known = read_clusters(grid, measured)
        pairs = pairs_of_policies(settings, queue, placement)
        said = Said(sizes=size or [], sites=(site or []) if pin or site else None, most=jobs, lenient=lenient)
        terms = terms_of(trace, settings, known, said)
        found = _survey(trace, terms)
        _tell_survey(found)
        with _aside(out) as directory:
            courses = [_course(trace, terms, found, chosen, directory, colour) for chosen in pairs]
            outcomes = _outcomes(courses, found.jobs, workers or os.cpu_count() or 1)
            table = _write_table(outcomes, directory / f"{_stem(trace)}.csv")
            files = _publish([table.name, *(name for each in outcomes for name in each.files)], directory, out)
    if as_json:
        output.print_json(_document(trace, terms, found, outcomes, out, files[0]))
    else:
        _print(outcomes)
        output.say(f"Written: {', '.join(str(file) for file in files)}.")


def _course(trace: Path, terms: "Terms", found: "Survey", settings: Settings, directory: Path, colour: By) -> "Course":
    from koalapy.runtime.chosen import policies
    from koalapy.simulation.replay.course import Course

    return Course(
        trace=trace,
        terms=terms,
        survey=found,
        settings=settings,
        policies=policies(settings),
        base=directory / f"{_stem(trace)}-{settings.queue}-{settings.placement}",
        by=colour.value,
    )


def _stem(trace: Path) -> str:
    name = trace.name
    while (suffix := Path(name).suffix) in _SUFFIXES:
        name = name[: -len(suffix)]
    return name


# ---- how far it is


def _survey(trace: Path, terms: "Terms") -> "Survey":
    from koalapy.simulation.replay.jobs import survey

    if not output.errors.is_terminal:
        output.say(f"reading {trace}")
        return survey(trace, terms)
    with output.errors.status(f"reading {trace}"):
        return survey(trace, terms)


def _tell_survey(found: "Survey") -> None:
    from koalapy.simulation.workloads.reading import told

    output.say(f"{found.jobs:,} jobs to replay")
    if found.left_out:
        output.say(f"left out: {told(found.left_out)}")
    if found.moved:
        output.say(f"changed: {told(found.moved)}")


def _outcomes(courses: "Sequence[Course]", jobs: int, workers: int) -> "list[Outcome]":
    """Of all courses, in their order; how far they are is shown meanwhile."""
    from koalapy.simulation.replay.course import side_by_side

    found: dict[int, Outcome] = {}
    with _shown([course.name for course in courses], jobs) as tell:
        for index, over, outcome in side_by_side(courses, workers):
            tell(index, over)
            if outcome is not None:
                found[index] = outcome
    return [found[index] for index in range(len(courses))]


@contextmanager
def _shown(names: Sequence[str], jobs: int) -> Iterator[Any]:
    """A bar for each on a terminal, lines when piped."""
    if not output.errors.is_terminal:
        yield Lines(names, jobs)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=output.errors) as bars:
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
            output.say(f"{self._names[index]}: {over:,} of {self._jobs:,} jobs{left}")

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


def _write_table(outcomes: "Sequence[Outcome]", path: Path) -> Path:
    rows = [{"queue": each.queue, "placement": each.placement} | asdict(each.figures) for each in outcomes]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()}
                         for row in rows)  # fmt: skip
    return path


def _print(outcomes: "Sequence[Outcome]") -> None:
    columns = ("QUEUE", "PLACEMENT", "WAIT", "MEDIAN", "95 %", "SLOWDOWN", "USED %", "MAKESPAN", "BACKLOG")
    output.table(columns, [_cells(each) for each in outcomes])
    for each in outcomes:
        name = f"{each.queue}, {each.placement}"
        if each.figures.killed:
            output.say(f"{name}: {each.figures.killed:,} of the jobs were ended by their walltime.")
        for reason, count in each.reasons.items():
            output.say(f"{name}: {count:,} of the jobs never started. {reason}")


def _cells(outcome: "Outcome") -> tuple[str, ...]:
    """What fits into the lines of most terminals: the table on disk has more."""
    figures = outcome.figures
    waits = (figures.wait_mean_s, figures.wait_median_s, figures.wait_95_s)
    return (
        outcome.queue, outcome.placement, *map(_span, waits), f"{figures.bounded_slowdown:.4g}",
        f"{100 * figures.utilisation:.1f}", _span(figures.makespan_s), f"{figures.backlog_mean:,.0f}",
    )  # fmt: skip


def _span(seconds: float) -> str:
    """To its two largest units, `2d7h`."""
    return "".join(_UNIT.findall(format_duration(Duration(round(seconds) * SECOND)))[:2])


def _document(
    trace: Path, terms: "Terms", found: "Survey", outcomes: "Sequence[Outcome]", out: Path, table: Path
) -> dict[str, Any]:
    return {
        "schema": "koala.replay/1",
        "trace": str(trace),
        "jobs": found.jobs,
        "left_out": dict(found.left_out),
        "changed": dict(found.moved),
        "clusters": dict(terms.sizes),
        "table": str(table),
        "policies": [_policy(each, out) for each in outcomes],
    }


def _policy(outcome: "Outcome", out: Path) -> dict[str, Any]:
    return {
        "queue": outcome.queue,
        "placement": outcome.placement,
        **asdict(outcome.figures),
        "engine_calls": outcome.calls,
        "never_started": [{"jobs": count, "reason": reason} for reason, count in outcome.reasons.items()],
        "files": [str(out / name) for name in outcome.files],
    }
