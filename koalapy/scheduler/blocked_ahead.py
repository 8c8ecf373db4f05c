"""The blocked jobs nearer to the head of the wait queue, as a queueing policy sees them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from koalapy.core.wait_queue import Position, Waiting, WaitQueue
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import JobId
from koalapy.policies.queueing import Blocked


@fast_frozen
@dataclass(frozen=True, slots=True)
class Overtaken:
    """The first waiting job, and how many jobs passed it in this pass."""

    job: JobId
    times: int


class BlockedAhead(Sequence[Blocked]):
    """The jobs before one position that stay where they are, without stalled ones.

    The queue is searched only as far as the policy reads the sequence. If only stalled jobs are ahead, the sequence has
    one entry that is not a job. It stops a policy that lets no job pass, and is within any bound on passing.
    """

    def __init__(self, queue: WaitQueue, stalled: Callable[[Waiting], bool]) -> None:
        self._queue = queue
        self._is_stalled = stalled
        self._position: Position | None = None
        self._skipped: set[Position] = set()
        self._next = 0  # index in the queue's order of the first position that was not searched
        self._blocked: list[Blocked] = []
        self._stalled = False
        self._passed = 0

    def advance(self, position: Position) -> None:
        """Move to a position further from the head."""
        self._position = position

    def skip(self, position: Position) -> None:
        """Leave out a job that was decided, and is no longer in the queue."""
        self._skipped.add(position)

    def overtake(self) -> None:
        """Count that the job at the present position passes those ahead."""
        self._search(1)
        if self._blocked:
            self._passed += 1
            first = self._blocked[0]
            self._blocked[0] = Blocked(first.job, first.overtaken + 1)

    @property
    def overtaken(self) -> list[Overtaken]:
        """The first blocked job with its count, if any job passed it; else an empty list."""
        return [Overtaken(JobId(self._blocked[0].job), self._passed)] if self._passed else []

    def __bool__(self) -> bool:
        if not self._blocked:
            self._search(1)
        return bool(self._blocked) or self._stalled

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> Blocked: ...
    @overload
    def __getitem__(self, index: slice) -> list[Blocked]: ...
    def __getitem__(self, index: int | slice) -> Blocked | list[Blocked]:
        if index == 0:
            self._search(1)
            return (self._blocked or self._sentinel())[0]
        return self._all()[index]

    def _all(self) -> list[Blocked]:
        self._search(len(self._queue))
        return self._blocked or self._sentinel()

    def _sentinel(self) -> list[Blocked]:
        return [Blocked(0, -1)] if self._stalled else []

    def _search(self, enough: int) -> None:
        """Search the queue until `enough` blocked jobs are found, or the present position is reached."""
        order = self._queue.order
        while len(self._blocked) < enough and self._next < len(order):
            position = order[self._next]
            if self._position is None or position >= self._position:
                return
            self._next += 1
            waiting = self._queue.at(position)
            if position in self._skipped:
                continue
            if self._is_stalled(waiting):
                self._stalled = True
            else:
                self._blocked.append(Blocked(waiting.job.id, waiting.job.overtaken))
