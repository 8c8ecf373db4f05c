"""What a site manager is told of itself and of the sites that it is linked with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from koalapy.model.units import HOUR, MINUTE, Duration


class Relation(StrEnum):
    """What a neighbour is to a site: section 4.1. Siblings have the same parent, or none has one."""

    PARENT = "parent"
    CHILD = "child"
    SIBLING = "sibling"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """`threshold`: of a site's load, above which requests are delegated; 1.0 is all of its processors.

    `delegation_interval`, `matchmaking_interval`: between two cycles of the one and the other kind. `dttl`: how many
    links a request of this site may be passed over, if its user does not say less. `seen_for`: how long a request that
    came by is remembered, and not taken again in the same round. `max_passes`: matchmaking cycles in which a request
    that does not fit is passed by those behind it; after these nobody passes it any more. `reports`: whether neighbours
    tell each other how much is free; without, every neighbour counts as one that never said.
    """

    name: str
    processors: int = 0  # none: the site is administrative
    neighbours: Mapping[str, Relation] = field(default_factory=dict)
    threshold: float = 1.0
    delegation_interval: Duration = MINUTE
    matchmaking_interval: Duration = Duration(5 * MINUTE)
    dttl: int = 4
    max_passes: int = 48
    seen_for: Duration = HOUR
    reports: bool = True
