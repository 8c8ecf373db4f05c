"""One decision and its basis, which the checkers of decisions read."""

from collections.abc import Collection
from dataclasses import dataclass

from koalapy.chaos.promises.knowledge import ClusterKnowledge
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
