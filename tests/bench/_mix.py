"""The clusters' part played in memory: what a grid reports to an engine while a thousand jobs go through it.

The play drives an engine once and keeps every event with its instant; replayed on a new engine of the same settings
they lead to the very same decisions. So `handle` can be timed with nothing around it.
"""

import heapq
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import CancelAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    Event,
    HoldRequested,
    ReleaseRequested,
    SubmissionFailed,
    WorkSubmitted,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest, Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import BatchState, ReportedEnding, WrapperPhase
from koalapy.model.units import HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies

INSTANCE = InstanceId("bench")
POLICIES = Policies(worst_fit, fpfs)
START = Instant(1_000_000 * SECOND)
SIZES = (1, 2, 4, 4, 6, 8, 8, 12, 16, 16, 24, 32)
CLUSTERS, PROCESSORS = 10, 128
BUSY = Reason("busy", "transient", "The batch system is busy.", "", command="sbatch", exit_status=1)
CUT = Reason("cut", "transient", "The connection was lost.", "")
Tape = list[tuple[Instant, tuple[Event, ...]]]  # batches, each with its instant


def settings(clusters: int = CLUSTERS, **fields: Any) -> Settings:
    return Settings(clusters=tuple(ClusterSettings(name=f"c{n:03}", batch="slurm") for n in range(clusters)), **fields)


def engine_of(chosen: Settings, snapshot: Snapshot | None = None) -> Engine:
    return Engine(chosen, POLICIES, snapshot or Snapshot(instance=INSTANCE))


def request(dice: Random, clusters: int = CLUSTERS, components: int | None = None) -> Request:
    """Ordered, unordered or mixed, of 1 to 4 components of 1 to 32 processors."""
    named = dice.choice((0.0, 0.0, 0.0, 0.5, 1.0))
    wanted = [_component(dice, clusters, named) for _ in range(components or dice.randint(1, 4))]
    return Request(
        name="bench",
        components=tuple(wanted),
        priority=dice.choice((10, 10, 10, 5)),
        when_busy=WhenBusy.QUEUE if len(wanted) == 1 else WhenBusy.WAIT,
        stage_in=("poisson.py",),
        directory="/home/koala",
    )


def _component(dice: Random, clusters: int, named: float) -> ComponentRequest:
    cluster = f"c{dice.randrange(clusters):03}" if dice.random() < named else None
    walltime = Duration(dice.randint(2, 12) * MINUTE)
    return ComponentRequest(processors=dice.choice(SIZES), executable="./program", cluster=cluster, walltime=walltime)


def record(jobs: int, seed: int, batch: int = 1) -> Tape:
    """Yield all events for an engine, `batch` at a time, until the last of so many jobs is final."""
    return _Play(jobs, Random(seed)).tape(batch)


def kinds_of(tape: Tape) -> dict[str, int]:
    """Count the events of each kind, the most frequent first."""
    return dict(Counter(_words(event) for _, events in tape for event in events).most_common())


def _words(event: Event) -> str:
    if isinstance(event, WrapperReported):
        return f"component reported {event.phase}"
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()


@dataclass(eq=False, slots=True)
class _BatchJob:
    processors: int
    attempt: AttemptId | None = None
    cluster: str = ""
    walltime: Duration = HOUR
    running: bool = False
    seen: str = ""
    phase: str = ""
    began: dict[str, Instant] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Cluster:
    """A batch system with a strict queue, half of it taken by others' jobs."""

    name: str
    idle: int = PROCESSORS
    queue: deque[_BatchJob] = field(default_factory=deque)
    running: list[_BatchJob] = field(default_factory=list)


