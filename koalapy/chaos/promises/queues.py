"""Promises about batch queues: other stores' jobs are not touched, no submit is doubled, no deadline is exceeded."""

import heapq
from collections.abc import Sequence

from koalapy.chaos.violation import Promise, promise
from koalapy.model.identity import InstanceId, Tag, attempt_of, is_tag
from koalapy.model.units import SECOND, Duration, Instant

_LATE = Duration(2 * SECOND)  # until a wrapper begins to leave, which may take longer


class Queues:
    """The checker of batch queues. `passes` is called with every event."""

    def __init__(self, instance: InstanceId) -> None:
        self._instance = instance
        self._looked: dict[tuple[object, Tag], None] = {}  # since the last submit
        self._waiting: dict[tuple[Tag, str], Instant] = {}  # wrappers at their barriers: their deadlines
        self._deadlines: list[tuple[Instant, Tag, str]] = []

    def touched(self, cluster: str, verb: str, batch_id: str, name: str) -> None:
        """Check that a batch job that a KCM has changed is koalapy's."""
        ours = is_tag(name) and attempt_of(Tag(name))[0] == self._instance
        promise(ours, Promise.OTHERS, f"{verb} of {batch_id} on {cluster}, which is {name}")

    # ---- submits

    def looking(self, kcm: object, tag: Tag) -> None:
        """A KCM looks whether the tag is in the queue."""
        self._looked[kcm, tag] = None

    def submitting(self, kcm: object, tag: Tag, listed: Sequence[str]) -> None:
        """Check a submit of a tag that is in the queue as `listed`: the KCM must have looked before."""
        looked = (kcm, tag) in self._looked
        promise(looked or not listed, Promise.DOUBT, tag, "is submitted though it is there as", *listed)
        self._looked.pop((kcm, tag), None)

    # ---- barriers

    def reached_barrier(self, tag: Tag, batch_id: str, deadline: Instant) -> None:
        self._waiting[tag, batch_id] = deadline
        heapq.heappush(self._deadlines, (deadline, tag, batch_id))

    def left_barrier(self, tag: Tag, batch_id: str) -> None:
        """The wrapper was released, or has ended."""
        self._waiting.pop((tag, batch_id), None)

    def passes(self, now: Instant) -> None:
        while self._deadlines and self._deadlines[0][0] + _LATE < now:
            deadline, tag, batch_id = heapq.heappop(self._deadlines)
            waits = self._waiting.get((tag, batch_id)) == deadline
            promise(not waits, Promise.DEADLINE, tag, "is still at its barrier in", batch_id)
