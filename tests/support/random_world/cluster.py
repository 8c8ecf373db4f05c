"""A cluster of the random world: a batch system with one queue, and the wrappers in its jobs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterMeasured, WrapperReported
from koalapy.model.identity import AttemptId, InstanceId, Tag, tag_of
from koalapy.model.units import Instant

NO_EXECUTABLE = Reason("no_executable", "request", "There is no ./program.", "Stage it in.")
NO_NODE = Reason("agents_late", "transient", "A node does not answer.", "")


def promise(kept: object, name: str, details: object = "") -> None:
    """Check an invariant. Raises AssertionError with its name."""
    assert kept, f"broken: {name} {details}"


@dataclass(eq=False)
class BatchJob:
    """One job of a cluster's queue. `accounting` is the accounted ending, None if there is none."""

    id: str
    processors: int
    attempt: AttemptId | None = None
    state: str = "pending"  # pending, running, ended
    listed: bool = True
    suspended: bool = False
    stuck: bool = False
    accounting: str | None = None

    def end(self, accounting: str | None) -> None:
        self.state, self.accounting, self.listed = "ended", accounting, False


@dataclass(eq=False)
class Trace:
    """An attempt on its cluster: its directory, its wrapper and its program."""

    attempt: AttemptId
    batch: BatchJob | None = None
    command: SubmitAttempt | None = None
    start_lock: str = ""  # taken, void
    phase: str = ""
    at: dict[str, Instant] = field(default_factory=dict)
    alive: bool = False  # the wrapper
    runs: int = 0
    running: bool = False  # the program
    released: bool = False  # the wrapper has received its release
    stopped: bool = False
    recorded: bool = False
    exit_status: int | None = None
    ending: str = ""
    reason: Reason | None = None
    sign_at: Instant | None = None

    @property
    def may_run(self) -> bool:
        """Whether its program runs, or could still come to run."""
        queued = self.batch is not None and self.batch.state != "ended" and self.start_lock == ""
        return self.running or self.alive or queued

    def report(self) -> WrapperReported:
        assert self.command is not None
        assert self.batch is not None
        node = Node(f"n{self.attempt.component}", "10.0.0.1", self.command.request.processes(1))
        return WrapperReported(
            attempt=self.attempt, batch_id=self.batch.id, phase=self.phase, nodes=(node,), exit_status=self.exit_status,
            ending=self.ending, reason=self.reason, at_barrier_at=self.at.get("at_barrier"),
            released_at=self.at.get("released"), started_at=self.at.get("running"), ended_at=self.at.get("ended"),
        )  # fmt: skip


