"""A clock that goes on while the host sleeps, and that no change of the system's time affects.

CLOCK_BOOTTIME counts the time of a suspended host, CLOCK_MONOTONIC of Linux does not; their difference shows that the
host has slept. If a system has no CLOCK_BOOTTIME, CLOCK_MONOTONIC is taken for it. (That of macOS counts all time;
`time.monotonic` of macOS leaves sleep out.)
"""

import sys
import time
from typing import Callable

_BOOTTIME = 7 if sys.platform.startswith("linux") else time.CLOCK_MONOTONIC
_GOES_ON = getattr(time, "CLOCK_BOOTTIME", _BOOTTIME)  # Python has a name for it from 3.7 on

SECOND = 1000000
SLEEP_AT_LEAST = 2 * SECOND  # what is shorter harms nothing, and may be the system's own correction of its clocks


def elapsed() -> float:
    """Seconds since the host was started, including those in which it slept."""
    return time.clock_gettime(_GOES_ON)


_ANCHOR = time.time() - elapsed()


def now() -> int:
    """Microseconds since 1970, counted from the system's time when this process began. They never decrease."""
    return int((_ANCHOR + elapsed()) * SECOND)


def seconds() -> float:
    """The same as `now`, in seconds."""
    return now() / SECOND


def microseconds(seconds: float) -> int:
    return int(seconds * SECOND)


def slept() -> int:
    """Microseconds that the host has slept since it was started, or a little less.

    A process that is stopped between the two readings sees less, and never more.
    """
    gone_on = elapsed()
    return int((gone_on - time.monotonic()) * SECOND)


class SleepWatch:
    """Detects that the host has slept. `read` returns how long it has slept in all, in microseconds."""

    def __init__(self, read: Callable[[], int] = slept) -> None:
        self._read = read
        self._known = read()

    def look(self) -> int:
        """Microseconds that the host has slept since the last result above 0, or since this was made.

        Returns 0 for less than SLEEP_AT_LEAST.
        """
        total = self._read()
        asleep = total - self._known
        if asleep < SLEEP_AT_LEAST:
            return 0
        self._known = total
        return asleep
