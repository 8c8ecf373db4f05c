"""The wait queue: by priority, lower first, then arrival; a job that was sent to the tail has arrived anew."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from koalapy.broker.shape import MinimumDemand, Shape, minimum_demand, shape_of
from koalapy.core.startup import StartupGate
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.matching import JobAd, job_ad
from koalapy.model.request import WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import Instant

_ORDER = frozenset({"request", "position", "waiting_since"})  # fields that a job's position depends on


class Position(NamedTuple):
    """A job's position in the wait queue; positions sort in the order of the queue."""

    priority: int
    number: int
    job: JobId


@dataclass(slots=True, eq=False)
class Waiting:
    """A waiting job, its position, its shape, its minimum demand, and the ads of its components that have one.

    `recheck`: whether it may be too large for the grid's present clusters. `patient`: it may enter batch queues by now.
    """

    job: Job
    position: Position
    shape: Shape
    minimum: MinimumDemand
    ads: tuple[JobAd, ...]
    recheck: bool = True
    patient: bool = False

    def held_by(self, gate: StartupGate) -> bool:
        """Return whether the job may have run, or may choose to run, on a cluster that is awaited after a start."""
        return gate.holds(self.job.written or self.job.request)


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return the waiting jobs, head first."""
    waiting = (job for job in jobs if job.state.queued)
    return sorted(waiting, key=lambda job: (job.request.priority, job.position))


class WaitQueue(Index):
    """An index of the jobs that wait to be placed. It knows which of them need no examination under any policy.

    `order`: all positions. `to_recheck`: those of jobs that may be too large for the grid's present clusters. `stale`:
    whether the next pass examines all jobs, since the timer of one has expired. `moved`: the first position where a
    job was added, removed or changed since the last `forget_moves`; None if there is none.
    """

    def __init__(self) -> None:
        self.order: list[Position] = []
        self.to_recheck: list[Position] = []
        self.stale = False
        self.moved: Position | None = None
        self._waiting: dict[JobId, Waiting] = {}
        self._by_size, self._patient = _BySize(), _BySize()
        self._arrivals: list[tuple[Instant, JobId]] = []  # a heap of jobs that may enter batch queues later
        self._sizes: object = None
        self.ads: dict[JobAd, int] = {}  # those of waiting jobs' components, and how many have each

    def __len__(self) -> int:
        return len(self.order)

    def at(self, position: Position) -> Waiting:
        """Return the waiting job at this position."""
        return self._waiting[position.job]

    def added(self, job: Job) -> None:
        if job.state.queued:
            self._enter(job)

    def queued_changed(self, job: Job, before: JobState, names: Collection[str]) -> None:
        old = self._waiting.get(job.id)
        waits = job.state.queued
        if old is None:
            if waits:
                self._enter(job)
        elif not waits:
            self._leave(old)
        elif _ORDER.isdisjoint(names):
            self._move(old.position)
        else:
            self._leave(old)
            self._enter(job)

    def forget_moves(self) -> None:
        """Set `moved` to None."""
        self.moved = None

    def let_queue(self, since: Instant) -> None:
        """Let jobs that have waited since this instant or longer enter batch queues, if their users want that."""
        while self._arrivals and self._arrivals[0][0] <= since:
            arrival, job = heapq.heappop(self._arrivals)
            waiting = self._waiting.get(job)
            if waiting is not None and not waiting.patient and waiting.job.waiting_since == arrival:
                waiting.patient = True
                self._patient.add(waiting)

    def recheck(self, sizes: object) -> None:
        """Recheck all jobs if the sizes of the clusters have changed."""
        if sizes is not self._sizes and sizes != self._sizes:
            self._sizes, self.to_recheck = sizes, list(self.order)
            for waiting in self._waiting.values():
                waiting.recheck = True

    def mark_feasible(self, end: Position | None) -> None:
        """Note that all jobs before `end` (None: all jobs) fit on the idle clusters."""
        known = len(self.to_recheck) if end is None else bisect_left(self.to_recheck, end)
        if known:
            for position in self.to_recheck[:known]:
                self._waiting[position.job].recheck = False
            del self.to_recheck[:known]

    def candidates(self, idle: int, backlog: int, since: Position | None = None) -> Iterator[Waiting]:
        """Yield, in order, the jobs that may be decided if the largest component that fits now has `idle` processors.

        `backlog`: the largest component, in processors, that some batch queue would take. `since`: the position to
        begin at; None begins at the head. The queue must not change during the iteration.
        """
        last = None
        next_of: list[tuple[Position, int, int, list[Position]]] = []  # a heap: the next position of each list
        lists = self._by_size.up_to(idle)
        if self._patient:
            lists += self._patient.up_to(backlog)
        if self.to_recheck:
            lists.append(self.to_recheck)
        for number, positions in enumerate(lists):
            index = 0 if since is None else bisect_left(positions, since)
            if index < len(positions):
                next_of.append((positions[index], number, index, positions))
        heapq.heapify(next_of)
        while next_of:
            position, number, index, positions = next_of[0]
            index += 1
            if index < len(positions):
                heapq.heapreplace(next_of, (positions[index], number, index, positions))
            else:
                heapq.heappop(next_of)
            if position is not last:
                last = position
                yield self._waiting[position.job]

    def _enter(self, job: Job) -> None:
        shape = shape_of(job.request)
        position = Position(job.request.priority, job.position, job.id)
        ads = tuple([ad for each in job.request.components if (ad := job_ad(each)) is not None])
        waiting = self._waiting[job.id] = Waiting(job, position, shape, minimum_demand(shape), ads)
        self._count_ads(ads, 1)
        insort(self.order, position)
        insort(self.to_recheck, position)
        self._by_size.add(waiting)
        if job.request.pilot is not None:
            waiting.patient = True
            self._patient.add(waiting)
        elif job.request.when_busy is WhenBusy.QUEUE and job.waiting_since is not None:
            heapq.heappush(self._arrivals, (job.waiting_since, job.id))
        self._move(position)

    def _leave(self, waiting: Waiting) -> None:
        del self._waiting[waiting.job.id]
        self._count_ads(waiting.ads, -1)
        _remove(self.order, waiting.position)
        if waiting.recheck:
            _remove(self.to_recheck, waiting.position)
        self._by_size.remove(waiting)
        if waiting.patient:
            self._patient.remove(waiting)
        self._move(waiting.position)

    def _count_ads(self, ads: Iterable[JobAd], change: int) -> None:
        for ad in ads:
            count = self.ads.pop(ad, 0) + change
            if count:
                self.ads[ad] = count

    def _move(self, position: Position) -> None:
        if self.moved is None or position < self.moved:
            self.moved = position


class _BySize:
    """Positions in order, by the largest component of their jobs, in processors."""

    def __init__(self) -> None:
        self._positions: dict[int, list[Position]] = {}

    def add(self, waiting: Waiting) -> None:
        """Add the position, which is not there yet."""
        positions = self._positions.get(waiting.minimum.largest)
        if positions is None:
            self._positions[waiting.minimum.largest] = [waiting.position]
        else:
            insort(positions, waiting.position)

    def remove(self, waiting: Waiting) -> None:
        positions = self._positions[waiting.minimum.largest]
        _remove(positions, waiting.position)
        if not positions:
            del self._positions[waiting.minimum.largest]

    def up_to(self, size: int) -> list[list[Position]]:
        return [positions for each, positions in self._positions.items() if each <= size]

    def __bool__(self) -> bool:
        return bool(self._positions)


def _remove(positions: list[Position], position: Position) -> None:
    """Remove the position, which is there."""
    del positions[bisect_left(positions, position)]
