"""Timers of jobs: the next instant of each job at which time alone changes something, the earliest first."""

import heapq

from koalapy.model.identity import JobId
from koalapy.model.units import Instant

_FEW = 64


class Alarms:
    """At most one instant for each job.

    An entry of the heap counts while it equals its job's instant; others are dropped when they reach the top.
    """

    def __init__(self) -> None:
        self._moments: dict[JobId, Instant] = {}
        self._heap: list[tuple[Instant, JobId]] = []

    def set(self, job: JobId, moment: Instant | None) -> None:
        """Set the instant of the job; None removes it."""
        if moment == self._moments.get(job):
            return
        if moment is None:
            del self._moments[job]
            return
        self._moments[job] = moment
        heapq.heappush(self._heap, (moment, job))
        if len(self._heap) > 2 * len(self._moments) + _FEW:
            self._heap = sorted((moment, job) for job, moment in self._moments.items())

    def next(self) -> Instant | None:
        """Return the earliest instant that is set; None if none is."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: Instant) -> list[JobId]:
        """Return the jobs whose instant is reached, the earliest first, and remove their instants."""
        due = []
        while (moment := self.next()) is not None and moment <= now:
            job = heapq.heappop(self._heap)[1]
            del self._moments[job]
            due.append(job)
        return due
