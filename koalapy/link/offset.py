"""How far a KCM's clock is ahead of koalad's, by the round trips of its answers."""

from collections import deque

from koalapy.model.units import Instant

_SAMPLES = 12


class ClockOffset:
    """The best of the recent round trips counts: its error is at most half of what it took.

    An estimate stays as long as it is not refuted, so that the same instant of theirs stays the same of ours.
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
        """Microseconds; 0 before the first answer."""
        return self._ahead or 0

    def to_ours(self, theirs: int, now: Instant) -> Instant:
        """An instant of their clock as one of ours; nothing that was told has happened later than now."""
        return Instant(min(theirs - self.ahead, now))
