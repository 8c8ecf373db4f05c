"""`koala sim replay`: replays the jobs of a trace on simulated clusters, or the events of a koalad's journal."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from koalapy.cli import options, output
from koalapy.cli import sim_replay_report as report
from koalapy.cli.signals import interruptible, uninterrupted
from koalapy.cli.sim_journal import replay_journal
from koalapy.cli.sim_logs import Lenient
from koalapy.cli.sim_run import Workers
from koalapy.common.extras import need_extra
from koalapy.common.locations import Locations
from koalapy.common.registry import registered
from koalapy.config import engine_settings
from koalapy.koalad.gridfile import read_grid_file
from koalapy.model.cluster import ClusterSettings
from koalapy.model.counts import counted_as
from koalapy.model.errors import RequestError
from koalapy.model.request import WhenBusy
from koalapy.model.settings import MOST_QUEUES, Settings
from koalapy.model.textfile.words import use_known
from koalapy.model.units import Duration, format_duration, parse_duration

if TYPE_CHECKING:  # numpy, matplotlib and the engine are imported on use: other commands start without them
    from koalapy.experiments.replay.background import BackgroundRules
    from koalapy.experiments.replay.jobs import Survey
    from koalapy.experiments.replay.rules import ReplayRules
    from koalapy.experiments.replay.run import ReplayTask


class By(StrEnum):
    """The property of a job that gives it its colour in the figure."""

    USER = "user"
    GROUP = "group"
    QUEUE = "queue"


_SYSTEM_LINE = re.compile(r"^system:", re.MULTILINE)
_MOST_OVERTAKES = 1_000_000
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
Log = Annotated[
    Path | None, typer.Option("--background", metavar="LOG", help="Jobs of other users, from a log such as TRACE.")
]
Load = Annotated[
    float | None,
    typer.Option("--background-load", metavar="X", help="Their load on each cluster, 1 for all of it; else as logged."),
]
Draw = Annotated[int, typer.Option("--seed", min=0, help="The seed of the places in LOG where they begin.")]
Busy = Annotated[
    str | None,
    typer.Option("--when-busy", metavar="W,W…", help="wait, queue: what jobs do that find no idle processors."),
]
Waits = Annotated[
    str | None, typer.Option("--barrier-wait", metavar="TIME,…", help="barrier.wait of jobs in batch queues.")
]
Races = Annotated[
    str | None, typer.Option("--race", metavar="N,N…", help="Queues of other clusters in which a component may be.")
]
Most = Annotated[int | None, typer.Option("--jobs", min=1, help="The most jobs to replay.")]
Pin = Annotated[bool, typer.Option("--pin", help="Run each job on the cluster of its site.")]
Sites = Annotated[
    list[str] | None,
    typer.Option("--site", metavar="SITE=CLUSTER", help="With --pin: the cluster of a site; repeat it."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for table, schedules and pictures.")]
Colour = Annotated[By, typer.Option("--colour", help="The property that has a colour of its own in the pictures.")]


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
    background: Log = None,
    background_load: Load = None,
    seed: Draw = 1,
    when_busy: Busy = None,
    barrier_wait: Waits = None,
    race: Races = None,
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
        from koalapy.experiments.replay.jobs import header
        from koalapy.experiments.replay.rules import rules_of

        settings, known = _read_clusters(grid, measured)
        rows = _rows_of_policies(settings, queue, placement, max_overtakes)
        if background is None:
            _refuse_without_background(context)
        names = [cluster.name for cluster in settings.clusters]
        sites = (site or []) if pin or site else None
        rules = rules_of(names, known, header(trace), size or [], sites, most=jobs, lenient=lenient, grace=grace)
        found = report.survey(trace, rules)
        report.print_survey(found)
        local = report.background(background, background_load, seed, rules) if background is not None else None
        several, rows = rows, _without_equal_placements(rows, rules)
        if len(rows) < len(several):
            why = "there is one cluster" if len(rules.sizes) == 1 else "every job has its cluster"
            output.print_message(f"All placement policies give the same schedule, since {why}: only one is run.")
        with _temporary_directory(out) as directory:
            bounds = len({each.max_overtakes for each in rows}) > 1
            variants = _variants(rows, when_busy, barrier_wait, race)
            if barrier_wait is not None and not found.several:
                output.print_message("--barrier-wait changes nothing: no job has several components.")
            tasks = [_task(trace, rules, found, chosen, directory, colour, bounds, local) for chosen in variants]
            outcomes = report.run_all(tasks, found.jobs, workers or os.cpu_count() or 1)
            logged = report.as_logged(found)
            table = report.write_table(outcomes, logged, directory / f"{_stem(trace)}.csv")
            files = _publish([table.name, *(name for each in outcomes for name in each.files)], directory, out)
    if as_json:
        output.print_json(report.document(trace, rules, found, outcomes, logged, out, files[0], local))
    else:
        report.print_outcomes(outcomes, logged, rules.sizes)
        report.print_busy(outcomes)
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


def _refuse_without_background(context: typer.Context) -> None:
    """Raises BadParameter for options that change nothing on clusters without other jobs."""
    for name in ("background_load", "seed", "when_busy", "barrier_wait", "race"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            what = "It changes nothing without jobs of other users: add --background LOG."
            raise typer.BadParameter(what, param_hint=f"--{name.replace('_', '-')}")


class Variant(NamedTuple):
    """The settings of one run, and what its jobs do that find no idle processors."""

    settings: Settings
    when_busy: WhenBusy


def _variants(
    rows: Sequence[Settings], when_busy: str | None, barrier_wait: str | None, race: str | None
) -> list[Variant]:
    """Return the variants of each row: one for jobs that wait; for those in queues, one for each wait and race.

    Without `when_busy`, jobs enter queues if there are options of that. Raises RequestError.
    """
    words = [each.strip() for each in (when_busy or ("queue" if barrier_wait or race else "wait")).split(",")]
    known = [str(each) for each in WhenBusy]
    for word in words:
        if word not in known:
            raise RequestError("bad_option", f"--when-busy has {word!r}.", use_known(word, known))
    if (barrier_wait is not None or race is not None) and "queue" not in words:
        option = "--race" if barrier_wait is None else "--barrier-wait"
        message = f"{option} changes nothing: no job enters a batch queue."
        raise RequestError("bad_option", message, "Write --when-busy queue, or wait,queue.")
    waits = None if barrier_wait is None else _durations(barrier_wait)
    races = None if race is None else _races(race)
    found = []
    for row, word in product(rows, dict.fromkeys(words)):
        own = [row.barrier_wait], [row.race.most]
        several = (waits or own[0], races or own[1]) if word == WhenBusy.QUEUE else own
        for wait, most in product(*several):
            changed = replace(row, barrier_wait=wait, race=replace(row.race, most=most))
            found.append(Variant(changed, WhenBusy(word)))
    return found


def _races(words: str) -> list[int]:
    """Return the numbers of `--race`, each once. Raises RequestError."""
    found = [word.strip() for word in words.split(",")]
    if not all(word.isascii() and word.isdecimal() and 1 <= int(word) <= MOST_QUEUES for word in found):
        message = f"--race {words} is not a list of whole numbers from 1 to {MOST_QUEUES}."
        raise RequestError("bad_option", message, "Write --race 1,3.")
    return list(dict.fromkeys(map(int, found)))


def _durations(words: str) -> list[Duration]:
    """Return the durations of `--barrier-wait`, each once. Raises RequestError."""
    try:
        return list(dict.fromkeys(parse_duration(f"{each}s" if each == "0" else each) for each in words.split(",")))
    except ValueError as error:
        raise RequestError("bad_option", f"--barrier-wait: {error}.", "Write --barrier-wait 0,15m,1h.") from None


def _task(
    trace: Path, rules: "ReplayRules", found: "Survey", chosen: Variant, directory: Path, colour: By, bounds: bool,
    local: "BackgroundRules | None",
) -> "ReplayTask":  # fmt: skip
    """Return the task of one run. `bounds`: whether the files' names contain the bound of overtakes."""
    from koalapy.experiments.replay.run import ReplayTask
    from koalapy.runtime.load_policies import policies

    settings, when_busy = chosen
    queue = f"{settings.queue}-{settings.max_overtakes}" if bounds and settings.queue != "fcfs" else settings.queue
    name = f"{_stem(trace)}-{queue}-{settings.placement}"
    if local is not None:
        name = f"{name}-{when_busy}"
        if when_busy is WhenBusy.QUEUE:
            name += f"-{format_duration(settings.barrier_wait)}-race-{settings.race.most}"
    return ReplayTask(
        trace=trace,
        rules=replace(rules, when_busy=when_busy),
        survey=found,
        settings=settings,
        policies=policies(settings),
        base=directory / name,
        by=colour.value,
        local=local,
    )


