"""How far a KCM's clock is ahead of koalad's, by the round trips of its answers."""

from collections import deque

from koalapy.model.units import Instant

_SAMPLES = 12


class ClockOffset:
    """The best of the recent round trips counts: its error is at most half of what it took."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # (round trip, offset)

    def add(self, asked_at: Instant, their_clock: int, answered_at: Instant) -> None:
        self._samples.append((answered_at - asked_at, their_clock - (asked_at + answered_at) // 2))

    @property
    def ahead(self) -> int:
        """Microseconds; 0 before the first answer."""
        return min(self._samples)[1] if self._samples else 0

    def to_ours(self, theirs: int, now: Instant) -> Instant:
        """An instant of their clock as one of ours; nothing that was told has happened later than now."""
        return Instant(min(theirs - self.ahead, now))
