"""A year of a simulated grid, pruned each night: what store, memory and shared directories hold every ten days.

    tests/bench/run year [--jobs A_DAY] [--parameters A_DAY] [--keep DAYS] [--days DAYS] [--figure FILE]

koalad's driver, engine and SQLite store, the KCMs' machines and directories, wrappers and Launchers are the real ones;
nodes, batch systems, networks and file systems are simulated. No connection ever breaks: each KCM lives for the whole
year. Each day's jobs come at once, with one sweep. What the simulated world itself notes of the past is dropped each
night, so that memory is what koalapy needs. The figure is the largest part by which store, memory, or files and
directories have grown since the tenth night on which something was pruned.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _years import BATCH, EVERY, draw, memory_mb, options, store_mb
from koalapy_adapters import layout

from koalapy.link.reconnect import Timing
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import PruneRequested, WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.open import open_store
from koalapy.world.agenda import Agenda
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.cluster.cluster import SimCluster, cluster_plan_of
from koalapy.world.cluster.files import SHARED
from koalapy.world.koalad.host import Installation, SimKoalad
from koalapy.world.program_log import ProgramLog
from koalapy.world.random_sweeps import Parameter, sweep_of

BOUND = 1.1
SETTLED = 10  # nights of pruning until records of ended attempts, which stay for a week, are as many as they will be
RUNS = Duration(5 * SECOND)
CLUSTERS = {"alpha": "slurm", "beta": "sge"}
NODES, PROCESSORS = 16, 16  # of each cluster, and of each node
TIMING = Timing(ping=50.0, silence=150.0)  # the fewest pings that a KCM does not take for silence
JOB = Request(
    name="job",
    components=(
        ComponentRequest(
            processors=1, executable=EXECUTABLE, arguments=arguments_of(Behaviour(runs=RUNS)), walltime=HOUR
        ),
    ),
)


class Line(NamedTuple):
    """At the end of a day's pruning. `directories` are those of attempts; `files` all files and directories there."""

    day: int
    jobs: int  # ever, Launchers not counted
    parameters: int  # ever
    stored: int  # jobs and sweeps
    directories: int
    files: int
    store_mb: float
    memory_mb: float
    day_s: float


class Grid:
    """One koalad, and two clusters; nothing has happened yet."""

    def __init__(self, place: Path) -> None:
        self.agenda, self.program_log = Agenda(), ProgramLog()
        self.settings = Settings(
            clusters=tuple(ClusterSettings(name=name, batch=batch, poll=HOUR) for name, batch in CLUSTERS.items())
        )
        self.clusters = {
            each.name: SimCluster(
                self.agenda,
                1,
                cluster_plan_of(each, nodes=NODES, processors_per_node=PROCESSORS),
                each.name,
                self.program_log,
            )
            for each in self.settings.clusters
        }
        installed = Installation(
            settings=self.settings,
            policies=Policies(worst_fit, fpfs),
            open_store=lambda: open_store("sqlite", place),
            timing=TIMING,
        )
        self.koalad = SimKoalad(self.agenda, 1, installed, self.clusters)
        self.koalad.start()
        self.run(MINUTE)
        self.began = self.agenda.now

    def run(self, duration: Duration) -> None:
        self.run_until(Instant(self.agenda.now + duration))

    def run_until(self, until: Instant) -> None:
        self.agenda.run(until)

    def day(self, number: int, jobs: int, parameters: int) -> None:
        """Submit the day's jobs and its sweep, and let all of them end. Raises SystemExit if they do not."""
        self._send(*(WorkSubmitted(request=JOB, owner=f"user{each % 10}") for each in range(jobs)))
        if parameters:
            sweep = sweep_of([Parameter(Duration(SECOND))] * parameters, Duration(10 * MINUTE))
            self._send(WorkSubmitted(request=sweep, owner=f"user{number % 10}"))
        end = self.began + number * DAY
        while not self.koalad.quiescent:
            if self.agenda.now > end - HOUR:
                raise SystemExit(f"The jobs of day {number} were not over in time: nothing was measured.")
            self.run(MINUTE)
        self.run_until(Instant(end))

    def prune(self, before: Instant) -> None:
        """Remove all that was over by then, as the task `prune-history` does, pilots first."""
        while pilots := self.koalad.store.prunable_launchers(before, BATCH, JobId(0), True):
            self._send(PruneRequested(work=(), launchers=tuple(pilots), before=before, records=True))
            self.run(MINUTE)
        while jobs := self.koalad.store.prunable(before, BATCH, JobId(0), True):
            self._send(PruneRequested(work=tuple(jobs), before=before, records=True))
            self.run(MINUTE)

    def _send(self, *events: WorkSubmitted | PruneRequested) -> None:
        if not self.koalad.request(*events):
            raise SystemExit("koalad takes nothing: its store fails.")

    def drop_past(self) -> None:
        self.program_log.clear()
        for cluster in self.clusters.values():
            cluster.drop_past()

    @property
    def attempts(self) -> int:
        own = layout.instance_directory(SHARED, self.koalad.store.instance)
        return sum(
            name.startswith("k") for each in self.clusters.values() for name in each.shared.directories.get(own, {})
        )

    @property
    def files(self) -> int:
        return sum(len(each.shared.files) + len(each.shared.directories) for each in self.clusters.values())


