"""The clusters as koalad knows them, kept apart from its own information service: connections and measurements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.events import (
    ClusterChanged,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    ClusterLost,
    ClusterMeasured,
    Event,
    MeasurementFailed,
)
from koalapy.model.units import Instant


@dataclass(slots=True)
class KnownCluster:
    """One cluster by koalad's events. `answers`: the newest event is a measurement, `state`.

    `met`: it was connected or reported as unreachable since koalad's start.
    """

    settings: ClusterSettings
    connected: bool = False
    answers: bool = False
    state: ClusterState | None = None
    met: bool = False

    def usable(self, now: Instant) -> bool:
        """Return whether claims may go to the cluster: it is not drained, and its measurement is recent.

        `now` is koalad's clock.
        """
        return (
            not self.settings.draining
            and self.answers
            and self.state is not None
            and now - self.state.measured_at <= self.settings.max_age
        )


class ClusterKnowledge:
    """The clusters of the grid by the events so far: `take` each batch of koalad's engine, `begin` at a restart."""

    def __init__(self, clusters: Sequence[ClusterSettings]) -> None:
        self.clusters: dict[str, KnownCluster] = {}
        self.begin(clusters)

    def begin(self, clusters: Sequence[ClusterSettings]) -> None:
        """Begin with these clusters, of which nothing is known."""
        self.clusters = {each.name: KnownCluster(each) for each in clusters}

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, ClusterJoined):
                self.clusters.setdefault(event.settings.name, KnownCluster(event.settings))
            elif isinstance(event, ClusterLeft):
                self.clusters.pop(event.name, None)
            elif isinstance(event, ClusterChanged):
                self._changed(event.settings)
            elif getattr(event, "cluster", "") not in self.clusters:
                continue  # a late report of a cluster that has left
            elif isinstance(event, ClusterMeasured):
                self._measured(self.clusters[event.cluster], event.state)
            elif isinstance(event, ClusterConnected):
                seen = self.clusters[event.cluster]
                seen.connected, seen.met, seen.answers, seen.state = True, True, False, None
            elif isinstance(event, ClusterLost):
                seen = self.clusters[event.cluster]
                seen.connected, seen.met, seen.answers = False, True, False
            elif isinstance(event, MeasurementFailed):
                self.clusters[event.cluster].answers = False

    def usable(self, now: Instant) -> dict[str, KnownCluster]:
        """Return the clusters where claims may be made."""
        return {name: seen for name, seen in self.clusters.items() if seen.usable(now)}

    def _changed(self, settings: ClusterSettings) -> None:
        if settings.name in self.clusters:
            self.clusters[settings.name].settings = settings

    @staticmethod
    def _measured(seen: KnownCluster, state: ClusterState) -> None:
        """Note a measurement, unless it is older than the last one."""
        if seen.state is None or state.measured_at >= seen.state.measured_at:
            seen.answers, seen.state = True, state
