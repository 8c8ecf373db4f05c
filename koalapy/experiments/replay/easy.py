"""The queue of a batch system under EASY backfilling, for jobs that are processors and a walltime.

Jobs start first come, first served. The first one that does not fit has a reservation: the instant at which enough
processors are free if every running job lasts for its whole walltime. A later job may start before it if that does not
delay the reservation: it ends by then, or takes processors that the first one does not need (D. Lifka, "The ANL/IBM SP
scheduling system", JSSPP 1995). Only the first `DEPTH` waiting jobs are examined, as by Slurm (`bf_max_job_test`).
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from koalapy.model.units import Duration, Instant

DEPTH = 500


@dataclass(eq=False, slots=True, kw_only=True)
class QueuedJob:
    """A job of the queue. `ends_by`: of a running job, the end of its walltime."""

    processors: int
    walltime: Duration
    ends_by: Instant | None = None


class Reservation(NamedTuple):
    """When the first waiting job starts at the latest, and how many processors it leaves idle then."""

    at: Instant
    spare: int


Queued = TypeVar("Queued", bound=QueuedJob)
_NEVER = Instant(1 << 62)


class EasyQueue(Generic[Queued]):
    """The jobs of one cluster, whose jobs must not exceed its `processors` or their walltimes.

    After jobs were submitted or removed, `start` starts those that may start.
    """

    def __init__(self, processors: int) -> None:
        self.processors = self.idle = processors
        self._waiting: dict[Queued, None] = {}  # in order of submission
        self._running: list[tuple[Instant, int, Queued]] = []  # by the end of their walltimes
        self._starts = 0
        self._added: list[Queued] = []  # since the last start, behind jobs that do not fit
        self._all = False  # whether others than these may start now
        self._reserved = Reservation(_NEVER, 0)  # of the first waiting job, unless all may start

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return len(self._waiting)

    @property
    def waiting(self) -> Iterator[Queued]:
        """The waiting jobs, in order of submission."""
        return iter(self._waiting)

    @property
    def reserved(self) -> Reservation | None:
        """The reservation of the first waiting job, as the last `start` has made it; None if no job waits."""
        return self._reserved if self._waiting else None

    def submit(self, job: Queued) -> None:
        if self._waiting:
            self._added.append(job)
        else:
            self._all = True
        self._waiting[job] = None

    def remove(self, job: Queued) -> None:
        """Remove a job that runs or waits."""
        if job.ends_by is None:
            self._all = self._all or job is next(iter(self._waiting)) or len(self._waiting) > DEPTH
            del self._waiting[job]
            return
        place = bisect_left(self._running, job.ends_by, key=_ends_by)
        while self._running[place][2] is not job:
            place += 1
        del self._running[place]
        self.idle += job.processors
        self._all = True

    def start(self, now: Instant) -> list[Queued]:
        """Start all jobs that may start now, and return them.

        Only new jobs are examined if nothing else has changed: time alone lets no waiting job start.
        """
        started: list[Queued] = []
        candidates = [job for job in self._added if job in self._waiting]
        candidates = candidates[: max(0, DEPTH - len(self._waiting) + len(candidates))]
        if self._all:
            self._start_first_ones(now, started)
            self._reserved = self._reservation(now)
            candidates = list(islice(self._waiting, 1, DEPTH)) if self.idle else []
        self._added, self._all = [], False
        for job in candidates:
            if not self.idle:
                break
            at, spare = self._reserved
            in_time = now + job.walltime <= at
            if job.processors <= self.idle and (in_time or job.processors <= spare):
                if not in_time:
                    self._reserved = Reservation(at, spare - job.processors)
                self._run(job, now, started)
        return started

    def _start_first_ones(self, now: Instant, started: list[Queued]) -> None:
        while self._waiting:
            first = next(iter(self._waiting))
            if first.processors > self.idle:
                return
            self._run(first, now, started)

    def _run(self, job: Queued, now: Instant, started: list[Queued]) -> None:
        del self._waiting[job]
        job.ends_by = Instant(now + job.walltime)
        self._starts += 1
        insort(self._running, (job.ends_by, self._starts, job))
        self.idle -= job.processors
        started.append(job)

    def _reservation(self, now: Instant) -> Reservation:
        if not self._waiting:
            return Reservation(_NEVER, 0)
        needed, free = next(iter(self._waiting)).processors, self.idle
        for ends_by, _, job in self._running:
            free += job.processors
            if free >= needed:
                return Reservation(max(ends_by, now), free - needed)
        return Reservation(_NEVER, 0)  # it is larger than the cluster


def _ends_by(running: tuple[Instant, int, QueuedJob]) -> Instant:
    return running[0]
