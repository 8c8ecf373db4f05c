"""Who is nearer to the head and does not fit, as a queueing policy is told; found out only as far as it asks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from koalapy.core.wait_queue import Place, Waiting, WaitQueue
from koalapy.model.identity import JobId
from koalapy.policies.queueing import Blocked


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The first waiting job was passed so many times in this pass."""

    job: JobId
    times: int


class Ahead(Sequence[Blocked]):
    """Jobs that stay where they are, of all before a place; those that are `stalled` do not count.

    Where only stalled ones are ahead there is one that is no job: it counts for a policy that lets nobody pass, not
    against a bound on passing.
    """

    def __init__(self, queue: WaitQueue, stalled: Callable[[Waiting], bool]) -> None:
        self._queue = queue
        self._is_stalled = stalled
        self._place: Place | None = None
        self._decided: set[Place] = set()
        self._next = 0  # in the queue's order, of those not looked at
        self._blocked: list[Blocked] = []
        self._stalled = False
        self._passed = 0

    def come_to(self, place: Place) -> None:
        self._place = place

    def leave_out(self, place: Place) -> None:
        """It is decided, and out of the queue."""
        self._decided.add(place)

    def overtake(self) -> None:
        """The job at this place passes those ahead."""
        self._look(1)
        if self._blocked:
            self._passed += 1
            first = self._blocked[0]
            self._blocked[0] = Blocked(first.job, first.overtaken + 1)

    @property
    def overtaken(self) -> list[Overtaken]:
        return [Overtaken(JobId(self._blocked[0].job), self._passed)] if self._passed else []

    def __bool__(self) -> bool:
        self._look(1)
        return bool(self._blocked) or self._stalled

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Blocked: ...
    @overload
    def __getitem__(self, index: slice) -> list[Blocked]: ...
    def __getitem__(self, index: int | slice) -> Blocked | list[Blocked]:
        if index == 0:
            self._look(1)
            return (self._blocked or self._wall())[0]
        return self._all()[index]

    def _all(self) -> list[Blocked]:
        self._look(len(self._queue))
        return self._blocked or self._wall()

    def _wall(self) -> list[Blocked]:
        return [Blocked(0, -1)] if self._stalled else []

    def _look(self, enough: int) -> None:
        """Until so many are found."""
        order = self._queue.order
        while len(self._blocked) < enough and self._next < len(order):
            place = order[self._next]
            if self._place is None or place >= self._place:
                return
            self._next += 1
            waiting = self._queue.at(place)
            if place in self._decided:
                continue
            if self._is_stalled(waiting):
                self._stalled = True
            else:
                self._blocked.append(Blocked(waiting.job.id, waiting.job.overtaken))
