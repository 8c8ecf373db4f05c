"""koalad's clock: UTC, anchored to a clock that goes on while the host sleeps, so that time never runs backwards."""

import time

from koalapy_adapters import clock

from koalapy.model.units import SECOND, Duration, Instant


class SystemClock:
    """UTC as it was when koalad started, plus what has passed since. A later step of the system's clock is not seen."""

    def __init__(self) -> None:
        self._anchor = time.time() - clock.elapsed()
        self._watch = clock.SleepWatch()

    def now(self) -> Instant:
        return Instant(int((self._anchor + clock.elapsed()) * SECOND))

    def slept(self) -> Duration:
        """How long the host has slept since this was asked last; 0 if it has not, or for less than two seconds."""
        return Duration(self._watch.look())
