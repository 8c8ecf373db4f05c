"""The settings of a site manager: the site itself, and the sites that it is linked with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koalapy.model.neighbour import Relation
from koalapy.model.units import HOUR, MINUTE, Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """The settings of one site.

    `threshold`: the load above which requests are delegated; 1.0 means all of the site's processors.
    `delegation_interval`, `matchmaking_interval`: the time between two cycles of each kind. `dttl`: how many links a
    request of this site may pass, if its user does not ask for fewer. `remember_for`: how long a request is remembered,
    and not accepted again in the same round. `max_passes`: matchmaking cycles in which others may pass a request that
    does not fit. `reports`: whether neighbours report their free processors to each other.
    """

    name: str
    processors: int = 0  # none: the site is administrative
    neighbours: Mapping[str, Relation] = field(default_factory=dict)
    threshold: float = 1.0
    delegation_interval: Duration = MINUTE
    matchmaking_interval: Duration = Duration(5 * MINUTE)
    dttl: int = 4
    max_passes: int = 48
    remember_for: Duration = HOUR
    reports: bool = True
