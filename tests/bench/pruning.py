"""A year of jobs on one store, pruned each night: what store, memory and clusters hold at the end of each month.

`tests/bench/run pruning [--jobs A_DAY] [--keep DAYS] [--days DAYS] [--figure FILE]`. Engine, driver and store are real;
the store is a file. Clusters do at once what they are told, and count the directories that they have. The figure is the
store's size at the end over that when the first jobs had been pruned.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from koalapy.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import CancelComponent, ForgetComponent, ReleaseComponent, SubmitComponent, Word
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptForgotten,
    ClusterConnected,
    ClusterMeasured,
    ComponentGone,
    ComponentReported,
    ComponentSubmitted,
    JobSubmitted,
    PruneRequested,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.units import DAY, MINUTE, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.open import FILE_NAME, open_store

BATCH = 200
BOUND = 1.1
BEGIN = 1_700_000_000_000_000
EVERY = 10  # days from one line to the next
JOB = Request(name="job", components=(ComponentRequest(processors=1, executable="./program"),))


class Clusters:
    """Obeys at once: what a command leads to waits in `inbox`."""

    def __init__(self) -> None:
        self.directories: set[AttemptId] = set()
        self.inbox: list[Delivery] = []
        self.now = Instant(BEGIN)

    def slept(self) -> Duration:
        return Duration(0)

    def __call__(self) -> Instant:
        return self.now

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        command, now = entry.command, self.now
        if isinstance(command, SubmitComponent):
            self.directories.add(command.attempt)
            common = {"cluster": command.cluster, "attempt": command.attempt, "batch_id": str(entry.number)}
            nodes = (Node("n1", "10.0.0.1", 1),)
            came = ComponentReported(**common, phase="at_barrier", at_barrier_at=now, nodes=nodes)  # type: ignore[arg-type]
            self.inbox.append(Delivery((ComponentSubmitted(**common), came), (entry.number,)))  # type: ignore[arg-type]
        elif isinstance(command, ReleaseComponent):
            ended = ComponentReported(
                cluster=command.cluster, attempt=command.attempt, batch_id="1", phase="ended", released_at=now,
                started_at=now, ended_at=now, exit_status=0, ending="exited",
            )  # fmt: skip
            self.inbox.append(Delivery((ended,), (entry.number,)))
        elif isinstance(command, CancelComponent):
            gone = ComponentGone(cluster=command.cluster, attempt=command.attempt)
            self.inbox.append(Delivery((gone,), (entry.number,)))
        elif isinstance(command, ForgetComponent):
            self.directories.remove(command.attempt)
            forgotten = AttemptForgotten(cluster=command.cluster, attempt=command.attempt)
            self.inbox.append(Delivery((forgotten,), (entry.number,)))

    def say(self, word: Word) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        return {}


class Clock:
    def __init__(self, clusters: Clusters) -> None:
        self.now, self.slept = clusters, clusters.slept


def measured(clusters: Clusters) -> Delivery:
    state = ClusterState(
        measured_at=clusters.now, total=10_000, idle=10_000, ours=0, others=0, waiting_local=0, allocated=(), pending=()
    )
    return Delivery((ClusterMeasured(cluster="vu", state=state),))


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class Line(NamedTuple):
    """At the end of a day."""

    day: int
    jobs: int  # ever
    stored: int
    directories: int
    store_mb: float
    memory_mb: float
    pruning_s: float


def year(a_day: int, kept: int, days: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as name:
        place = Path(name)
        store, clusters = open_store("sqlite", place), Clusters()
        settings = Settings(clusters=(ClusterSettings(name="vu", batch="slurm"),))
        engine = Engine(settings, Policies(worst_fit, fpfs), store.load())
        driver = Driver(engine, store, clusters, Clock(clusters))  # type: ignore[arg-type]

        def settle(*deliveries: Delivery) -> None:
            clusters.inbox += deliveries
            while clusters.inbox:
                batch, clusters.inbox = clusters.inbox, []
                driver.step(batch)

        settle(Delivery((ClusterConnected(cluster="vu", version="1"),)))
        for day in range(1, days + 1):
            clusters.now = Instant(clusters.now + MINUTE)
            settle(measured(clusters))
            settle(Delivery(tuple(JobSubmitted(request=JOB, owner=f"user{number % 10}") for number in range(a_day))))
            clusters.now = Instant(BEGIN + day * DAY)
            before, night = Instant(clusters.now - kept * DAY), time.perf_counter()
            while page := store.prunable(before, BATCH, JobId(0), True, False):
                settle(Delivery((PruneRequested(jobs=tuple(page), before=before, records=True),)))
            if day % EVERY == 0 or day in (kept, days):
                yield Line(
                    day,
                    day * a_day,
                    len(store.jobs()),
                    len(clusters.directories),
                    sum(path.stat().st_size for path in place.iterdir() if path.name.startswith(FILE_NAME)) / 1e6,
                    memory_mb(),
                    time.perf_counter() - night,
                )
        store.close()


def draw(lines: list[Line], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    days = [line.day for line in lines]
    axes.plot(days, [line.store_mb for line in lines], label="store, MB")
    axes.plot(days, [line.memory_mb for line in lines], label="memory of engine, driver and store, MB")
    axes.plot(days, [line.directories / 100 for line in lines], label="directories on clusters, hundreds")
    axes.set_xlabel("day")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200, help="a day")
    parser.add_argument("--keep", type=int, default=30, help="days")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--figure", type=Path, help="draw it into this file")
    wanted = parser.parse_args()
    print("day     jobs  in the store  directories  store MB  memory MB  s for a night's pruning")
    lines: list[Line] = []
    for line in year(wanted.jobs, wanted.keep, wanted.days):
        lines.append(line)
        print(
            f"{line.day:3} {line.jobs:8} {line.stored:13} {line.directories:12} {line.store_mb:9.1f}"
            f" {line.memory_mb:10.1f} {line.pruning_s:12.2f}",
            flush=True,
        )
    if wanted.figure is not None:
        draw(lines, wanted.figure)
    first = next(line for line in lines if line.day > wanted.keep)
    grown = lines[-1].store_mb / first.store_mb
    document = {"bench": "pruning", "figure": round(grown, 3), "unit": "of its size", "bound": BOUND}
    detail = {"jobs_a_day": wanted.jobs, "days_kept": wanted.keep, "lines": [line._asdict() for line in lines]}
    print(json.dumps({**document, "holds": grown <= BOUND, "detail": detail}))
    return 0 if grown <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
