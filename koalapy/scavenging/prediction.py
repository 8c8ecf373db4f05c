"""Prediction of the nodes that sweeps can expect, from each cluster's recent history, with checks of past forecasts.

A forecast for a cluster is its usual number of nodes at that hour of the week, plus the present deviation from it. The
deviation counts less the further the forecast looks ahead.
"""

from collections import deque
from collections.abc import Collection, Iterator
from math import exp

from koalapy.model.hours import Offsets, offset_at
from koalapy.model.learned import NOTHING, Check, Hour, Learned, Past
from koalapy.model.units import HOUR, MINUTE, Duration, Instant

HORIZON = HOUR
CHECK_EVERY = Duration(10 * MINUTE)
SETTLED = Duration(MINUTE)  # after the first observation: by then all reachable clusters are measured
_MEMORY = Duration(2 * HOUR)  # after this time about a third of a deviation is left
_VISITS = 4  # weeks that the mean of an hour of the week covers; older ones fade
_HOURS_OF_A_WEEK = 7 * 24
_STEPS = 6  # a forecast is the mean over this many points of its horizon
_MOST_CHECKS = 7 * 24 * 6  # the checks of a week


class Prediction:
    """Forecast of the nodes that sweeps hold or could hold.

    `checks`: past forecasts and what was then observed, the oldest first. `learned`: what a former koalad learned. A
    forecast whose time was not observed to its end gives no check.
    """

    def __init__(self, horizon: Duration = HORIZON, offsets: Offsets = (), learned: Learned = NOTHING) -> None:
        self.checks: deque[Check] = deque(learned.checks, maxlen=_MOST_CHECKS)
        self._horizon, self._offsets = horizon, offsets
        self._pasts = {past.cluster: _Watched(past) for past in learned.pasts}
        self._begun: Instant | None = None
        self._news = False  # whether a forecast was noted since the last `to_keep`
        self._pending: deque[tuple[Instant, float, float]] = deque()  # made at, predicted, node-time until then
        self._area, self._measured_at = 0.0, Instant(0)

    def observe(self, now: Instant, cluster: str, nodes: int) -> None:
        """Note that from now on the cluster has `nodes` nodes for sweeps, including those that they hold.

        An unreachable cluster has 0.
        """
        self._advance(now)
        past = self._pasts.setdefault(cluster, _Watched(Past(cluster, nodes)))
        past.observe(now, nodes, offset_at(now, self._offsets))
        if now >= self._next_note(now):
            self._pending.append((now, self.forecast(now), self._area))
            self._news = True

    def forget_all_but(self, clusters: Collection[str]) -> None:
        """Drop what was learned about clusters that have left the grid."""
        self._pasts = {name: past for name, past in self._pasts.items() if name in clusters}

    def to_keep(self) -> Learned | None:
        """Return what a later koalad should begin with, if a forecast was noted since the last call; else None."""
        if not self._news:
            return None
        self._news = False
        return Learned(tuple(past.kept() for past in self._pasts.values()), tuple(self.checks))

    def forecast(self, now: Instant) -> float:
        """Return the expected nodes on all clusters together, averaged from now until the horizon."""
        leads = [Duration((2 * step + 1) * self._horizon // (2 * _STEPS)) for step in range(_STEPS)]
        offset = offset_at(now, self._offsets)
        return sum(past.expected(now, lead, offset) for past in self._pasts.values() for lead in leads) / _STEPS

    @property
    def known(self) -> bool:
        """Return whether a cluster was ever observed."""
        return bool(self._pasts)

    @property
    def mean_error(self) -> float | None:
        """The mean absolute error of the forecasts, in nodes; None before the first check."""
        if not self.checks:
            return None
        return sum(abs(each.predicted - each.came_true) for each in self.checks) / len(self.checks)

    def _next_note(self, now: Instant) -> Instant:
        if self._pending:
            return Instant(self._pending[-1][0] + CHECK_EVERY)
        self._begun = self._begun or now
        return Instant(self._begun + SETTLED)

    def _advance(self, now: Instant) -> None:
        total = sum(past.nodes or 0 for past in self._pasts.values())
        while self._pending and self._pending[0][0] + self._horizon <= now:
            made_at, predicted, area = self._pending.popleft()
            then = self._area + total * (made_at + self._horizon - self._measured_at)
            self.checks.append(_rounded(made_at, predicted, (then - area) / self._horizon))
        self._area += total * (now - self._measured_at)
        self._measured_at = now


class _Watched:
    """One cluster: its present nodes (None before the first observation), and its mean in each hour of the week."""

    def __init__(self, past: Past) -> None:
        self.nodes: int | None = None
        self._cluster, self._most = past.cluster, past.most
        self._since = Instant(0)
        self._weekly = {each.hour: (each.seen, each.mean) for each in past.hours}

    def observe(self, now: Instant, nodes: int, offset: Duration) -> None:
        if self.nodes is not None:
            self._learn(now, self.nodes, offset)
        self.nodes, self._since = nodes, max(now, self._since)
        self._most = max(self._most, nodes)

    def kept(self) -> Past:
        hours = (Hour(hour, round(seen), round(mean, 3)) for hour, (seen, mean) in sorted(self._weekly.items()))
        return Past(self._cluster, self._most, tuple(hours))

    def _learn(self, now: Instant, nodes: int, offset: Duration) -> None:
        for hour, length in _stretches(self._since, now, offset):
            seen, mean = self._weekly.get(hour, (0.0, 0.0))
            seen = min(seen + length, _VISITS * HOUR)
            self._weekly[hour] = seen, mean + (nodes - mean) * min(1.0, length / seen)

    def expected(self, now: Instant, lead: Duration, offset: Duration) -> float:
        """Return the expected nodes: what is usual then, plus the part of today's deviation that lasts until then."""
        usual_now, usual_then = self._usual(now, offset), self._usual(Instant(now + lead), offset)
        if self.nodes is None:
            return usual_then or 0.0
        if usual_now is None or usual_then is None:
            return self.nodes
        expected = usual_then + (self.nodes - usual_now) * exp(-lead / _MEMORY)
        return min(max(0.0, expected), self._most)

    def _usual(self, instant: Instant, offset: Duration) -> float | None:
        """Return the mean of this hour of the week, or of the same hour a day before if the week was never seen."""
        hour = _hour_of_week(instant, offset)
        found = self._weekly.get(hour) or self._weekly.get((hour - 24) % _HOURS_OF_A_WEEK)
        return found[1] if found else None


def _stretches(since: Instant, until: Instant, offset: Duration) -> Iterator[tuple[int, int]]:
    """Yield each hour of the week between the instants, and its length in microseconds; at most the last week."""
    at = max(since, until - _HOURS_OF_A_WEEK * HOUR)
    while at < until:
        end = min(until, at - (at + offset) % HOUR + HOUR)
        yield _hour_of_week(Instant(at), offset), end - at
        at = end


def _rounded(made_at: Instant, predicted: float, came_true: float) -> Check:
    """Round to 0.001 node, so that the stored and the displayed value agree."""
    return Check(made_at, round(predicted, 3), round(came_true, 3))


def _hour_of_week(instant: Instant, offset: Duration) -> int:
    return (instant + offset) // HOUR % _HOURS_OF_A_WEEK
