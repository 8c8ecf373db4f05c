"""The promise about wrappers and their relay: in a healed world they are back in contact soon."""

from collections.abc import Collection

from koalapy.chaos.violation import Promise, promise
from koalapy.model.identity import AttemptId, Tag, attempt_of
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.world.world import World

PATIENCE = Duration(2 * MINUTE)  # to notice a dead connection, and for the longest pauses between two tries


class Contacts:
    """The checker of wrappers that run without their relay. `look` is called repeatedly in a healed world."""

    def __init__(self, world: World, given_up: Collection[AttemptId]) -> None:
        """`given_up`: attempts on clusters that have left: no koalad starts a KCM there."""
        self._world, self._given_up = world, given_up
        self._since: dict[tuple[str, str, int], Instant] = {}  # by cluster, wrapper and KCM

    def look(self) -> None:
        now, before = self._world.agenda.now, self._since
        self._since = {}
        for cluster in self._world.clusters.values():
            kcms = [kcm for kcm in cluster.kcms if kcm.serves]
            if not kcms or not cluster.environment.reaches_relay:
                continue
            for wrapper in cluster.wrappers:
                instance, attempt = attempt_of(Tag(wrapper.tag))
                if instance != self._world.instance or attempt in self._given_up or not wrapper.seeks_contact:
                    continue
                if wrapper.is_in_contact and kcms[-1].has(wrapper.tag):
                    continue
                key = cluster.name, wrapper.name, kcms[-1].number
                since = self._since[key] = before.get(key, now)
                soon = now - since <= PATIENCE
                promise(soon, Promise.BACK, wrapper.tag, "on", cluster.name, "is without its relay since", since)
