"""The number of parameters that a Launcher holds in advance, so that no slot waits and no parameter waits long."""

from collections import deque
from typing import Deque, Optional

from koalapy_adapters.clock import SECOND

AHEAD = SECOND // 10  # of work for every slot, in the node's queue
LONGEST_AHEAD = SECOND  # the same if the KCM answers slowly (relay: files)
_ROUNDS = 8  # of PullParameters and FeedParameters that are remembered


class Pace:
    """The durations of parameters, and of the answers to PullParameters, as measured so far; microseconds."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._seen = 0
        self._duration = 0.0
        self._rounds: Deque[int] = deque(maxlen=_ROUNDS)
        self._pulled_at: Optional[int] = None

    def ran(self, count: int, took: int) -> None:
        """Count parameters that have run, for `took` together."""
        mean = took / count
        self._duration = (self._duration + mean) / 2 if self._seen else mean
        self._seen += count

    def runs(self, duration: int) -> None:
        """Note that a running parameter has lasted this long already."""
        self._duration = max(self._duration, float(duration))

    def pulled(self, now: int) -> None:
        self._pulled_at = now if self._pulled_at is None else self._pulled_at

    def given(self, now: int) -> None:
        if self._pulled_at is not None:
            self._rounds.append(now - self._pulled_at)
            self._pulled_at = None

    def ahead(self) -> int:
        """The number of parameters to hold in advance.

        It is 0 while nothing is known, and if parameters last so long that asking for the next one costs little.
        """
        ahead = min(LONGEST_AHEAD, max(AHEAD, 2 * min(self._rounds, default=0)))
        if not self._seen or self._duration >= 2 * ahead:
            return 0
        a_slot = -int(-ahead // max(1.0, self._duration))
        return min(a_slot * self._slots, 2 * self._seen)
