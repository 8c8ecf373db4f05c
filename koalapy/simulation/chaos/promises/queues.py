"""What may be done in a cluster's queue: nothing to jobs of others, nothing twice, nothing past a deadline."""

import heapq
from collections.abc import Collection

from koalapy.model.identity import InstanceId, Tag, attempt_of, is_tag
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.simulation.chaos.violation import Promise, promise

_LATE = Duration(30 * SECOND)  # for a wrapper that has to stop its nodes first
_OLD = Duration(2 * MINUTE)  # a batch job that every look would have found by now


class Queues:
    """Told by batch systems and wrappers; `passes` with every event."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self._entered: dict[tuple[str, str], dict[str, Instant]] = {}  # by cluster and name: when each came
        self._waiting: dict[tuple[Tag, str], Instant] = {}  # wrappers at their barriers: their deadlines
        self._deadlines: list[tuple[Instant, Tag, str]] = []

    def touched(self, cluster: str, verb: str, batch_id: str, name: str) -> None:
        """A KCM of ours did this to a batch job of that name."""
        ours = is_tag(name) and attempt_of(Tag(name))[0] == self._instance
        promise(ours, Promise.OTHERS, f"{verb} of {batch_id} on {cluster}, which is {name}")

    # ---- submits

    def entered(self, cluster: str, name: str, batch_id: str, now: Instant) -> None:
        self._entered.setdefault((cluster, name), {})[batch_id] = now

    def submitting(self, cluster: str, tag: Tag, listed: Collection[str], now: Instant) -> None:
        """A KCM begins to submit: no batch job of this tag stands in the queue, `listed`, for everybody to see."""
        for batch_id, since in self._entered.get((cluster, tag), {}).items():
            again = batch_id in listed and now - since > _OLD
            promise(not again, Promise.DOUBT, tag, "is submitted though it is there as", batch_id)

    # ---- barriers

    def came(self, tag: Tag, batch_id: str, deadline: Instant) -> None:
        self._waiting[tag, batch_id] = deadline
        heapq.heappush(self._deadlines, (deadline, tag, batch_id))

    def went(self, tag: Tag, batch_id: str) -> None:
        """Released, or over."""
        self._waiting.pop((tag, batch_id), None)

    def passes(self, now: Instant) -> None:
        while self._deadlines and self._deadlines[0][0] + _LATE < now:
            deadline, tag, batch_id = heapq.heappop(self._deadlines)
            waits = self._waiting.get((tag, batch_id)) == deadline
            promise(not waits, Promise.DEADLINE, tag, "still stands at its barrier in", batch_id)
