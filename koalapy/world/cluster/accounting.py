"""The accounting of a simulated batch system: its records of jobs that have ended, if it keeps any."""

from random import Random

from koalapy_adapters.batch.protocol import JobStatus

from koalapy.model.units import Instant
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.batch_parameters import BatchParameters
from koalapy.world.random_streams import between


class Accounting:
    """The records of ended jobs. A record can be read only some time after the job's end."""

    def __init__(self, agenda: Agenda, rng: Random, parameters: BatchParameters) -> None:
        self._agenda, self._rng, self._parameters = agenda, rng, parameters
        self._entries: dict[str, list[tuple[Instant, JobStatus]]] = {}

    def enter(self, job: SimBatchJob, ran: bool) -> None:
        """Record a job that has just ended. `ran`: the job had been started."""
        if self._parameters.accounting and not job.lost and (ran or not self._parameters.forgets_unstarted):
            at = Instant(self._agenda.now + between(self._rng, *self._parameters.accounting_delay))
            self._entries.setdefault(job.name, []).append((at, job.status()))

    def clear(self) -> None:
        self._entries.clear()

    def newest(self, name: str) -> JobStatus | None:
        """Return the status in the newest record of this name that can be read by now. None if there is none."""
        known = [status for at, status in self._entries.get(name, ()) if at <= self._agenda.now]
        return known[-1] if known else None
