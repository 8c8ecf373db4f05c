"""Who decided a change: what the promises that are asked of decisions look at."""

from dataclasses import dataclass

from koalapy.engine import Engine
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True)
class Decided:
    """The engine that decided a change, and when, by koalad's clock."""

    engine: Engine
    at: Instant
