"""The virtual clock and the calls scheduled on it: a heap, ordered by time, then by rank, then by order of entry."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from koalapy.model.units import Duration, Instant

BEGINNING = Instant(1_700_000_000_000_000)


@dataclass(eq=False, slots=True)
class ScheduledCall:
    """A scheduled call. `call` is None once it was made or cancelled."""

    at: Instant
    call: Callable[[], None] | None


class Agenda:
    """The agenda of a simulated world, which makes all its calls. `happened` counts them."""

    def __init__(self, beginning: Instant = BEGINNING) -> None:
        self.now = beginning
        self.happened = 0
        self._entries: list[tuple[Instant, int, int, ScheduledCall]] = []
        self._numbers = itertools.count()

    def at(self, when: Instant, call: Callable[[], None], rank: int = 0) -> ScheduledCall:
        """Schedule a call for an instant, or for now if that is past.

        Of several calls at one instant, those of the lower rank are made first, then those entered first.
        """
        at = when if when > self.now else self.now
        entry = ScheduledCall(at, call)
        heapq.heappush(self._entries, (at, rank, next(self._numbers), entry))
        return entry

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall:
        return self.at(Instant(self.now + delay), call)

    def cancel(self, entry: ScheduledCall | None) -> None:
        """Cancel a call. Nothing happens for None, or if it was made or cancelled before."""
        if entry is not None:
            entry.call = None

    def next_at(self) -> Instant | None:
        """The instant of the next call; None if there is none."""
        while self._entries and self._entries[0][3].call is None:
            heapq.heappop(self._entries)
        return self._entries[0][0] if self._entries else None

    def run(self, until: Instant | None = None) -> None:
        """Make all calls until an instant, inclusively, to which the clock is then set; None: make all calls."""
        entries = self._entries
        while entries and (until is None or entries[0][0] <= until):
            at, _, _, entry = heapq.heappop(entries)
            call = entry.call
            if call is not None:
                entry.call = None
                self.now = at
                self.happened += 1
                call()
        if until is not None and until > self.now:
            self.now = until

    def step(self) -> bool:
        """Make the next call. Returns False if there is none."""
        if self.next_at() is None:
            return False
        _, _, _, entry = heapq.heappop(self._entries)
        call, entry.call = entry.call, None
        assert call is not None
        self.now = entry.at
        self.happened += 1
        call()
        return True
