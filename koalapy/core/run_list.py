"""Index of the run list: the clusters on which jobs claim, and the jobs that hold only a part of their claim."""

import heapq
from collections.abc import Collection

from koalapy.core.due import MISSING, DueSteps
from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.units import Instant

_NOWHERE: list[str] = []
_FEW = 64  # stale entries of the heap that are not worth a new one


class RunList(Index):
    """An index of the jobs in the run list.

    `claimed_on`: by cluster, the attempts of claiming jobs that are not patient; a cluster without any is not in it.
    `split`: claiming jobs with one attempt whose batch job has started and another whose batch job has not.
    `dirty`: jobs that the next step examines. `timers`: their timers; `timers_dirty`: jobs whose timers are set
    anew. `missing`: jobs of which an attempt of this try is missing, or was. `races`: when a claiming job may enter
    further batch queues; None if it needs no more of them. One without an entry has never tried to.
    """

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.claimed_on: dict[str, int] = {}
        self.split: dict[JobId, None] = {}
        self.dirty: dict[JobId, None] = {}
        self.timers = JobTimers()
        self.timers_dirty: dict[JobId, None] = {}
        self.missing: dict[JobId, None] = {}
        self.races: dict[JobId, Instant | None] = {}
        self._claims: dict[JobId, list[str]] = {}

    def added(self, job: Job) -> None:
        self.mark_dirty(job.id)
        for attempt in job.live:
            if attempt.unknown_since is not None:
                self._note_missing(job)
        if job.state.claiming:
            self._survey(job)

    def changed(self, job: Job, before: JobState, names: Collection[str]) -> None:
        self.dirty[job.id] = self.timers_dirty[job.id] = None
        if ("state" in names or "attempts" in names) and (before.claiming or job.state.claiming):
            self._survey(job)
        if self.missing and not job.attempts:
            self.missing.pop(job.id, None)

    def attempt_changed(self, job: Job, attempt: Attempt, names: Collection[str]) -> None:
        self.dirty[job.id] = self.timers_dirty[job.id] = None
        if attempt.unknown_since is not None:
            self._note_missing(job)
        if job.state.claiming and ("allocated_at" in names or attempt.cleaned_up):
            self._survey(job)

    def dropped(self, job: Job) -> None:
        self.missing.pop(job.id, None)
        self.dirty.pop(job.id, None)
        self.timers_dirty.pop(job.id, None)  # it left the others when it became final

    def _note_missing(self, job: Job) -> None:
        self.missing[job.id] = None
        self._due.wake(MISSING)

    def _survey(self, job: Job) -> None:
        """Count the clusters on which the job claims, and update `split`."""
        live = [each for each in job.live if not each.candidate] if job.state.claiming else ()
        clusters = [] if job.patient else [attempt.cluster for attempt in live]
        if clusters != self._claims.get(job.id, _NOWHERE):
            self._count(job.id, clusters)
        if self.races and not job.state.claiming:
            self.races.pop(job.id, None)
        if len(live) > 1 and len({attempt.allocated_at is None for attempt in live}) > 1:
            self.split[job.id] = None
        elif self.split:
            self.split.pop(job.id, None)

    def mark_dirty(self, job: JobId) -> None:
        """Note that something has changed that the job depends on."""
        self.dirty[job] = self.timers_dirty[job] = None

    def _count(self, job: JobId, clusters: list[str]) -> None:
        claimed_on = self.claimed_on
        for cluster in self._claims.pop(job, _NOWHERE):
            claimed_on[cluster] -= 1
            if not claimed_on[cluster]:
                del claimed_on[cluster]
        for cluster in clusters:
            claimed_on[cluster] = claimed_on.get(cluster, 0) + 1
        if clusters:
            self._claims[job] = clusters


class JobTimers:
    """The next instant of each job at which time alone changes something, the earliest first.

    An entry of the heap counts while it equals its job's instant; others are dropped when they reach the top.
    """

    def __init__(self) -> None:
        self._moments: dict[JobId, Instant] = {}
        self._heap: list[tuple[Instant, JobId]] = []

    def set(self, job: JobId, moment: Instant | None) -> None:
        """Set the instant of the job; None removes it."""
        if moment is None:
            self._moments.pop(job, None)
            return
        if moment == self._moments.get(job):
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

    def expire(self, now: Instant) -> list[JobId]:
        """Return the jobs whose instant is reached, the earliest first, and remove their instants."""
        due: list[JobId] = []
        while (moment := self.next()) is not None and moment <= now:
            job = heapq.heappop(self._heap)[1]
            del self._moments[job]
            due.append(job)
        return due
