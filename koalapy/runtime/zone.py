"""The clock on the wall of this host for the years to come, as a value that decides nothing by itself."""

import time
from collections.abc import Callable

from koalapy.model.hours import Offsets
from koalapy.model.units import HOUR, SECOND, Duration, Instant

_YEARS_IN_HOURS = 10 * 366 * 24


def offsets(now: Instant, offset_of: Callable[[Instant], Duration] | None = None) -> Offsets:
    """How far it is ahead of UTC from now on, to the hour, for ten years."""
    look = offset_of or _of_this_host
    found = [(now, look(now))]
    whole_hour = now - now % HOUR
    for hours in range(24, _YEARS_IN_HOURS, 24):
        later = Instant(whole_hour + hours * HOUR)
        if look(later) != found[-1][1]:
            found.append(_change(later, found[-1][1], look))
    return tuple(found)


def _change(later: Instant, before: Duration, look: Callable[[Instant], Duration]) -> tuple[Instant, Duration]:
    """The first hour of the last day that is not as it was before."""
    hour = next(at for back in range(23, -1, -1) if look(at := Instant(later - back * HOUR)) != before)
    return hour, look(hour)


def _of_this_host(instant: Instant) -> Duration:
    return Duration(time.localtime(instant // SECOND).tm_gmtoff * SECOND)
