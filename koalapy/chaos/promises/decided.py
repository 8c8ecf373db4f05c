"""One decision and its basis, which the checkers of decisions read."""

from collections.abc import Collection
from dataclasses import dataclass

from koalapy.chaos.promises.knowledge import ClusterKnowledge, KnownCluster
from koalapy.chaos.promises.processors import Processors
from koalapy.engine import Engine
from koalapy.model.identity import AttemptId
from koalapy.model.units import Instant


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
