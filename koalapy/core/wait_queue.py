"""The wait queue: by priority, lower first, then arrival; a job that was sent to the tail has arrived anew."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koalapy.broker.shape import Need, Shape, need_of, shape_of
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import WhenBusy
from koalapy.model.units import Instant


class Place(NamedTuple):
    """Where a job stands: places are in the order of the queue."""

    priority: int
    place: int
    job: JobId


class Waiting(NamedTuple):
    job: Job
    place: Place
    shape: Shape
    need: Need


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The waiting jobs, head first; sweeps wait for other things."""
    waiting = (job for job in jobs if job.state.queued and job.runner is None)
    return sorted(waiting, key=lambda job: (job.request.priority, job.place))


class WaitQueue:
    """An index over the jobs. It knows which waiting jobs need not be looked at, whatever policies there are.

    `order`: all places. `doubted`: places of jobs that may be too large for the grid's present clusters. `moved`: the
    first place where a job has come, gone or changed since moves were last forgotten, None if none has.
    """

    def __init__(self) -> None:
        self.order: list[Place] = []
        self.doubted: list[Place] = []
        self.moved: Place | None = None
        self._waiting: dict[JobId, Waiting] = {}
        self._by_size, self._patient = _BySize(), _BySize()
        self._arrivals: list[tuple[Instant, JobId]] = []  # a heap of those that wait until they may be patient
        self._sizes: object = None

    def __len__(self) -> int:
        return len(self.order)

    def at(self, place: Place) -> Waiting:
        return self._waiting[place.job]

    def changed(self, before: Job | None, after: Job | None) -> None:
        job = after or before
        old = self._waiting.get(job.id) if job is not None else None
        waits = after is not None and after.state.queued and after.runner is None
        if old is None and not waits:
            return
        if not waits or after is None:
            assert old is not None
            self._leave(old)
        elif old is None:
            self._enter(after)
        elif _stands_as(old.job, after):
            self._waiting[after.id] = old._replace(job=after)
            self._move(old.place)
        else:
            self._leave(old)
            self._enter(after)

    def forget_moves(self) -> None:
        self.moved = None

    def pass_time(self, since: Instant) -> None:
        """Jobs that wait since then, or longer, may go into batch queues if they would rather."""
        while self._arrivals and self._arrivals[0][0] <= since:
            arrival, job = heapq.heappop(self._arrivals)
            waiting = self._waiting.get(job)
            if waiting is not None and waiting.job.waiting_since == arrival:
                self._patient.add(waiting)

    def doubt(self, sizes: object) -> None:
        """What fits on clusters of some sizes may not fit on those of others."""
        if sizes != self._sizes:
            self._sizes, self.doubted = sizes, list(self.order)

    def doubts(self, place: Place) -> bool:
        return bool(self.doubted) and _find(self.doubted, place) is not None

    def trust(self, end: Place | None) -> None:
        """Whoever is nearer to the head than that (None: everybody) fits, if nobody else were there."""
        del self.doubted[: len(self.doubted) if end is None else bisect_left(self.doubted, end)]

    def worth_a_look(self, idle: int, backlog: int, since: Place | None = None) -> Iterator[Waiting]:
        """In order, those of which something may be decided where the largest component that fits has this size.

        `backlog`: that any batch queue would take. `since`: only who stands there or behind. The queue must not change
        meanwhile.
        """
        last = None
        lists = [*self._by_size.up_to(idle), *self._patient.up_to(backlog), self.doubted]
        if since is not None:
            lists = [places[bisect_left(places, since) :] for places in lists]
        for place in heapq.merge(*lists):
            if place is not last:
                last = place
                yield self._waiting[place.job]

    def _enter(self, job: Job) -> None:
        shape = shape_of(job.request)
        place = Place(job.request.priority, job.place, job.id)
        waiting = self._waiting[job.id] = Waiting(job, place, shape, need_of(shape))
        insort(self.order, place)
        insort(self.doubted, place)
        self._by_size.add(waiting)
        if job.request.when_busy is WhenBusy.QUEUE and job.waiting_since is not None:
            heapq.heappush(self._arrivals, (job.waiting_since, job.id))
        self._move(place)

    def _leave(self, waiting: Waiting) -> None:
        del self._waiting[waiting.job.id]
        _remove(self.order, waiting.place)
        _remove(self.doubted, waiting.place)
        self._by_size.remove(waiting)
        self._patient.remove(waiting)
        self._move(waiting.place)

    def _move(self, place: Place) -> None:
        self.moved = place if self.moved is None else min(place, self.moved)


def _stands_as(before: Job, after: Job) -> bool:
    """Whether it is in the same place, for the same, since the same instant."""
    same = before.request is after.request or before.request == after.request
    return same and before.place == after.place and before.waiting_since == after.waiting_since


class _BySize:
    """Places in order, for each size."""

    def __init__(self) -> None:
        self._places: dict[int, list[Place]] = {}

    def add(self, waiting: Waiting) -> None:
        """Once, however often it is added."""
        places = self._places.setdefault(waiting.need.largest, [])
        if _find(places, waiting.place) is None:
            insort(places, waiting.place)

    def remove(self, waiting: Waiting) -> None:
        places = self._places.get(waiting.need.largest, [])
        if _remove(places, waiting.place) and not places:
            del self._places[waiting.need.largest]

    def up_to(self, size: int) -> list[list[Place]]:
        return [places for each, places in self._places.items() if each <= size]


def _remove(places: list[Place], place: Place) -> bool:
    found = _find(places, place)
    if found is not None:
        del places[found]
    return found is not None


def _find(places: list[Place], place: Place) -> int | None:
    found = bisect_left(places, place)
    return found if found < len(places) and places[found] == place else None
