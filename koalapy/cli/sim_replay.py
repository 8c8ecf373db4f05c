"""`koala sim replay`: replays the jobs of a trace on simulated clusters, or the events of a koalad's journal."""

import gzip
import json
import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from koalapy import __version__
from koalapy.cli import options, output
from koalapy.cli.signals import interruptible, uninterrupted
from koalapy.cli.sim_replay_report import document, print_outcomes, print_survey, rounded_duration, write_table
from koalapy.common.extras import need_extra
from koalapy.common.locations import Locations
from koalapy.common.registry import registered
from koalapy.config import engine_settings
from koalapy.koalad.gridfile import read_grid_file
from koalapy.model.cluster import ClusterSettings
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.model.textfile.words import use_known
from koalapy.model.units import format_instant, parse_duration

if TYPE_CHECKING:  # numpy, matplotlib and the engine are imported on use: other commands start without them
    from koalapy.experiments.replay.comparison import Figures
    from koalapy.experiments.replay.jobs import Grace, ReplayRules, Survey
    from koalapy.experiments.replay.run import ReplayOutcome, ReplayTask
    from koalapy.journal.replay import Replayed
    from koalapy.policies.scavenging import ScavengingPolicies
    from koalapy.scheduler.schedule import Policies


class By(StrEnum):
    """The property of a job that gives it its colour in the figure."""

    USER = "user"
    GROUP = "group"
    QUEUE = "queue"


