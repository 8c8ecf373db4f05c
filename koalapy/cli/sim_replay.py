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
from typing import TYPE_CHECKING, Annotated

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
from koalapy.model.settings import Settings
from koalapy.model.textfile.words import use_known

if TYPE_CHECKING:  # numpy, matplotlib and the engine are imported on use: other commands start without them
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
        names = [cluster.name for cluster in settings.clusters]
        sites = (site or []) if pin or site else None
        rules = rules_of(names, known, header(trace), size or [], sites, most=jobs, lenient=lenient, grace=grace)
        found = report.survey(trace, rules)
        report.print_survey(found)
        several, rows = rows, _without_equal_placements(rows, rules)
        if len(rows) < len(several):
            why = "there is one cluster" if len(rules.sizes) == 1 else "every job has its cluster"
            output.print_message(f"All placement policies give the same schedule, since {why}: only one is run.")
        with _temporary_directory(out) as directory:
            bounds = len({each.max_overtakes for each in rows}) > 1
            tasks = [_task(trace, rules, found, chosen, directory, colour, bounds) for chosen in rows]
            outcomes = report.run_all(tasks, found.jobs, workers or os.cpu_count() or 1)
            logged = report.as_logged(found)
            table = report.write_table(outcomes, logged, directory / f"{_stem(trace)}.csv")
            files = _publish([table.name, *(name for each in outcomes for name in each.files)], directory, out)
    if as_json:
        output.print_json(report.document(trace, rules, found, outcomes, logged, out, files[0]))
    else:
        report.print_outcomes(outcomes, logged, rules.sizes)
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
    trace: Path, rules: "ReplayRules", found: "Survey", settings: Settings, directory: Path, colour: By, bounds: bool
) -> "ReplayTask":
    """Return the task of one run. `bounds`: whether the files' names contain the bound of overtakes."""
    from koalapy.experiments.replay.run import ReplayTask
    from koalapy.runtime.load_policies import policies

    queue = f"{settings.queue}-{settings.max_overtakes}" if bounds and settings.queue != "fcfs" else settings.queue
    return ReplayTask(
        trace=trace,
        rules=rules,
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
