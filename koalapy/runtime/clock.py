"""koalad's clock: UTC, anchored to a clock that continues while the host sleeps. Its time never runs backwards."""

import time
from collections.abc import Callable

from koalapy_adapters import clock

from koalapy.model.hours import Offsets
from koalapy.model.units import HOUR, SECOND, Duration, Instant

_YEARS_IN_HOURS = 10 * 366 * 24


class SystemClock:
    """UTC as it was when koalad started, plus the time elapsed since.

    Later steps of the system's clock have no effect.
    """

    def __init__(self) -> None:
        self._anchor = time.time() - clock.elapsed()
        self._watch = clock.SleepWatch()

    def now(self) -> Instant:
        return Instant(int((self._anchor + clock.elapsed()) * SECOND))

    def slept(self) -> Duration:
        """Return how long the host has slept since the last call; 0 if it has not, or for less than two seconds."""
        return Duration(self._watch.look())


def offsets(now: Instant, offset_of: Callable[[Instant], Duration] | None = None) -> Offsets:
    """Return (instant, offset of local time from UTC) for `now`, and for each change within ten years, to the hour."""
    look = offset_of or _of_this_host
    found = [(now, look(now))]
    whole_hour = now - now % HOUR
    for hours in range(24, _YEARS_IN_HOURS, 24):
        later = Instant(whole_hour + hours * HOUR)
        if look(later) != found[-1][1]:
            found.append(_change(later, found[-1][1], look))
    return tuple(found)


def _change(later: Instant, before: Duration, look: Callable[[Instant], Duration]) -> tuple[Instant, Duration]:
    """Return the first hour of the day before `later` whose offset differs from the one before, and that offset."""
    hour = next(at for back in range(23, -1, -1) if look(at := Instant(later - back * HOUR)) != before)
    return hour, look(hour)


def _of_this_host(instant: Instant) -> Duration:
    return Duration(time.localtime(instant // SECOND).tm_gmtoff * SECOND)
