"""When the queue is asked about the jobs that are being ended: soon at first, then ever more seldom, however many.

A thousand cancels take a batch system half a minute, in which one of them or another always wants to know more. So the
pace is that of all of them together, and not of each.
"""

from typing import Dict, List, Optional

from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.poll_budget import COST_FACTOR
from koalapy_adapters.kcm.state.poll_schedule import URGENT

FIRST = SECOND // 20  # between the first two checks
GROWTH = 3, 2  # of what lies between two, from each to the next
LULL = 2 * SECOND  # with nobody who waits, after which it begins with the first again


class CancelStatusSchedule:
    """One check at a time, of all who wait for it by then."""

    def __init__(self) -> None:
        self._waiting: Dict[str, None] = {}  # tags, in order
        self._running = False
        self._ended_at = self._gap = 0

    def want(self, now: int, tag: str) -> None:
        """The next one is to ask about this attempt too."""
        if not self._waiting and not self._running and now - self._ended_at >= LULL:
            self._gap = 0
        self._waiting[tag] = None

    def due(self) -> Optional[int]:
        """When the next one may begin; None while one runs, or nobody waits."""
        return self._ended_at + self._gap if self._waiting and not self._running else None

    def take(self) -> List[str]:
        """The tags of all who wait; from now on nobody does."""
        tags = list(self._waiting)
        self._waiting.clear()
        return tags

    def begin(self) -> None:
        self._running = True

    def finish(self, now: int, cost: int) -> None:
        """It has ended; `cost` is its CPU time in microseconds, which decides how seldom they become in the end."""
        more, less = GROWTH
        self._gap = min(max(FIRST, self._gap * more // less), max(URGENT, COST_FACTOR * cost))
        self._running, self._ended_at = False, now
