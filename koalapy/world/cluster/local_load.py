"""The cluster's other users: their jobs come and go in the same queue, and so do those of another koalapy store."""

from random import Random

from koalapy.model.units import SECOND, Duration
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.batch_system import BatchSystem
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.random_streams import between

_DURATION = Duration(5 * SECOND), Duration(120 * SECOND)


class LocalLoad:
    """`load`: the mean part of the cluster's processors that they use; 0: there are none."""

    def __init__(self, agenda: Agenda, rng: Random, batch: BatchSystem, load: float) -> None:
        self._agenda, self._rng, self._batch, self._load = agenda, rng, batch, load
        self._jobs: dict[SimBatchJob, None] = {}
        if load > 0:
            self._agenda.after(self._pause(), self._come)

    def owns(self, job: SimBatchJob) -> bool:
        return job in self._jobs

    def add(self, name: str, processors: int, duration: Duration) -> SimBatchJob:
        """Add a job that runs so long."""
        job = self._batch.submit(name, processors, Duration(2 * duration), lambda job: _LocalJob(self, job, duration))
        self._jobs[job] = None
        return job

    def exited(self, job: SimBatchJob, body: "_LocalJob", exit_status: int) -> None:
        self._batch.exited(job, body, exit_status)

    @property
    def agenda(self) -> Agenda:
        return self._agenda

    def leave(self) -> None:
        """Add no more jobs; those that are there run to their end."""
        self._load = 0.0

    def _come(self) -> None:
        if self._load <= 0:
            return
        self._jobs = {job: None for job in self._jobs if not job.forgotten}
        processors = min(self._batch.size, 1 << self._rng.randrange(4))
        self.add("other", processors, between(self._rng, *_DURATION))
        self._agenda.after(self._pause(), self._come)

    def _pause(self) -> Duration:
        """Draw the pause before the next job, so that jobs of on average 4 processors and 40 s make up the load."""
        return Duration(round(self._rng.expovariate(self._load * self._batch.size / (4 * 40)) * SECOND) + 1)


class _LocalJob:
    """The processes of such a job."""

    def __init__(self, local_load: LocalLoad, job: SimBatchJob, duration: Duration) -> None:
        self._local_load, self._job, self._node = local_load, job, job.nodes[0][0]
        self.exit_status: int | None = None
        local_load.agenda.after(duration, lambda: self._end(0))

    def suspend(self) -> None:
        """Do nothing: a local job is not suspended."""

    def resume(self) -> None:
        """Do nothing: a local job is not suspended."""

    def terminate(self) -> None:
        self._end(143)

    def kill_on(self, node: SimNode) -> None:
        if node is self._node:
            self._end(137)

    def _end(self, exit_status: int) -> None:
        if self.exit_status is None:
            self.exit_status = exit_status
            if self._node.reachable:
                self._local_load.exited(self._job, self, exit_status)
