"""How many nodes sweeps can expect: learned from each cluster's own recent history, and held against what came true.

What a cluster had for sweeps at this hour of past weeks, drawn towards what it has had in the last hour; the
nearer the time that is asked about, the more the latter counts.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

from koalapy.model.hours import Offsets, offset_at
from koalapy.model.units import HOUR, MINUTE, Duration, Instant

HORIZON = HOUR
CHECK_EVERY = Duration(10 * MINUTE)
_MEMORY = Duration(2 * HOUR)  # after which a third is left of what was unusual
_VISITS = 4  # of an hour of the week: older ones fade
_HOURS_OF_A_WEEK = 7 * 24
_STEPS = 6  # a forecast is the mean over so many points of its horizon
_MOST_CHECKS = 1_000


@dataclass(frozen=True, slots=True)
class Check:
    """A forecast whose time is over: mean nodes over the horizon from `made_at` on, as predicted and as it was."""

    made_at: Instant
    predicted: float
    came_true: float


class Prediction:
    """Of the nodes that sweeps hold or could hold. `checks`: what was predicted and what came true, oldest first."""

    def __init__(self, horizon: Duration = HORIZON, offsets: Offsets = ()) -> None:
        self.checks: deque[Check] = deque(maxlen=_MOST_CHECKS)
        self._horizon, self._offsets = horizon, offsets
        self._pasts: dict[str, _Past] = {}
        self._pending: deque[tuple[Instant, float, float]] = deque()  # made at, predicted, node-time until then
        self._area, self._measured_at = 0.0, Instant(0)

    def observe(self, now: Instant, cluster: str, nodes: int) -> None:
        """From now on the cluster has so many nodes for sweeps, those that they hold included; 0 if it is away."""
        self._advance(now)
        past = self._pasts.get(cluster)
        if past is None:
            self._pasts[cluster] = _Past(now, nodes)
        else:
            past.advance(now, offset_at(now, self._offsets))
            past.nodes = nodes
        if not self._pending or now >= self._pending[-1][0] + CHECK_EVERY:
            self._pending.append((now, self.forecast(now), self._area))

    def forecast(self, now: Instant) -> float:
        """Mean nodes, of all clusters together, from now until the horizon."""
        leads = [Duration((2 * step + 1) * self._horizon // (2 * _STEPS)) for step in range(_STEPS)]
        offset = offset_at(now, self._offsets)
        return sum(past.expected(now, lead, offset) for past in self._pasts.values() for lead in leads) / _STEPS

    @property
    def known(self) -> bool:
        """Whether anything was ever observed."""
        return bool(self._pasts)

    @property
    def mean_error(self) -> float | None:
        """Nodes by which forecasts were off, in the mean; None before the first has come true."""
        if not self.checks:
            return None
        return sum(abs(each.predicted - each.came_true) for each in self.checks) / len(self.checks)

    def _advance(self, now: Instant) -> None:
        total = sum(past.nodes for past in self._pasts.values())
        while self._pending and self._pending[0][0] + self._horizon <= now:
            made_at, predicted, area = self._pending.popleft()
            then = self._area + total * (made_at + self._horizon - self._measured_at)
            self.checks.append(Check(made_at, predicted, (then - area) / self._horizon))
        self._area += total * (now - self._measured_at)
        self._measured_at = now


class _Past:
    """One cluster: what it has had lately, and in each hour of the week."""

    def __init__(self, now: Instant, nodes: int) -> None:
        self.nodes = nodes
        self._since = now
        self._most = nodes
        self._weekly: dict[int, tuple[float, float]] = {}  # hour of the week: (time that it was seen, mean nodes)

    def advance(self, now: Instant, offset: Duration) -> None:
        for hour, length in _stretches(self._since, now, offset):
            seen, mean = self._weekly.get(hour, (0.0, 0.0))
            seen = min(seen + length, _VISITS * HOUR)
            self._weekly[hour] = seen, mean + (self.nodes - mean) * min(1.0, length / seen)
        self._since = max(now, self._since)
        self._most = max(self._most, self.nodes)

    def expected(self, now: Instant, lead: Duration, offset: Duration) -> float:
        """What is usual then, and so much of what is unusual now as lasts until then."""
        usual_now, usual_then = self._usual(now, offset), self._usual(Instant(now + lead), offset)
        if usual_now is None or usual_then is None:
            return self.nodes
        expected = usual_then + (self.nodes - usual_now) * exp(-lead / _MEMORY)
        return min(max(0.0, expected), max(self._most, self.nodes))

    def _usual(self, instant: Instant, offset: Duration) -> float | None:
        """Of this hour of the week; of the same hour of the day before, if the week was never seen."""
        hour = _hour_of_week(instant, offset)
        found = self._weekly.get(hour) or self._weekly.get((hour - 24) % _HOURS_OF_A_WEEK)
        return found[1] if found else None


def _stretches(since: Instant, until: Instant, offset: Duration) -> Iterator[tuple[int, int]]:
    """The hours of the week between the two, and how long each was; a week of them at most, the last one."""
    at = max(since, until - _HOURS_OF_A_WEEK * HOUR)
    while at < until:
        end = min(until, at - (at + offset) % HOUR + HOUR)
        yield _hour_of_week(Instant(at), offset), end - at
        at = end


def _hour_of_week(instant: Instant, offset: Duration) -> int:
    return (instant + offset) // HOUR % _HOURS_OF_A_WEEK
