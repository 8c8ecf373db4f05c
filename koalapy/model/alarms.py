"""When time alone changes something: the next moment of every job, the earliest first."""

import heapq

from koalapy.model.identity import JobId
from koalapy.model.units import Instant

_FEW = 64


class Alarms:
    """One moment a job. An entry of the heap counts while it is still its job's moment; others fall off at its top."""

    def __init__(self) -> None:
        self._moments: dict[JobId, Instant] = {}
        self._heap: list[tuple[Instant, JobId]] = []

    def set(self, job: JobId, moment: Instant | None) -> None:
        """None: the job waits for no moment."""
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
        """The earliest moment that is set."""
        heap = self._heap
        while heap and self._moments.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: Instant) -> list[JobId]:
        """The jobs whose moment has come, the earliest first; their moments are no longer set."""
        due = []
        while (moment := self.next()) is not None and moment <= now:
            job = heapq.heappop(self._heap)[1]
            del self._moments[job]
            due.append(job)
        return due
