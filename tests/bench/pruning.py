"""A year of jobs and sweeps on one store, pruned each night: what store, memory and cluster hold every ten days.

`tests/bench/run pruning [--jobs A_DAY] [--parameters A_DAY] [--keep DAYS] [--days DAYS] [--figure FILE]`. Engine,
driver and store are real; the store is a file. Each day has one sweep of a range of parameters, whose every result is
reported and recorded. The cluster does each order at once, and counts the directories that it has: KCMs are not
real here, as they are in `tests/bench/run year`. The figure is the store's size at the end over that when the first
jobs had been pruned.
"""

import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from _years import BATCH, EVERY, draw, memory_mb, options, store_mb

from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry
from koalapy.model.cluster import ClusterSettings, ClusterState, Node, Scavenge
from koalapy.model.commands import (
    CancelAttempt,
    FeedSweep,
    ForgetAttempt,
    Hint,
    ReleaseAttempt,
    SubmitAttempt,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptForgotten,
    AttemptSubmitted,
    ClusterConnected,
    ClusterMeasured,
    ParametersEnded,
    ParametersWanted,
    PruneRequested,
    WorkSubmitted,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.parameters import Axis, ParameterResult, Source, Space
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import ReportedEnding, WrapperPhase
from koalapy.model.units import DAY, MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.open import FILE_NAME, open_store

BOUND = 1.1
BEGIN = 1_700_000_000_000_000
IN_A_REPORT = 2000  # results in one report of a Launcher, as the real one has them
LAUNCHERS, SLOTS = 4, 8
JOB = Request(name="job", components=(ComponentRequest(processors=1, executable="./program"),))


def sweep(count: int) -> Request:
    axis = Axis(sources=(Source(names=("x",), loop=("1", str(count), "1")),), count=count)
    component = ComponentRequest(processors=1, executable="./program", arguments=("{x}",))
    return Request(name="sweep", components=(component,), parameters=Space(axes=(axis,)))


class Clusters:
    """Obeys at once: what a command leads to waits in `inbox`, and what runs in `running`."""

    def __init__(self) -> None:
        self.directories: set[AttemptId] = set()
        self.inbox: list[Delivery] = []
        self.running: list[Iterator[Delivery]] = []
        self.launchers: dict[JobId, list[AttemptId]] = {}  # of each sweep
        self._sweeps: dict[AttemptId, JobId] = {}
        self.now = Instant(BEGIN)

    def slept(self) -> Duration:
        return Duration(0)

    def __call__(self) -> Instant:
        return self.now

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        command, now = entry.command, self.now
        if isinstance(command, SubmitAttempt):
            self.directories.add(command.attempt)
            common = {"cluster": command.cluster, "attempt": command.attempt, "batch_id": str(entry.number)}
            nodes = (Node("n1", "10.0.0.1", 1),)
            if command.launcher is not None:
                self._sweeps[command.attempt] = command.launcher.sweep
            came = WrapperReported(**common, phase=WrapperPhase.AT_BARRIER, at_barrier_at=now, nodes=nodes)  # type: ignore[arg-type]
            self.inbox.append(Delivery((AttemptSubmitted(**common), came), (entry.number,)))  # type: ignore[arg-type]
        elif isinstance(command, ReleaseAttempt) and command.attempt in self._sweeps:
            of = self._sweeps[command.attempt]
            self.launchers.setdefault(of, []).append(command.attempt)
            runs = WrapperReported(
                cluster=command.cluster, attempt=command.attempt, batch_id="1", phase=WrapperPhase.RUNNING,
                released_at=now,
                started_at=now,
            )  # fmt: skip
            wanted = ParametersWanted(cluster=command.cluster, sweep=of, wanted=IN_A_REPORT * LAUNCHERS)
            self.inbox.append(Delivery((runs, wanted), (entry.number,)))
        elif isinstance(command, ReleaseAttempt):
            ended = WrapperReported(
                cluster=command.cluster, attempt=command.attempt, batch_id="1", phase=WrapperPhase.ENDED,
                released_at=now,
                started_at=now, ended_at=now, exit_status=0, ending=ReportedEnding.EXITED,
            )  # fmt: skip
            self.inbox.append(Delivery((ended,), (entry.number,)))
        elif isinstance(command, CancelAttempt):
            of = self._sweeps.pop(command.attempt, JobId(0))
            self.launchers.pop(of, None)
            cleaned_up = AttemptCleanedUp(cluster=command.cluster, attempt=command.attempt)
            self.inbox.append(Delivery((cleaned_up,), (entry.number,)))
        elif isinstance(command, ForgetAttempt):
            self.directories.remove(command.attempt)
            forgotten = AttemptForgotten(cluster=command.cluster, attempt=command.attempt)
            self.inbox.append(Delivery((forgotten,), (entry.number,)))

    def hint(self, hint: Hint) -> None:
        if isinstance(hint, FeedSweep) and hint.numbers:
            self.running.append(self._run(hint))

    def _run(self, feed: FeedSweep) -> Iterator[Delivery]:
        """Yield the reports of the cluster's Launchers on these parameters, and requests for more."""
        numbers = list(feed.numbers)
        for place in range(0, len(numbers), IN_A_REPORT):
            attempt = self.launchers[feed.sweep][place // IN_A_REPORT % len(self.launchers[feed.sweep])]
            results = tuple(self._result(number) for number in numbers[place : place + IN_A_REPORT])
            ended = ParametersEnded(cluster=feed.cluster, sweep=feed.sweep, attempt=attempt, results=results)
            yield Delivery((ended,))
        yield Delivery((ParametersWanted(cluster=feed.cluster, sweep=feed.sweep, wanted=IN_A_REPORT * LAUNCHERS),))

    def _result(self, number: int) -> ParameterResult:
        began = self.now + number * SECOND // SLOTS
        return ParameterResult(
            number, 0, "exited", f"n{number % LAUNCHERS}", number % SLOTS, began, began + SECOND, number * 40, 40, 0, 0
        )

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        return {}


class Clock:
    def __init__(self, clusters: Clusters) -> None:
        self.now, self.slept = clusters, clusters.slept


def measured(clusters: Clusters) -> Delivery:
    state = ClusterState(
        measured_at=clusters.now, total=10_000, idle=10_000, ours=0, others=0, waiting_local=0,
        free_nodes=((SLOTS, 10_000 // SLOTS),), whole_nodes=((SLOTS, 10_000 // SLOTS),),
    )  # fmt: skip
    return Delivery((ClusterMeasured(cluster="vu", state=state),))


def held(path: Path) -> tuple[int, int]:
    """Count the jobs, sweeps and Launchers of the store, and the results of parameters: each batch is of a range."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (jobs,) = connection.execute("SELECT count(*) FROM work").fetchone()
        (results,) = connection.execute("SELECT coalesce(sum(highest - lowest + 1), 0) FROM results").fetchone()
    return jobs, results


class Line(NamedTuple):
    """At the end of a day."""

    day: int
    jobs: int  # ever, Launchers not counted
    parameters: int  # ever
    stored: int  # jobs, sweeps and Launchers
    results: int  # of parameters, in the store
    directories: int
    store_mb: float
    memory_mb: float
    day_s: float
    pruning_s: float


def year(a_day: int, parameters: int, kept: int, days: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as name:
        place = Path(name)
        store, clusters = open_store("sqlite", place), Clusters()
        scavenge = Scavenge(max_nodes=LAUNCHERS)
        settings = Settings(clusters=(ClusterSettings(name="vu", batch="slurm", scavenge=scavenge),))
        engine = Engine(settings, Policies(worst_fit, fpfs), store.load())
        driver = Driver(engine, store, clusters, Clock(clusters))

        def settle(*deliveries: Delivery) -> None:
            clusters.inbox += deliveries
            while clusters.inbox or clusters.running:
                reports = [delivery for each in clusters.running[:1] if (delivery := next(each, None)) is not None]
                if not reports:
                    del clusters.running[:1]
                batch, clusters.inbox = clusters.inbox + reports, []
                driver.step(batch)

        settle(Delivery((ClusterConnected(cluster="vu", version="1"),)))
        for day in range(1, days + 1):
            morning = time.perf_counter()
            clusters.now = Instant(clusters.now + MINUTE)
            settle(measured(clusters))
            settle(Delivery(tuple(WorkSubmitted(request=JOB, owner=f"user{number % 10}") for number in range(a_day))))
            if parameters:
                settle(Delivery((WorkSubmitted(request=sweep(parameters), owner=f"user{day % 10}"),)))
                settle(measured(clusters))
            if engine.records.all_work() or engine.records.pending_cancels or clusters.running:
                raise SystemExit(
                    f"On day {day} {len(engine.records.all_work())} jobs were not over: nothing was measured."
                )
            clusters.now = Instant(BEGIN + day * DAY)
            before, night = Instant(clusters.now - kept * DAY), time.perf_counter()
            while pilots := store.prunable_launchers(before, BATCH, JobId(0), True):
                settle(Delivery((PruneRequested(work=(), launchers=tuple(pilots), before=before, records=True),)))
            while jobs := store.prunable(before, BATCH, JobId(0), True):
                settle(Delivery((PruneRequested(work=tuple(jobs), before=before, records=True),)))
            if day % EVERY == 0 or day in (kept, days):
                yield Line(
                    day,
                    day * a_day,
                    day * parameters,
                    *held(place / FILE_NAME),
                    len(clusters.directories),
                    store_mb(place),
                    memory_mb(),
                    night - morning,
                    time.perf_counter() - night,
                )
        store.close()


def drawn(lines: list[Line], path: Path) -> None:
    sizes = {
        "store": [line.store_mb for line in lines],
        "memory of engine, driver and store": [line.memory_mb for line in lines],
    }
    counts = {"directories on the cluster": [line.directories for line in lines]}
    draw([line.day for line in lines], sizes, counts, [line.jobs for line in lines], path)


def main() -> int:
    wanted = options("pruning", __doc__, jobs=200, parameters=20_000)
    print(
        "day    jobs ever  parameters ever   kept  their results  directories  store MB  memory MB  s a day  s to prune"
    )
    lines: list[Line] = []
    for line in year(wanted.jobs, wanted.parameters, wanted.keep, wanted.days):
        lines.append(line)
        print(
            f"{line.day:3} {line.jobs:12,} {line.parameters:16,} {line.stored:6} {line.results:14,}"
            f" {line.directories:12} {line.store_mb:9.1f} {line.memory_mb:10.1f} {line.day_s:8.2f}"
            f" {line.pruning_s:11.2f}",
            flush=True,
        )
    if wanted.figure is not None:
        drawn(lines, wanted.figure)
    first = next(line for line in lines if line.day > wanted.keep)
    grown = lines[-1].store_mb / first.store_mb
    document = {"bench": "pruning", "figure": round(grown, 3), "unit": "of its size", "bound": BOUND}
    detail = {"days_kept": wanted.keep, "lines": [line._asdict() for line in lines]}
    print(json.dumps({**document, "holds": grown <= BOUND, "detail": detail}))
    return 0 if grown <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
