"""The offset of a KCM's clock from koalad's, estimated from the round trips of its answers."""

from collections import deque

from koalapy.model.units import Instant

_SAMPLES = 12


class ClockOffset:
    """An estimate from the shortest of the recent round trips: its error is at most half of that round trip.

    An estimate stays until it is refuted, so that the same instant of the KCM stays the same instant of koalad.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # (round trip, offset)
        self._ahead: int | None = None

    def add(self, asked_at: Instant, their_clock: int, answered_at: Instant) -> None:
        self._samples.append((answered_at - asked_at, their_clock - (asked_at + answered_at) // 2))
        trip, offset = min(self._samples)
        if self._ahead is None or abs(self._ahead - offset) > trip // 2:
            self._ahead = offset

    @property
    def ahead(self) -> int:
        """Microseconds by which the KCM's clock is ahead; 0 before the first answer."""
        return self._ahead or 0

    def to_ours(self, theirs: int, now: Instant) -> Instant:
        """Return an instant of the KCM's clock as one of koalad's, at most `now`: no report is of the future."""
        return Instant(min(theirs - self.ahead, now))
