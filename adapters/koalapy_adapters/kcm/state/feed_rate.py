"""How many parameters end in a second, of late; and how long koalad takes to answer. Both from what is seen."""

import math
from typing import Optional

from koalapy_adapters.kcm.state.actions import SECOND

_MEMORY = 2.0  # seconds after which what happened counts for a third
_YOUNG = 0.1  # seconds, below which a rate would be chance
_FIRST_TRIP = 0.1  # seconds


class Rate:
    """A mean over the last seconds, in which what is older counts less. It begins with the first `begin`."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._at: Optional[int] = None
        self._since: Optional[int] = None

    def begin(self, now: int) -> None:
        """From now on something may end."""
        if self._since is None:
            self._since = self._at = now

    def add(self, now: int, count: int) -> None:
        self.begin(now)
        self._weight = self._faded(now) + count
        self._at = now

    @property
    def measured(self) -> bool:
        """Whether anything has ended yet."""
        return self._weight > 0.0

    def per_second(self, now: int) -> float:
        age = max(_YOUNG, self.age(now))
        return self._faded(now) / (_MEMORY * (1.0 - math.exp(-age / _MEMORY)))

    def age(self, now: int) -> float:
        """Seconds since `begin`; 0 before."""
        return 0.0 if self._since is None else max(0, now - self._since) / SECOND

    def _faded(self, now: int) -> float:
        if self._at is None:
            return 0.0
        return self._weight * math.exp(-max(0, now - self._at) / SECOND / _MEMORY)


class RoundTrip:
    """How long it takes from asking koalad until it has fed, in seconds: the slower of late, for a queue may form."""

    def __init__(self) -> None:
        self.seconds = _FIRST_TRIP
        self._asked_at: Optional[int] = None

    def asked(self, now: int) -> None:
        if self._asked_at is None:
            self._asked_at = now

    def answered(self, now: int) -> None:
        if self._asked_at is not None:
            took, self._asked_at = max(0, now - self._asked_at) / SECOND, None
            self.seconds = max(took, 0.7 * self.seconds + 0.3 * took)

    def given_up(self) -> None:
        """koalad had nothing: how long that takes says nothing."""
        self._asked_at = None
