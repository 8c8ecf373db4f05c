"""What koalad has learned of its clusters' idle nodes by watching them, and keeps: no record tells it again."""

from dataclasses import dataclass
from typing import NamedTuple

from koalapy.model.units import Instant


class Hour(NamedTuple):
    """Of the week, counted from Thursday at 0:00: how long it was watched, microseconds, and mean nodes."""

    hour: int
    seen: float
    mean: float


class Check(NamedTuple):
    """A forecast whose time is over: mean nodes over the horizon from `made_at` on, as predicted and as it was."""

    made_at: Instant
    predicted: float
    came_true: float


@dataclass(frozen=True, slots=True)
class Past:
    """What a cluster has had for sweeps. `most`: nodes at any one time."""

    cluster: str
    most: int
    hours: tuple[Hour, ...] = ()


@dataclass(frozen=True, slots=True)
class Learned:
    """All of it, which is small: a week's hours of every cluster that the grid has, and the forecasts of a week."""

    pasts: tuple[Past, ...] = ()
    checks: tuple[Check, ...] = ()


NOTHING = Learned()