def _stem(trace: Path) -> str:
    name = trace.name
    while (suffix := Path(name).suffix) in _SUFFIXES:
        name = name[: -len(suffix)]
    return name


# ---- clusters, policies and jobs


def _read_clusters(name: str | None, measured: Path | None) -> tuple[Settings, dict[str, int]]:
    """Return the engine's settings of a grid file or a system, and the known sizes of its clusters, by name.

    `measured`: a file of `koala clusters --json`. Raises RequestError.
    """
    from koalapy.experiments.interop import catalogue
    from koalapy.experiments.replay import rules

    more = rules.measured(measured) if measured is not None else {}
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


def _without_equal_placements(rows: list[Settings], rules: "ReplayRules") -> list[Settings]:
    """Return the rows, but only one of those that differ only in placement if there is no placement to choose."""
    if len(rules.sizes) > 1 and rules.sites is None:
        return rows
    return list({(each.queue, each.max_overtakes): each for each in reversed(rows)}.values())[::-1]


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


def _bounds(words: str) -> list[int]:
    found = [word.strip() for word in words.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) <= _MOST_OVERTAKES for word in found):
        message = f"--max-overtakes {words} is not a list of whole numbers from 0 to {_MOST_OVERTAKES:,}."
        raise RequestError("bad_option", message, "Write --max-overtakes 20,200.")
    return list(dict.fromkeys(map(int, found)))


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
