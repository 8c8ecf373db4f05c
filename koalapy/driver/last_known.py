"""The knowledge of each cluster that no store keeps: its newest events, for a new engine, and its sessions."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from koalapy.model.errors import Reason
from koalapy.model.events import ClusterConnected, ClusterLeft, ClusterLost, ClusterMeasured, Event, MeasurementFailed
from koalapy.model.identity import is_site

_MEASURED = (ClusterMeasured, MeasurementFailed)
_KEPT = (ClusterConnected, ClusterLost, ClusterMeasured, MeasurementFailed)


class LastKnown:
    """The newest events of each cluster, and of each cluster and neighbouring site the newest sessions.

    A session is named by its epoch; a later one has a greater epoch.
    """

    def __init__(self) -> None:
        self._events: dict[str, tuple[Event, ...]] = {}
        self._newest: dict[str, int] = {}  # the epoch of the newest session that brought events
        self._ended: dict[str, int] = {}  # the epoch of the newest session that has ended

    @property
    def clusters(self) -> list[str]:
        """The clusters of which something is known, in the order in which that began."""
        return list(self._events)

    def of(self, cluster: str) -> tuple[Event, ...]:
        """Return the events by which a new engine knows the cluster's state; empty if nothing is known of it."""
        return self._events.get(cluster, ())

    def is_lost(self, cluster: str) -> bool:
        """Return whether the cluster is known to be out of reach."""
        return isinstance(next(iter(self.of(cluster)), None), ClusterLost)

    def has_ended(self, session: tuple[str, int]) -> bool:
        """Return whether this session, or a later one with the same cluster or site, has ended."""
        name, epoch = session
        return epoch <= self._ended.get(name, -1)

    def learn(self, events: Iterable[Event], session: tuple[str, int] | None, left: Collection[str]) -> None:
        """Keep the newest events of each cluster that are committed now, and the session that brought them.

        Nothing is kept of clusters that have `left` the grid.
        """
        if session is not None:
            self._newest[session[0]] = session[1]
        for event in events:
            if isinstance(event, ClusterLeft):
                self._events.pop(event.name, None)
            if not isinstance(event, _KEPT) or event.cluster in left:
                continue
            kept: Sequence[Event] = ()
            before = self.of(event.cluster)
            if isinstance(event, ClusterConnected):
                kept = [each for each in before if isinstance(each, ClusterConnected) and each.recalled][-1:]
            elif isinstance(event, _MEASURED):
                kept = [each for each in before if not isinstance(each, _MEASURED)]
            self._events[event.cluster] = (*kept, event)

    def end_newest(self, name: str, epochs: Iterable[int] = ()) -> None:
        """Note that the newest session with this cluster or site has ended, and those of these epochs."""
        self._ended[name] = max([self._ended.get(name, -1), self._newest.get(name, -1), *epochs])

    def end(self, sessions: Mapping[str, int]) -> None:
        """Note that these sessions have ended: by cluster or site, their epochs."""
        self._ended |= sessions

    def quarantine(self, name: str, reason: Reason, epochs: Iterable[int]) -> None:
        """End the sessions with this cluster or site, those of these epochs too. A cluster then counts as lost."""
        self.end_newest(name, epochs)
        if not is_site(name):
            self._events[name] = (ClusterLost(cluster=name, reason=reason),)