class _Play:
    def __init__(self, jobs: int, dice: Random) -> None:
        self._dice = dice
        self._settings = settings()
        self._engine = engine_of(self._settings)
        self._clusters = {each.name: _Cluster(each.name) for each in self._settings.clusters}
        self._batch: dict[AttemptId, _BatchJob] = {}
        self._agenda: list[tuple[Instant, int, Callable[[Instant], Iterator[Event]]]] = []
        self._numbers = count()
        self._jobs, self._over = jobs, 0

    def tape(self, batch: int) -> Tape:
        self._open()
        tape: Tape = []
        events: list[Event] = []
        while self._over < self._jobs:
            now, _, act = heapq.heappop(self._agenda)
            events += act(now)
            while len(events) >= batch:
                tape.append((now, tuple(events[:batch])))
                del events[:batch]
                self._apply(*tape[-1])
        return tape

    def _apply(self, now: Instant, events: tuple[Event, ...]) -> None:
        step = self._engine.handle(now, events)
        self._over += sum(job.state.final for job in step.jobs)
        for command in step.commands:
            if isinstance(command, SubmitAttempt):
                self._soon(now, 300 * MILLISECOND, self._submit, command)
            elif isinstance(command, ReleaseAttempt):
                self._soon(now, 100 * MILLISECOND, self._release, command)
            elif isinstance(command, CancelAttempt):
                self._soon(now, 200 * MILLISECOND, self._cancel, command)

    def _soon(self, now: Instant, after: int, act: Callable[..., Iterator[Event]], *arguments: object) -> None:
        moment = Instant(now + round(after * self._dice.uniform(0.5, 1.5)))
        heapq.heappush(self._agenda, (moment, next(self._numbers), lambda then: act(then, *arguments)))

    # ---- users

    def _open(self) -> None:
        for cluster in self._clusters.values():
            self._soon(START, SECOND, self._connect, cluster)
            self._soon(START, 2 * SECOND, self._measure, cluster)
            for _ in range(6):
                self._soon(START, SECOND, self._local, cluster)
        arrival = START + 5 * SECOND
        for number in range(1, self._jobs + 1):
            arrival += round(self._dice.expovariate(1 / (2 * SECOND)))
            self._soon(Instant(arrival), 0, self._job)
            if self._dice.random() < 0.03:
                self._soon(Instant(arrival), 20 * MINUTE, self._ask, CancelRequested(JobId(number)))
            if self._dice.random() < 0.02:
                self._soon(Instant(arrival), MINUTE, self._ask, HoldRequested(JobId(number)))
                self._soon(Instant(arrival), 10 * MINUTE, self._ask, ReleaseRequested(JobId(number)))

    def _job(self, now: Instant) -> Iterator[Event]:
        yield WorkSubmitted(request=request(self._dice), owner="me", key=f"key-{next(self._numbers)}")

    def _ask(self, now: Instant, event: Event) -> Iterator[Event]:
        yield event

    # ---- clusters

    def _connect(self, now: Instant, cluster: _Cluster) -> Iterator[Event]:
        yield ClusterConnected(cluster=cluster.name, version="22.05")
        self._soon(now, 2 * HOUR, self._cut, cluster)

    def _cut(self, now: Instant, cluster: _Cluster) -> Iterator[Event]:
        yield ClusterLost(cluster=cluster.name, reason=CUT)
        self._soon(now, 5 * SECOND, self._connect, cluster)

    def _local(self, now: Instant, cluster: _Cluster) -> Iterator[Event]:
        """Others' jobs come one after another."""
        job = _BatchJob(self._dice.choice((1, 2, 4, 8)), walltime=Duration(self._dice.randint(1, 20) * MINUTE))
        cluster.queue.append(job)
        self._start_jobs(now, cluster)
        self._soon(now, 15 * MINUTE, self._local, cluster)
        yield from ()

    def _measure(self, now: Instant, cluster: _Cluster) -> Iterator[Event]:
        """Measure every 10 s; changes of our jobs in the batch system are events."""
        ours = [job for job in [*cluster.running, *cluster.queue] if job.attempt is not None]
        for job in ours:
            state = "running" if job.running else "queued"
            if job.seen != state and job.attempt is not None:
                job.seen = state
                yield BatchStatusSeen(
                    cluster=cluster.name,
                    attempt=job.attempt,
                    batch_id=_id(job),
                    at=now,
                    state=BatchState(state),
                    words="Resources",
                )
        yield ClusterMeasured(cluster=cluster.name, state=self._state(now, cluster))
        self._soon(now, 10 * SECOND, self._measure, cluster)

    def _state(self, now: Instant, cluster: _Cluster) -> ClusterState:
        tags = {
            name: [(tag_of(INSTANCE, job.attempt), job.processors) for job in jobs if job.attempt is not None]
            for name, jobs in (("allocated", cluster.running), ("pending", cluster.queue))
        }
        used = sum(processors for _, processors in tags["allocated"])
        return ClusterState(
            measured_at=now, total=PROCESSORS, idle=cluster.idle, ours=used, others=PROCESSORS - cluster.idle - used,
            waiting_local=sum(job.attempt is None for job in cluster.queue),
            allocated=tuple(tag for tag, _ in tags["allocated"]), pending=tuple(tag for tag, _ in tags["pending"]),
        )  # fmt: skip

    def _start_jobs(self, now: Instant, cluster: _Cluster) -> None:
        while cluster.queue and cluster.queue[0].processors <= cluster.idle:
            job = cluster.queue.popleft()
            job.running = True
            cluster.idle -= job.processors
            cluster.running.append(job)
            if job.attempt is None:
                self._soon(now, job.walltime, self._leave, cluster, job)
            else:
                self._soon(now, 400 * MILLISECOND, self._report, job, ("started", "at_barrier"))

    def _leave(self, now: Instant, cluster: _Cluster, job: _BatchJob) -> Iterator[Event]:
        self._remove(now, cluster, job)
        yield from ()

    def _remove(self, now: Instant, cluster: _Cluster, job: _BatchJob) -> None:
        if job in cluster.running:
            cluster.running.remove(job)
            cluster.idle += job.processors
        elif job in cluster.queue:
            cluster.queue.remove(job)
        self._start_jobs(now, cluster)

    # ---- wrappers

    def _submit(self, now: Instant, command: SubmitAttempt) -> Iterator[Event]:
        if self._dice.random() < 0.02:
            yield SubmissionFailed(cluster=command.cluster, attempt=command.attempt, reason=BUSY)
            return
        walltime = Duration(round(command.request.walltime * self._dice.uniform(0.2, 0.9)))
        job = _BatchJob(command.request.processors, command.attempt, command.cluster, walltime)
        self._batch[command.attempt] = job
        cluster = self._clusters[command.cluster]
        cluster.queue.append(job)
        self._start_jobs(now, cluster)
        yield AttemptSubmitted(cluster=command.cluster, attempt=command.attempt, batch_id=_id(job))

    def _report(self, now: Instant, job: _BatchJob, phases: tuple[str, ...]) -> Iterator[Event]:
        """The first phase now, the others one after another."""
        if job.attempt not in self._batch:
            return
        job.phase = phases[0]
        job.began[job.phase] = now
        if job.phase == "ended":
            killed = self._dice.random() < 0.03
            yield self._word(job, "killed" if killed else "exited", 137 if killed else 0)
            return
        yield self._word(job)
        if phases[1:]:
            wait = job.walltime if phases[1] == "ended" else 200 * MILLISECOND
            self._soon(now, wait, self._report, job, phases[1:])

    def _word(self, job: _BatchJob, ending: str = "", status: int | None = None) -> WrapperReported:
        assert job.attempt is not None
        nodes = tuple(
            Node(f"n{n}", f"10.0.0.{n}", min(8, job.processors - 8 * n)) for n in range(-(-job.processors // 8))
        )
        return WrapperReported(
            cluster=job.cluster, attempt=job.attempt, batch_id=_id(job), phase=WrapperPhase(job.phase), nodes=nodes,
            ending=ReportedEnding(ending),
            exit_status=status,
            at_barrier_at=job.began.get("at_barrier"), released_at=job.began.get("released"),
            started_at=job.began.get("running"), ended_at=job.began.get("ended"),
        )  # fmt: skip

    def _release(self, now: Instant, command: ReleaseAttempt) -> Iterator[Event]:
        job = self._batch.get(command.attempt)
        if job is not None:
            yield from self._report(now, job, ("released", "running", "ended"))

    def _cancel(self, now: Instant, command: CancelAttempt) -> Iterator[Event]:
        job = self._batch.pop(command.attempt, None)
        if job is not None:
            self._remove(now, self._clusters[command.cluster], job)
        yield AttemptCleanedUp(cluster=command.cluster, attempt=command.attempt)


def _id(job: _BatchJob) -> str:
    assert job.attempt is not None
    return str(7_000_000 + job.attempt.job * 100 + job.attempt.component)
