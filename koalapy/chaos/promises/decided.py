"""Who decided a change, and on what: what the promises that are asked of decisions look at."""

from dataclasses import dataclass

from koalapy.chaos.promises.knowledge import ClusterKnowledge
from koalapy.chaos.promises.processors import Processors
from koalapy.engine import Engine
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True)
class Decided:
    """The engine that decided a change, when by koalad's clock, what it had been told, and what components take."""

    engine: Engine
    at: Instant
    knowledge: ClusterKnowledge
    processors: Processors