_SILENCE_S = 60.0  # the longest time between two lines of a run without a terminal
_SYSTEM_LINE = re.compile(r"^system:", re.MULTILINE)
_MOST_PROCESSORS, _MOST_OVERTAKES = 10_000_000, 1_000_000
_MOST_GRACE = 1000  # in per cent
_GZIP = b"\x1f\x8b"
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
GraceTime = Annotated[
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
    grace: GraceTime = None,
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
        with output.errors_reported(), interruptible():
            raise typer.Exit(replay_journal(journal, as_json))
    if trace is None:
        raise typer.BadParameter("Give a TRACE, or --journal FILE.", param_hint="TRACE")
    with output.errors_reported(), interruptible():
        need_extra("experiments", "A replay")
        settings, known = _read_clusters(grid, measured)
        rows = _rows_of_policies(settings, queue, placement, max_overtakes)
        sites = (site or []) if pin or site else None
        written = _WrittenOptions(sizes=size or [], sites=sites, most=jobs, lenient=lenient, grace=grace)
        terms = _terms_of(trace, settings, known, written)
        found = _survey(trace, terms)
        print_survey(found)
        several, rows = rows, _without_equal_placements(rows, terms)
        if len(rows) < len(several):
            why = "there is one cluster" if len(terms.sizes) == 1 else "every job has its cluster"
            output.print_message(f"All placement policies give the same schedule, since {why}: only one is run.")
        with _temporary_directory(out) as directory:
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
    trace: Path, terms: "ReplayRules", found: "Survey", settings: Settings, directory: Path, colour: By, bounds: bool
) -> "ReplayTask":
    """Return the task of one run. `bounds`: whether the files' names contain the bound of overtakes."""
    from koalapy.experiments.replay.run import ReplayTask
    from koalapy.runtime.load_policies import policies

    queue = f"{settings.queue}-{settings.max_overtakes}" if bounds and settings.queue != "fcfs" else settings.queue
    return ReplayTask(
        trace=trace,
        rules=terms,
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


# ---- clusters, policies and jobs


class _WrittenOptions(NamedTuple):
    """The options as they were written. `sites`: None if jobs may run on any cluster."""

    sizes: Sequence[str]
    sites: Sequence[str] | None
    most: int | None
    lenient: bool
    grace: str | None


def _read_clusters(name: str | None, measured: Path | None) -> tuple[Settings, dict[str, int]]:
    """Return the engine's settings of a grid file or a system, and the known sizes of its clusters, by name.

    `measured`: a file of `koala clusters --json`. Raises RequestError.
    """
    from koalapy.experiments.interop import catalogue
    from koalapy.experiments.replay import sizes

    more = sizes.measured(measured) if measured is not None else {}
    if name is not None and _is_system(name, list(catalogue.systems())):
        system = catalogue.system(name)
        clusters = tuple(ClusterSettings(name=cluster, batch="slurm") for cluster in system.clusters)
        return Settings(clusters=clusters), {cluster: system.processors[cluster] for cluster in system.clusters} | more
    path = Locations.of(name).grid_file
    if path is None:
        message = f"There is neither a file nor a system {name}."
        raise RequestError("no_grid_file", message, "Give the path of a grid file with --grid.")
    file = read_grid_file(path)
    return engine_settings(file), {name: each.slots for name, each in file.clusters.items() if each.slots} | more


def _rows_of_policies(
    settings: Settings, queue: str | None, placement: str | None, overtakes: str | None
) -> list[Settings]:
    """Return the settings with every queueing policy, bound of overtakes and placement policy. FCFS has no bound.

    Raises RequestError for an unregistered policy, and for bounds that are invalid or that no policy has.
    """
    queues = _chosen(queue, settings.queue, "queueing")
    placements = _chosen(placement, settings.placement, "placement")
    bounds = [settings.max_overtakes] if overtakes is None else _bounds(overtakes)
    if overtakes is not None and queues == ["fcfs"]:
        message = "--max-overtakes changes nothing: under fcfs nobody passes anybody."
        raise RequestError("no_bound", message, "Add another policy, as with --queue fcfs,fpfs, or leave it out.")
    queued = [(name, bound) for name in queues for bound in (bounds[:1] if name == "fcfs" else bounds)]
    return [
        replace(settings, queue=name, max_overtakes=bound, placement=other)
        for (name, bound), other in product(queued, placements)
    ]


def _without_equal_placements(rows: list[Settings], terms: "ReplayRules") -> list[Settings]:
    """Return the rows, but only one of those that differ only in placement if there is no placement to choose."""
    if len(terms.sizes) > 1 and terms.sites is None:
        return rows
    return list({(each.queue, each.max_overtakes): each for each in reversed(rows)}.values())[::-1]


def _terms_of(trace: Path, settings: Settings, known: dict[str, int], options: _WrittenOptions) -> "ReplayRules":
    """Return the terms of a replay. Raises RequestError for invalid options, and for a cluster of unknown size."""
    from koalapy.experiments.replay.jobs import ReplayRules, header
    from koalapy.experiments.replay.sizes import sites, sizes

    names = [cluster.name for cluster in settings.clusters]
    by_name, comments = header(trace)
    counts = processors_of(options.sizes)
    return ReplayRules(
        sizes=sizes(names, counts, known, by_name),
        sites=None if options.sites is None else sites(names, dict(_assigned(options.sites, "--site")), comments),
        most=options.most,
        lenient=options.lenient,
        grace=_grace(options.grace),
    )


def processors_of(written: Sequence[str]) -> dict[str, int]:
    """Return the sizes of `--size NAME=N`, by name. Raises RequestError."""
    return {name: _count(name, words) for name, words in _assigned(written, "--size")}


def _is_system(name: str, known: Sequence[str]) -> bool:
    path = Path(name)
    if not path.is_file():
        return name in known
    return name.endswith((".yaml", ".yml")) and bool(_SYSTEM_LINE.search(path.read_text(errors="replace")))


def _chosen(words: str | None, default: str, what: str) -> list[str]:
    if words is None:
        return [default]
    names = list(dict.fromkeys(word.strip() for word in words.split(",")))
    known = list(registered(f"koalapy.{what}"))
    for name in names:
        if name not in known:
            raise RequestError("no_such_policy", f"There is no {what} policy {name!r}.", use_known(name, known))
    return names


def _assigned(written: Sequence[str], option: str) -> Iterator[tuple[str, str]]:
    for each in written:
        name, sign, value = each.partition("=")
        if not (name and sign and value):
            raise RequestError("bad_option", f"{option} {each} is not NAME=VALUE.", f"Write {option} NAME=VALUE.")
        yield name, value


def _bounds(words: str) -> list[int]:
    found = [word.strip() for word in words.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) <= _MOST_OVERTAKES for word in found):
        message = f"--max-overtakes {words} is not a list of whole numbers from 0 to {_MOST_OVERTAKES:,}."
        raise RequestError("bad_option", message, "Write --max-overtakes 20,200.")
    return list(dict.fromkeys(map(int, found)))


