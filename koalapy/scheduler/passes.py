"""When the wait queue is looked through: what the last pass has read decides nothing that it has not decided."""

from koalapy.broker.answers import Answers
from koalapy.broker.room import Room
from koalapy.information.kis import Information
from koalapy.model.settings import Settings
from koalapy.model.units import Instant
from koalapy.scheduler.queue import WaitQueue
from koalapy.scheduler.schedule import Decision, Policies, schedule


class Passes:
    """One after the other over one wait queue, and the room that is known of on the clusters."""

    def __init__(self, queue: WaitQueue, information: Information, settings: Settings, policies: Policies) -> None:
        self._queue, self._information = queue, information
        self._settings, self._policies = settings, policies
        self._answers = Answers(policies.placement)
        self._read: tuple[Room, int] | None = None  # by the last pass
        self._room_of: tuple[int, Room] | None = None

    def look_again(self) -> None:
        """A moment that a job of the queue waited for has come: what was read before may decide something else."""
        self._read = None

    def decide(self, now: Instant) -> list[Decision]:
        """The pass's decisions, to be carried out in this order before the next."""
        if not self._queue:
            return []
        room = self._room(now)
        if (room, self._queue.changes) == self._read:
            return []
        self._read = room, self._queue.changes
        return schedule(now, self._queue, room, self._answers, self._settings, self._policies.queueing)

    def _room(self, now: Instant) -> Room:
        """The same as long as no cluster has more or less of it."""
        views = self._information.views(now)
        known = self._room_of
        if known is None or known[0] != self._information.availability:
            room = Room(views, known[1] if known is not None else None)
            known = self._room_of = self._information.availability, room
        return known[1]
