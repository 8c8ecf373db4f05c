"""How often the batch system is asked what is free: as seldom as the grid file says, unless something waits on it, or
sweeps have nodes there, which others may want back.
"""

from collections import deque
from typing import Deque, Optional

from koalapy_adapters.kcm.actions import SECOND

URGENT = SECOND
SOON = SECOND // 5
COST_FACTOR = 100  # at least so many times the CPU time of a call lie between two calls
LAST_CALLS = 5  # whose mean is the cost of a call, since some ask more than others
SERVERS = 1.5  # to CPU time that is seen, what it is with that of servers, which cannot be seen: docs/benches.md


class Pace:
    """One call at a time; `poll` and `floor` in seconds. A batch system that fails is asked no faster than `poll`."""

    def __init__(self, poll: float, floor: float = 2.0) -> None:
        self.urgent = False
        self.scavenging = False  # Launchers hold nodes: no slower than the floor
        self._poll, self._floor = int(poll * SECOND), int(floor * SECOND)
        self._started_at: Optional[int] = None
        self._running = False
        self._failed = False
        self._costs: Deque[int] = deque(maxlen=LAST_CALLS)
        self._soon_at: Optional[int] = None

    def soon(self, now: int) -> None:
        """Something changed: ask within SOON; what else changes until then is seen by the same call."""
        if self._soon_at is None:
            self._soon_at = now + SOON

    def due(self) -> Optional[int]:
        """When the next call may start; None while one runs."""
        if self._running:
            return None
        if self._started_at is None:
            return 0
        next_at = self._started_at + self._interval()
        if self._soon_at is not None:
            next_at = min(next_at, self._soon_at)
        return max(next_at, self._started_at + COST_FACTOR * self._cost())

    def _cost(self) -> int:
        """Of a call, microseconds. What scavenging may cost includes what it has the head node's servers do."""
        mean = sum(self._costs) // len(self._costs) if self._costs else 0
        return int(SERVERS * mean) if self.scavenging else mean

    def _interval(self) -> int:
        hurries = [URGENT] * self.urgent + [self._floor] * self.scavenging
        return self._poll if self._failed else min([self._poll, *hurries])

    def start(self, now: int) -> None:
        self._started_at, self._running, self._soon_at = now, True, None

    def finish(self, cost: int, failed: bool) -> None:
        """The call has ended; `cost` is its CPU time in microseconds, the commands' and the KCM's own."""
        self._running, self._failed = False, failed
        self._costs.append(cost)
