"""A year of jobs on one store, pruned each night: what store, memory and clusters hold at the end of each month.

`nice python tests/bench/pruning.py [JOBS A DAY] [DAYS KEPT]`. Engine, driver and store are real; the store is a file.
Clusters do at once what they are told, and count the directories that they have.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

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
JOB = Request(name="job", components=(ComponentRequest(processors=1, executable="./program"),))


class Clusters:
    """Obeys at once: what a command leads to waits in `inbox`."""

    def __init__(self) -> None:
        self.directories: set[AttemptId] = set()
        self.inbox: list[Delivery] = []
        self.now = Instant(1_700_000_000_000_000)

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


def main(a_day: int, kept: int) -> None:
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
        began, pruning = time.perf_counter(), 0.0
        print("day     jobs  in the store  directories  store MB  memory MB  s for a night's pruning")
        for day in range(1, 366):
            for _ in range(a_day // BATCH):
                clusters.now = Instant(clusters.now + MINUTE)
                settle(measured(clusters))
                settle(Delivery(tuple(JobSubmitted(request=JOB, owner="me") for _ in range(BATCH))))
            clusters.now = Instant(1_700_000_000_000_000 + day * DAY)
            before, night = Instant(clusters.now - kept * DAY), time.perf_counter()
            while page := store.prunable(before, BATCH, JobId(0), True, False):
                settle(Delivery((PruneRequested(jobs=tuple(page), before=before, records=True),)))
            pruning = time.perf_counter() - night
            if day % 30 == 0 or day == 365:
                size = sum(path.stat().st_size for path in place.iterdir() if path.name.startswith(FILE_NAME)) / 1e6
                left = len(store.jobs())
                print(
                    f"{day:3} {day * (a_day // BATCH) * BATCH:8} {left:13} {len(clusters.directories):12}"
                    f" {size:9.1f} {memory_mb():10.1f} {pruning:12.2f}",
                    flush=True,
                )
        print(f"{time.perf_counter() - began:.0f} s")
        store.close()


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] + ["200", "30"][len(sys.argv[1:]) :])))
