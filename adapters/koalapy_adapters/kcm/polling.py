"""How often the batch system is asked what is free: as seldom as the grid file says, unless something waits on it, or
sweeps have nodes there, which others may want back.

To see that somebody waits takes less than to measure a cluster. So where the dialect knows how, a glance at the queue
is taken at the fast pace, and what it sees change is measured at once. All of it is paid for, but glances may run into
debt: measurements come in bursts, as Launchers begin and end, and a local job that came after one would wait until that
is paid. A measurement that is wanted soon waits until there is room in the debt for it, and glances make way for it.
"""

from collections import deque
from typing import Deque, List, Optional

from koalapy_adapters.kcm.actions import SECOND

URGENT = SECOND
SOON = SECOND // 5
COST_FACTOR = 100  # at least so many times the CPU time of a call lie between two calls
LAST_CALLS = 5  # whose mean is the cost of a call, since some ask more than others
CREDIT = 8 * SECOND  # so long a pause may be owed when a glance begins
SERVERS = 1.6  # to CPU time that is seen, what it is with that of servers, which cannot be seen: docs/benches.md


class Pace:
    """One call at a time; `poll` and `floor` in seconds. A batch system that fails is asked no faster than `poll`."""

    def __init__(self, poll: float, floor: float = 2.0, glances: bool = False) -> None:
        self.urgent = False
        self.scavenging = False  # Launchers hold nodes: no slower than the floor
        self._poll, self._floor = int(poll * SECOND), int(floor * SECOND)
        self._glances = glances  # whether the dialect knows how
        self._glimpse: Optional[List[str]] = None  # what the last glance saw
        self._unmeasured = False  # a glance saw something else, or nothing at all
        self._started_at: Optional[int] = None
        self._measured_at = 0
        self._running = False
        self._failed = False
        self._measures, self._glimpses = _Price(), _Price()
        self._price = self._measures  # of the last call
        self._owed_at = 0  # from when on the last call is to be paid
        self._soon_at: Optional[int] = None

    def soon(self, now: int) -> None:
        """Something changed: measure within SOON; what else changes until then is seen by the same call."""
        if self._soon_at is None:
            self._soon_at = now + SOON

    def due(self) -> Optional[int]:
        """When the next call may start; None while one runs."""
        if self._running:
            return None
        if self._started_at is None:
            return 0
        if self._unmeasured:
            return self._started_at
        if not self._glancing():
            return max(self._measure_at(), self._paid_at())
        return min(self._measure_due(), self._glance_due(self._started_at))

    def start(self, now: int) -> bool:
        """A call begins. Whether it is to measure; else it is to glance."""
        first = self._started_at is None
        measures = first or self._unmeasured or not self._glancing() or now >= self._measure_due()
        self._owed_at = now if first else max(now, self._paid_at())
        self._started_at, self._running = now, True
        self._price = self._measures if measures else self._glimpses
        if measures:
            self._measured_at, self._soon_at = now, None
        return measures

    def measured(self, cost: int, failed: bool) -> None:
        """It has ended; `cost` is its CPU time in microseconds, the commands' and the KCM's own."""
        if self._unmeasured and self._glimpse is None and not failed:
            self._glances = False  # that fails which nothing but glances ask
        self._running, self._failed, self._unmeasured = False, failed, False
        self._measures.add(cost)

    def glanced(self, cost: int, seen: Optional[List[str]]) -> None:
        """The glance has ended, and saw this; None: it failed."""
        self._running = False
        self._unmeasured = seen is None or seen != self._glimpse
        self._glimpse = seen
        self._glimpses.add(cost)

    def _glancing(self) -> bool:
        return self._glances and self.scavenging and not self._failed

    def _measure_at(self) -> int:
        hurries = [URGENT] * self.urgent + [self._floor] * (self.scavenging and not self._glances)
        at = self._measured_at + (self._poll if self._failed else min([self._poll, *hurries]))
        return at if self._soon_at is None else min(at, self._soon_at)

    def _measure_due(self) -> int:
        """Between glances: it leaves them in no more debt than they may run into."""
        return max(self._measure_at(), self._paid_at() - max(0, CREDIT - self._pause(self._measures)))

    def _glance_due(self, started_at: int) -> int:
        """While a measurement is wanted, half of what glances could take is left for it."""
        wanted = self._measure_at() <= started_at + self._floor
        gap = max(self._floor, 2 * self._pause(self._glimpses)) if wanted else self._floor
        return max(started_at + gap, self._paid_at() - CREDIT)

    def _paid_at(self) -> int:
        return self._owed_at + self._pause(self._price)

    def _pause(self, price: "_Price") -> int:
        """That a call of this price needs. What scavenging may cost includes what it has the head's servers do."""
        return COST_FACTOR * (int(SERVERS * price.mean) if self.scavenging else price.mean)


class _Price:
    """What calls of a kind cost of late, microseconds."""

    def __init__(self) -> None:
        self._costs: Deque[int] = deque(maxlen=LAST_CALLS)

    def add(self, cost: int) -> None:
        self._costs.append(cost)

    @property
    def mean(self) -> int:
        return sum(self._costs) // len(self._costs) if self._costs else 0