def _grace(words: str | None) -> "Grace":
    from koalapy.experiments.replay.jobs import Grace

    if words is None:
        return Grace()
    try:
        if words.endswith("%"):
            percent = float(words[:-1])
            if not 0 <= percent <= _MOST_GRACE:
                raise ValueError
            return Grace(part=percent / 100)
        return Grace(time=parse_duration(words))
    except ValueError:
        message = f"--grace {words} is neither a duration nor a percentage from 0 to {_MOST_GRACE}."
        raise RequestError("bad_option", message, "Write --grace 2m, or --grace 10%.") from None


def _count(name: str, words: str) -> int:
    if not (words.isascii() and words.isdecimal() and len(words) < 10 and 0 < int(words) <= _MOST_PROCESSORS):
        raise RequestError(
            "bad_size", f"--size {name}={words} is not a number of processors.", f"Write --size {name}=64."
        )
    return int(words)


# ---- progress


def _survey(trace: Path, terms: "ReplayRules") -> "Survey":
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
def _temporary_directory(out: Path) -> Iterator[Path]:
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


# ---- a journal in place of a trace


def replay_journal(path: Path, as_json: bool) -> int:
    """Replay the journal, and print the result. Return 1 if a decision differs, else 0. Raises RequestError."""
    from koalapy.journal.replay import replay as repeat
    from koalapy.journal.text import load

    written = _read_journal(path)
    version = str(written.get("koalapy"))
    taken = load(written, _policies_of)
    if version != __version__:
        output.print_message(f"The journal is of koalapy {version}; this is {__version__}.")
    found = repeat(taken)
    if as_json:
        output.print_json(_journal_document(path, version, found))
    else:
        _print_replayed(found)
    return 0 if found.difference is None else 1


def _read_journal(path: Path) -> Any:
    """Return the document of a journal. Raises RequestError if the file has none."""
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        message = f"{path} cannot be read as a journal: {getattr(error, 'strerror', None) or error}."
        raise RequestError("no_journal", message, "Give the path of a journal, .json or .json.gz.") from error


def _policies_of(settings: Settings) -> "tuple[Policies, ScavengingPolicies]":
    from koalapy.runtime.load_policies import policies, scavenging_policies

    return policies(settings), scavenging_policies(settings)


def _print_replayed(found: "Replayed") -> None:
    done = f"{counted_as(f'{found.events:,}', 'event')}, {counted_as(f'{found.commands:,}', 'command')}"
    done += f" and {counted_as(f'{found.words:,}', 'hint')}"
    if found.difference is not None:
        each = found.difference
        output.out.print(f"Batch {each.batch:,} ({format_instant(each.now)}) differs, after {done} as in the journal.")
        output.out.print(f"expected: {each.expected}")
        output.out.print(f"got:      {each.got}")
    elif found.failure:
        output.out.print(f"Batch {found.batches:,} fails as it did there: {found.failure}. Before it: {done}.")
    else:
        batches = counted_as(f"{found.batches:,}", "batch", "batches")
        output.out.print(f"{batches} replayed: {done}, all as in the journal.")


def _journal_document(path: Path, version: str, found: "Replayed") -> dict[str, Any]:
    difference = found.difference
    document = None
    if difference is not None:
        document = {
            "batch": difference.batch, "at": format_instant(difference.now), "expected": difference.expected,
            "got": difference.got,
        }  # fmt: skip
    return {
        "schema": "koala.journal-replay/1",
        "journal": str(path),
        "koalapy": version,
        "batches": found.batches,
        "events": found.events,
        "commands": found.commands,
        "hints": found.words,
        "failure": found.failure or None,
        "difference": document,
    }
