"""The scheduling passes over one wait queue; positions that the last pass decided are not examined again."""

from collections.abc import Iterator

from koalapy.broker.availability import Availability
from koalapy.broker.placement_cache import PlacementCache
from koalapy.broker.suitability import EVERY_CLUSTER
from koalapy.core.matching import Matching
from koalapy.core.startup import NOBODY_AWAITED, StartupGate
from koalapy.core.wait_queue import Position, WaitQueue
from koalapy.information.kis import Information
from koalapy.model.identity import JobId
from koalapy.model.settings import Settings
from koalapy.model.units import Instant
from koalapy.scheduler.schedule import Decision, Policies, schedule


class Passes:
    """The passes over one wait queue, and the availability that is expected after the last one."""

    def __init__(
        self,
        queue: WaitQueue,
        information: Information,
        settings: Settings,
        policies: Policies,
        newest: JobId | None = None,
        matching: Matching | None = None,
        gate: StartupGate = NOBODY_AWAITED,
    ) -> None:
        """Start with an unknown availability. `newest`: the last job that was submitted before koalad's start."""
        self.newest = newest
        self._queue, self._information = queue, information
        self._settings, self._policies = settings, policies
        self._matching = matching or Matching()
        self._gate = gate
        self._awaited: list[str] = []  # the clusters that were awaited in the last pass
        self._matched = 0  # the version of it at which all positions were decided
        self._answers = PlacementCache(policies.placement)
        self._room = Availability(())
        self._availability: int | None = None  # the version at which the availability was read
        self._settled = False  # whether the last pass decided all positions before its end
        self._end: Position | None = None  # the position where the last pass stopped

    def decide(self, now: Instant) -> Iterator[Decision]:
        """Yield the pass's decisions; each must be carried out before the next is taken."""
        if not self._queue.order:
            return
        self._look_at_clusters(now)
        if self._matched != self._matching.version:
            self._matched, self._settled = self._matching.version, False
        if (awaited := self._gate.missing) != self._awaited:
            self._awaited, self._settled = awaited, False
        if self._queue.stale:
            self._queue.stale = self._settled = False
        since = self._queue.moved if self._settled else None
        if self._settled and (since is None or (self._end is not None and since > self._end)):
            return
        queueing = self._policies.queueing
        found = schedule(
            now, self._queue, self._room, self._answers, self._settings, queueing, since, self.newest,
            self._matching.at(now) if self._queue.ads else EVERY_CLUSTER, self._gate,
        )  # fmt: skip
        yield from found.decisions
        self._queue.forget_moves()  # these moves are the result of this pass
        self._settled, self._end = found.settled, found.end
        if found.available is not self._room:
            self._room, self._availability = found.available, None  # expected only: the summaries are read again

    def _look_at_clusters(self, now: Instant) -> None:
        """Take over a changed availability; the object stays the same while no cluster's availability changes."""
        version = self._information.refresh(now)
        if version == self._availability:
            return
        self._availability, summaries = version, self._information.summaries(now)
        if not self._room.is_as(summaries):
            self._room, self._settled = Availability(summaries, self._room), False
