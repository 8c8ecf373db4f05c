"""How fast sweeps go, by the results that were committed in the last minute."""

import threading
from collections import deque
from collections.abc import Iterable

from koalapy.model.identity import JobId
from koalapy.model.sweep import ResultBatch
from koalapy.model.units import MINUTE, SECOND, Instant

_WINDOW = MINUTE


class Pace:
    """The driver's thread counts, any thread asks."""

    def __init__(self) -> None:
        self._counts: dict[JobId, deque[tuple[Instant, int]]] = {}
        self._lock = threading.Lock()

    def count(self, now: Instant, batches: Iterable[ResultBatch]) -> None:
        """Results that were committed now."""
        with self._lock:
            for batch in batches:
                counts = self._counts.setdefault(batch.sweep, deque())
                if counts and now - counts[-1][0] < SECOND:
                    counts[-1] = counts[-1][0], counts[-1][1] + len(batch.results)
                else:
                    counts.append((now, len(batch.results)))
                _forget(now, counts)

    def per_minute(self, now: Instant, sweep: JobId) -> float | None:
        """None before there is anything to tell it by.

        What came first only begins the time that is measured: nobody knows how long it took.
        """
        with self._lock:
            counts = self._counts.get(sweep, deque())
            _forget(now, counts)
            if len(counts) < 2:
                return None
            since = now - counts[0][0]
            return (sum(count for _, count in counts) - counts[0][1]) * MINUTE / since

    def over(self, sweep: JobId) -> None:
        with self._lock:
            self._counts.pop(sweep, None)


def _forget(now: Instant, counts: deque[tuple[Instant, int]]) -> None:
    """What is older than the window, but for one that begins it."""
    while len(counts) > 1 and now - counts[1][0] > _WINDOW:
        counts.popleft()