def year(jobs: int, parameters: int, kept: int, days: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as name:
        place = Path(name)
        grid = Grid(place)
        for day in range(1, days + 1):
            morning = time.perf_counter()
            grid.day(day, jobs, parameters)
            grid.prune(Instant(grid.began + (day - kept) * DAY))
            grid.drop_past()
            if day % EVERY == 0 or day in (kept + SETTLED, days):
                yield Line(
                    day, day * jobs, day * parameters, len(grid.koalad.store.jobs()), grid.attempts, grid.files,
                    store_mb(place),
                    memory_mb(), time.perf_counter() - morning,
                )  # fmt: skip
        grid.koalad.kill()


def drawn(lines: list[Line], path: Path) -> None:
    sizes = {
        "store": [line.store_mb for line in lines],
        "memory of koalad and all KCMs": [line.memory_mb for line in lines],
    }
    counts = {
        "directories of attempts": [line.directories for line in lines],
        "all files and directories": [line.files for line in lines],
    }
    draw([line.day for line in lines], sizes, counts, [line.jobs for line in lines], path)


def grown(lines: list[Line], kept: int) -> float:
    """Return the largest relative growth."""
    first, last = next(line for line in lines if line.day >= kept + SETTLED), lines[-1]
    return max(
        last.store_mb / first.store_mb, last.memory_mb / first.memory_mb, last.files / first.files,
        last.directories / first.directories,
    )  # fmt: skip


def main() -> int:
    wanted = options("year", __doc__, jobs=100, parameters=200)
    print("day  jobs ever  parameters ever  kept  directories   files  store MB  memory MB  s a day")
    lines: list[Line] = []
    for line in year(wanted.jobs, wanted.parameters, wanted.keep, wanted.days):
        lines.append(line)
        print(
            f"{line.day:3} {line.jobs:10,} {line.parameters:16,} {line.stored:5} {line.directories:12} {line.files:7}"
            f" {line.store_mb:9.1f} {line.memory_mb:10.1f} {line.day_s:8.2f}",
            flush=True,
        )
        if wanted.figure is not None:
            drawn(lines, wanted.figure)
    figure = grown(lines, wanted.keep)
    detail = {"days_kept": wanted.keep, "lines": [line._asdict() for line in lines]}
    document = {"bench": "year", "figure": round(figure, 3), "unit": "of its size", "bound": BOUND}
    print(json.dumps({**document, "holds": figure <= BOUND, "detail": detail}))
    return 0 if figure <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
