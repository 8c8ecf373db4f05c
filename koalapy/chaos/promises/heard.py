"""What koalad was told of its clusters, kept beside its own information service: connections and measurements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.events import ClusterConnected, ClusterLost, ClusterMeasured, Event, MeasurementFailed
from koalapy.model.units import Instant


@dataclass(slots=True)
class Told:
    """One cluster as koalad was told of it. `answers`: its newest news is a measurement, `state`.

    `met`: it was connected, or seen to be out of reach, since koalad started.
    """

    settings: ClusterSettings
    connected: bool = False
    answers: bool = False
    state: ClusterState | None = None
    met: bool = False

    def usable(self, now: Instant) -> bool:
        """Whether claims may go there: its measurement is not too old. `now` is koalad's clock."""
        return self.answers and self.state is not None and now - self.state.measured_at <= self.settings.max_age


class Heard:
    """`take` every batch of events that koalad's engine is handed; `forget` them where koalad starts anew."""

    def __init__(self, clusters: Sequence[ClusterSettings]) -> None:
        self._settings = clusters
        self.clusters: dict[str, Told] = {}
        self.forget()

    def forget(self) -> None:
        self.clusters = {each.name: Told(each) for each in self._settings}

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, ClusterMeasured):
                self._measured(self.clusters[event.cluster], event.state)
            elif isinstance(event, ClusterConnected):
                told = self.clusters[event.cluster]
                told.connected, told.met, told.answers, told.state = True, True, False, None
            elif isinstance(event, ClusterLost):
                told = self.clusters[event.cluster]
                told.connected, told.met, told.answers = False, True, False
            elif isinstance(event, MeasurementFailed):
                self.clusters[event.cluster].answers = False

    def usable(self, now: Instant) -> dict[str, Told]:
        """The clusters that claims may be on."""
        return {name: told for name, told in self.clusters.items() if told.usable(now)}

    @staticmethod
    def _measured(told: Told, state: ClusterState) -> None:
        """One that is older than the last is left aside."""
        if told.state is None or state.measured_at >= told.state.measured_at:
            told.answers, told.state = True, state
