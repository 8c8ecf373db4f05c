"""When the wait queue is looked through: not again where the last pass has decided all that can be decided."""

from collections.abc import Iterator

from koalapy.broker.availability import Availability
from koalapy.broker.placement_cache import PlacementCache
from koalapy.core.wait_queue import Position, WaitQueue
from koalapy.information.kis import Information
from koalapy.model.identity import JobId
from koalapy.model.settings import Settings
from koalapy.model.units import Instant
from koalapy.scheduler.schedule import Decision, Policies, schedule


class Passes:
    """One after the other over one wait queue, and the room that is known of on the clusters."""

    def __init__(
        self,
        queue: WaitQueue,
        information: Information,
        settings: Settings,
        policies: Policies,
        newest: JobId | None = None,
    ) -> None:
        """`newest`: the last job that was submitted before koalad started."""
        self.newest = newest
        self._queue, self._information = queue, information
        self._settings, self._policies = settings, policies
        self._answers = PlacementCache(policies.placement)
        self._room = Availability(())
        self._availability: int | None = None  # at which the clusters were found to have that room
        self._settled = False  # by the last pass: in this room it has decided all of who stands before its end
        self._end: Position | None = None  # from which on the last pass tried nobody

    def mark_stale(self) -> None:
        """A moment that a job of the queue waited for has come: what was read before may decide something else."""
        self._settled = False

    def decide(self, now: Instant) -> Iterator[Decision]:
        """The pass's decisions, each to be carried out before the next is taken."""
        if not self._queue:
            return
        self._look_at_clusters(now)
        since = self._queue.moved if self._settled else None
        if self._settled and (since is None or (self._end is not None and since > self._end)):
            return
        queueing = self._policies.queueing
        found = schedule(
            now, self._queue, self._room, self._answers, self._settings, queueing, since, self.newest
        )  # fmt: skip
        yield from found.decisions
        self._queue.forget_moves()  # they are the pass's own
        self._settled, self._end = found.settled, found.end
        if found.left is not self._room:
            self._room, self._availability = found.left, None  # expected; the clusters are to be asked

    def _look_at_clusters(self, now: Instant) -> None:
        """The room is the same one as long as no cluster has more or less of it."""
        summaries = self._information.summaries(now)
        if self._availability == self._information.availability_version:
            return
        self._availability = self._information.availability_version
        if not self._room.is_as(summaries):
            self._room, self._settled = Availability(summaries, self._room), False
