"""A cluster of processors and a batch queue under EASY, without nodes or files: koalapy's jobs and those of others."""

from dataclasses import dataclass

from koalapy.experiments.replay.easy import EasyQueue, QueuedJob
from koalapy.information.commitments import processors_taken
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import ClusterConnected, ClusterMeasured, Event
from koalapy.model.identity import AttemptId, InstanceId, Tag, tag_of
from koalapy.model.units import Duration, Instant
from koalapy.world.agenda import ScheduledCall


@dataclass(eq=False, slots=True, kw_only=True)
class ReplayBatchJob(QueuedJob):
    """One attempt on a cluster. `started_at`: when its program began; `end`: the scheduled end of its program."""

    attempt: AttemptId
    tag: Tag
    cluster: "ReplayCluster"
    node: Node
    started_at: Instant | None = None
    end: ScheduledCall | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class LocalJob(QueuedJob):
    """A job of another user. `runtime` is at most its walltime."""

    submitted: Instant
    runtime: Duration


class ReplayCluster:
    """A cluster with `processors` in all.

    `changed`: whether the last measurement is out of date. The start of koalapy's job is not reported at once: its
    processors are committed until a measurement shows them.
    """

    def __init__(self, settings: ClusterSettings, processors: int, instance: InstanceId) -> None:
        self.settings = settings
        self.changed = True
        self._instance = instance
        self._queue: EasyQueue[ReplayBatchJob | LocalJob] = EasyQueue(processors)
        self._ours: dict[Tag, ReplayBatchJob] = {}
        self._ours_taken = self._local_waiting = self._local_wanted = 0

    def connected(self) -> Event:
        return ClusterConnected(cluster=self.settings.name, version="simulated")

    def submit(self, command: SubmitAttempt) -> ReplayBatchJob:
        """Put a batch job for the attempt at the end of the queue, and return it."""
        request, name = command.request, self.settings.name
        job = ReplayBatchJob(
            processors=processors_taken(request, self.settings),
            walltime=command.walltime,
            attempt=command.attempt,
            tag=tag_of(self._instance, command.attempt),
            cluster=self,
            node=Node(name, name, request.processes(1)),
        )
        self._ours[job.tag] = job
        self._queue.submit(job)
        return job

    def submit_local(self, job: LocalJob) -> None:
        """Put a job of another user at the end of the queue."""
        self._local_waiting += 1
        self._local_wanted += job.processors
        self._queue.submit(job)
        self.changed = True

    def start_jobs(self, now: Instant) -> list[ReplayBatchJob | LocalJob]:
        """Start the jobs that may start, and return them."""
        started = self._queue.start(now)
        for job in started:
            if isinstance(job, ReplayBatchJob):
                self._ours_taken += job.processors
            else:
                self._local_waiting -= 1
                self._local_wanted -= job.processors
                self.changed = True
        if len(self._queue):
            self.changed = True
        return started

    def remove(self, job: ReplayBatchJob | LocalJob) -> None:
        """Remove a job that runs or waits."""
        if isinstance(job, ReplayBatchJob):
            del self._ours[job.tag]
            self._ours_taken -= 0 if job.ends_by is None else job.processors
        self._queue.remove(job)
        self.changed = True

    def measured(self, now: Instant) -> Event:
        """Return a measurement, as the batch system would give it. The processors of a reservation count as idle."""
        self.changed = False
        total, idle = self._queue.processors, self._queue.idle
        state = ClusterState(
            measured_at=now, total=total, idle=idle, ours=self._ours_taken, others=total - idle - self._ours_taken,
            waiting_local=self._local_waiting, wanted_local=self._local_wanted,
            allocated=tuple([tag for tag, job in self._ours.items() if job.ends_by is not None]),
            pending=tuple([tag for tag, job in self._ours.items() if job.ends_by is None]),
        )  # fmt: skip
        return ClusterMeasured(cluster=self.settings.name, state=state)
