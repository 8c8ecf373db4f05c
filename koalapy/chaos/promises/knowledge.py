"""The clusters as koalad knows them, and what it decided by that, which the checkers of decisions read.

All is kept apart from koalad's own information service: connections and measurements come from its events, processors
are counted on the nodes of the simulated batch systems.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
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
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.request import ComponentRequest
from koalapy.model.units import Instant
from koalapy.world.cluster.cluster import SimCluster


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


class Processors:
    """Counts the processors of a component as the batch system would allocate them on nodes that are all idle."""

    def __init__(self, clusters: Mapping[str, SimCluster]) -> None:
        self._clusters = clusters
        self._counted: dict[tuple[str, int, int | None], int] = {}

    def taken(self, cluster: str, component: ComponentRequest) -> int:
        """Return the processors that nobody else can use: with exclusive allocation, all of each node."""
        key = cluster, component.processors, component.processors_per_node
        if key not in self._counted:
            self._counted[key] = self._count(*key)
        return self._counted[key]

    def total(self, cluster: str) -> int:
        return sum(self._sizes(cluster))

    def nodes(self, cluster: str) -> int:
        return len(self._sizes(cluster))

    def _sizes(self, cluster: str) -> list[int]:
        return [node.processors for node in self._clusters[cluster].batch.nodes]

    def _count(self, cluster: str, processors: int, per_node: int | None) -> int:
        """Count node by node; demand beyond all nodes is counted on more nodes of the last one's size."""
        sizes, left, taken = iter(self._sizes(cluster)), processors, 0
        whole, size = self._clusters[cluster].batch.parameters.exclusive, self._sizes(cluster)[-1]
        while left > 0:
            size = next(sizes, size)
            part = min(left, size, per_node or size)
            taken += size if whole else part
            left -= part
        return taken


@dataclass(frozen=True, slots=True)
class Decided:
    """The engine that decided a change, the instant by koalad's clock, its knowledge, and the sizes of components.

    `given_up`: attempts on clusters that have left, which may run on there.
    """

    engine: Engine
    at: Instant
    knowledge: ClusterKnowledge
    processors: Processors
    given_up: Collection[AttemptId] = ()

    @property
    def usable(self) -> dict[str, KnownCluster]:
        """The clusters where claims may be made. Those that refuse one job after another are the engine's own."""
        known = self.engine.core.information.clusters
        return {
            name: seen
            for name, seen in self.knowledge.usable(self.at).items()
            if name in known and known[name].refused.trouble(self.at) is None
        }


def shared(seen: KnownCluster, engine: Engine, processors: Processors, later: Collection[JobId] = ()) -> int:
    """Return the processors that a sum over all attempts which the batch system does not show has twice.

    `later`: jobs that are claimed after this, and for which others were suspended only then.
    """
    assert seen.state is not None
    name, records, shown = seen.settings.name, engine.records, frozenset(seen.state.allocated)

    def taken(attempts: Collection[Attempt], coming: bool = False) -> int:
        counted = [each for each in attempts if not coming or tag_of(records.instance, each.id) not in shown]
        return sum(processors.taken(name, each.request) for each in counted)

    there = [each for each in records.live(name) if each.id.job in records.jobs]
    found = 0
    for other in {records.jobs[each.id.job].suspended_for for each in there} - {None, *later}:
        suspended = [each for each in there if records.jobs[each.id.job].suspended_for == other]
        its = [each for each in there if each.id.job == other]
        found += min(taken(suspended), taken(its), taken([*suspended, *its], coming=True))
    return found
