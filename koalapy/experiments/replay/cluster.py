"""A cluster of processors and a queue that is served first come, first served, without nodes or files."""

from collections import deque
from dataclasses import dataclass

from koalapy.information.commitments import processors_taken
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import ClusterConnected, ClusterMeasured, Event
from koalapy.model.identity import AttemptId, InstanceId, Tag, tag_of
from koalapy.model.units import Instant
from koalapy.world.agenda import ScheduledCall


@dataclass(eq=False, slots=True)
class ReplayBatchJob:
    """One attempt on a cluster. `started_at`: when its program began; `end`: the scheduled end of its program."""

    attempt: AttemptId
    tag: Tag
    cluster: "ReplayCluster"
    taken: int
    node: Node
    started_at: Instant | None = None
    end: ScheduledCall | None = None


class ReplayCluster:
    """A cluster with `processors` in all.

    `changed`: whether the last measurement is out of date, or a batch job waits. The start of koalapy's job is not
    reported at once: its processors are committed until a measurement shows them.
    """

    def __init__(self, settings: ClusterSettings, processors: int, instance: InstanceId) -> None:
        self.settings = settings
        self.changed = True
        self._processors = self._idle = processors
        self._instance = instance
        self._running: dict[Tag, ReplayBatchJob] = {}
        self._queue: deque[ReplayBatchJob] = deque()

    @property
    def waits(self) -> bool:
        """Return whether a batch job waits because it does not fit."""
        return bool(self._queue)

    def connected(self) -> Event:
        return ClusterConnected(cluster=self.settings.name, version="simulated")

    def submit(self, command: SubmitAttempt) -> ReplayBatchJob:
        """Put a batch job for the attempt at the end of the queue, and return it."""
        request, name = command.request, self.settings.name
        taken = processors_taken(request, self.settings)
        tag = tag_of(self._instance, command.attempt)
        job = ReplayBatchJob(command.attempt, tag, self, taken, Node(name, name, request.processes(1)))
        self._queue.append(job)
        return job

    def start_jobs(self) -> list[ReplayBatchJob]:
        """Start the first jobs of the queue that fit, and return them; no job passes another."""
        started: list[ReplayBatchJob] = []
        while self._queue and self._queue[0].taken <= self._idle:
            job = self._queue.popleft()
            self._running[job.tag] = job
            self._idle -= job.taken
            started.append(job)
        if self._queue:
            self.changed = True
        return started

    def remove(self, job: ReplayBatchJob) -> None:
        """Remove a batch job that runs or waits."""
        if self._running.pop(job.tag, None) is not None:
            self._idle += job.taken
        else:
            self._queue.remove(job)
        self.changed = True

    def measured(self, now: Instant) -> Event:
        """Return a measurement, as the batch system would give it."""
        self.changed = False
        used = self._processors - self._idle
        state = ClusterState(
            measured_at=now, total=self._processors, idle=self._idle, ours=used, others=0, waiting_local=0,
            allocated=tuple(self._running), pending=tuple([job.tag for job in self._queue]),
        )  # fmt: skip
        return ClusterMeasured(cluster=self.settings.name, state=state)
