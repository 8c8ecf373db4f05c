"""koalad's clock: UTC, anchored to the monotonic clock, so that time never runs backwards."""

import time

from koalapy.model.units import Instant


class SystemClock:
    """UTC as it was when koalad started, plus what has passed since. A later step of the system's clock is not seen."""

    def __init__(self) -> None:
        self._anchor = time.time_ns() - time.monotonic_ns()

    def now(self) -> Instant:
        return Instant((self._anchor + time.monotonic_ns()) // 1_000)