class Cluster:
    """A batch system with one queue, and a shared directory with a trace of every attempt."""

    def __init__(self, settings: ClusterSettings, size: int, instance: InstanceId) -> None:
        self.settings, self.size, self.instance = settings, size, instance
        self.queue: list[BatchJob] = []
        self.traces: dict[AttemptId, Trace] = {}
        self.forgotten: set[AttemptId] = set()
        self._jobs = 0

    # ---- the batch system

    def enqueue(self, processors: int, attempt: AttemptId | None = None) -> BatchJob:
        self._jobs += 1
        taken = processors
        if self.settings.exclusive and self.settings.processors_per_node:
            taken = -(-processors // self.settings.processors_per_node) * self.settings.processors_per_node
        job = BatchJob(f"{self.settings.name}.{self._jobs}", taken, attempt)
        self.queue.append(job)
        return job

    @property
    def idle(self) -> int:
        return self.size - sum(job.processors for job in self.queue if job.state == "running")

    def start_jobs(self, rng: Random) -> None:
        """Start jobs first come, first served, or sometimes any that fit, in a random order."""
        self.queue = [job for job in self.queue if job.state != "ended"]
        pending = [job for job in self.queue if job.state == "pending" and not job.stuck]
        fair = rng.random() < 0.7
        for job in pending if fair else rng.sample(pending, len(pending)):
            if job.processors <= self.idle:
                self._start(job)
            elif fair:
                return

    def _start(self, job: BatchJob) -> None:
        job.state = "running"
        if job.attempt is not None:
            self.traces[job.attempt].alive = True

    def measure(self, now: Instant) -> ClusterMeasured:
        ours = [job for job in self.queue if job.attempt is not None and job.listed]
        tags = {state: tuple(self._tag(job) for job in ours if job.state == state) for state in ("running", "pending")}
        waiting = sum(job.attempt is None and job.state == "pending" for job in self.queue)
        used = sum(job.processors for job in ours if job.state == "running")
        state = ClusterState(
            measured_at=now, total=self.size, idle=self.idle, ours=used, others=self.size - self.idle - used,
            waiting_local=waiting, allocated=tags["running"], pending=tags["pending"],
        )  # fmt: skip
        return ClusterMeasured(cluster=self.settings.name, state=state)

    def _tag(self, job: BatchJob) -> Tag:
        assert job.attempt is not None
        return tag_of(self.instance, job.attempt)

    # ---- wrappers

    def step(self, trace: Trace, now: Instant, rng: Random, smooth: bool, well: bool) -> None:
        """Advance the attempt's wrapper by one step. `smooth`: it can start its program; `well`: that succeeds."""
        batch = trace.batch
        assert batch is not None
        if not trace.alive:
            if batch.state == "running" and not trace.running:
                batch.end("exited")
        elif trace.stopped:
            self._ended(trace, now, "cancelled", 143)
        elif trace.phase == "":
            self._claim(trace, now)
        elif trace.phase == "started":
            self._prepare(trace, now, None if smooth else rng)
        elif trace.phase == "at_barrier" and trace.released:
            self._enter(trace, "released", now)
        elif trace.phase == "released":
            trace.running, trace.runs = True, trace.runs + 1
            self._enter(trace, "running", now)
        elif trace.phase == "running" and rng.random() < 0.3:
            status = 0 if well else rng.choice((0, 0, 0, 0, 3, 137))
            self._ended(trace, now, "killed" if status == 137 else "exited", status)

    def clocks(self, now: Instant) -> None:
        """Let wrappers leave their barriers and end at their walltimes."""
        for trace in self.traces.values():
            command = trace.command
            if command is None or not trace.alive or trace.stopped:
                continue
            if trace.phase == "at_barrier" and now >= trace.at["at_barrier"] + command.barrier_timeout:
                self._ended(trace, now, "left_barrier", None)
            elif trace.phase in ("released", "running") and now >= trace.at["released"] + command.request.walltime:
                self._ended(trace, now, "walltime", 143)

    def _claim(self, trace: Trace, now: Instant) -> None:
        if trace.start_lock == "void":
            trace.alive = False
        else:
            trace.start_lock = "taken"
            self._enter(trace, "started", now)

    def _prepare(self, trace: Trace, now: Instant, rng: Random | None) -> None:
        trace.reason = rng.choice((None,) * 12 + (NO_NODE, NO_NODE, NO_EXECUTABLE)) if rng else None
        if trace.reason:
            self._ended(trace, now, "failed", None)
        else:
            self._enter(trace, "at_barrier", now)

    def _enter(self, trace: Trace, phase: str, now: Instant) -> None:
        trace.phase, trace.sign_at = phase, now
        trace.at[phase] = now

    def _ended(self, trace: Trace, now: Instant, ending: str, status: int | None) -> None:
        self._enter(trace, "ended", now)
        trace.ending, trace.exit_status, trace.recorded = ending, status, True
        trace.alive = trace.running = False

    def kill(self, trace: Trace, now: Instant, how: str) -> None:
        """End an attempt by an administrator (the wrapper writes its exit record), or with its node."""
        assert trace.batch is not None
        trace.batch.listed = True
        if trace.alive and trace.start_lock == "taken" and how in ("signalled", "restarted"):
            self._ended(trace, now, "killed" if how == "signalled" else how, 143)
        trace.alive = trace.running = False
        trace.batch.end({"signalled": "cancelled", "restarted": "exited", "vanished": None}.get(how, how))

    def ours(self) -> Iterator[Trace]:
        """Attempts with a batch job that has not ended."""
        return (trace for trace in self.traces.values() if trace.batch is not None and trace.batch.state != "ended")
