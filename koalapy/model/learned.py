"""Observations of the clusters' idle nodes, which koalad keeps because no other record contains them."""

from dataclasses import dataclass
from typing import NamedTuple

from koalapy.model.units import Instant


class Hour(NamedTuple):
    """One hour of the week, counted from Thursday at 0:00: microseconds of observation, and mean nodes."""

    hour: int
    seen: float
    mean: float


class Check(NamedTuple):
    """A forecast whose horizon has passed: mean nodes from `made_at` to its end, as predicted and as observed."""

    made_at: Instant
    predicted: float
    came_true: float


@dataclass(frozen=True, slots=True)
class Past:
    """The nodes that a cluster has had for sweeps. `most`: the most nodes at any one time."""

    cluster: str
    most: int
    hours: tuple[Hour, ...] = ()


@dataclass(frozen=True, slots=True)
class Learned:
    """All observations, which are few: a week's hours of every cluster of the grid, and the forecasts of a week."""

    pasts: tuple[Past, ...] = ()
    checks: tuple[Check, ...] = ()


NOTHING = Learned()
