"""Promises about connections: when koalad repeats a login, and that wrappers are back at their relay soon.

A refused login is repeated a few times only. koalad reconnects soon after a long session.
"""

from collections.abc import Collection

from koalapy.chaos.violation import Promise, promise
from koalapy.link.reconnect import is_nonsense
from koalapy.link.session import LinkStatus
from koalapy.model.identity import AttemptId, Tag, attempt_of
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.world.world import World

_MOST_REFUSALS = 3
_SOON = Duration(6 * SECOND)  # a little longer than a login takes in this world


class Logins:
    """The checker of logins. Every instant is of the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._settled = Duration(round(world.koalad.timing.settled * SECOND))
        self.restarted()

    def restarted(self) -> None:
        """Begin anew with a koalad that remembers no refusal."""
        self._refused: dict[str, int] = {}  # in a row, by cluster
        self._accepted_at: dict[str, Instant] = {}  # the current session
        self._due: dict[str, tuple[Instant, Duration]] = {}  # the next login, and how long the host had slept before

    def retry_requested(self, cluster: str) -> None:
        """A person asks for another try."""
        self._refused.pop(cluster, None)

    def linked(self, cluster: str) -> None:
        """A new link to the cluster begins, which remembers nothing of an earlier one."""
        for each in (self._refused, self._accepted_at, self._due):
            each.pop(cluster, None)

    def dialed(self, cluster: str, outcome: str) -> None:
        """Check a login, whose `outcome` ClusterObserver names.

        Raises Violation for one that should not have been tried, or should have been tried before.
        """
        now = self._world.agenda.now
        due, slept = self._due.pop(cluster, (now, Duration(-1)))
        excused = slept != self._world.koalad.slept or self._world.clusters[cluster].logins_hang_until > due
        promise(now <= due or excused, Promise.RECONNECTED, cluster, "is tried", now - due, "us too late")
        if outcome == "refused":
            self._refused[cluster] = self._refused.get(cluster, 0) + 1
            promise(self._refused[cluster] <= _MOST_REFUSALS, Promise.LOGINS, cluster, "has refused", self._refused)
        elif outcome == "accepted":
            self._refused.pop(cluster, None)
            self._accepted_at[cluster] = now

    def connections(self) -> None:
        """Check that each connection of koalad is the one of a link."""
        process = self._world.koalad.process
        strays = [] if process is None else process.strays()
        promise(not strays, Promise.STRAYS, "koalad keeps connections to", *strays)

    def reported(self, status: LinkStatus) -> None:
        """A session was lost, or a try failed."""
        if status.reason is None:
            return
        now, began = self._world.agenda.now, self._accepted_at.pop(status.name, None)
        ended = is_nonsense(status.reason) or status.reason.code == "replaced"
        if began is not None and not ended and now - began >= self._settled:
            self._due[status.name] = Instant(now + _SOON), self._world.koalad.slept


PATIENCE = Duration(2 * MINUTE)  # to notice a dead connection, and for the longest pauses between two tries


class Contacts:
    """The checker of wrappers that run without their relay. `look` is called repeatedly once all faults have ended."""

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
