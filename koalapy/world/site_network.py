"""The network between simulated sites: which of them reach each other, and the connections that stand."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.network import End, Pipe
from koalapy.world.random_streams import between

_LATENCY = (MILLISECOND, Duration(200 * MILLISECOND))
_NOTICES = (MILLISECOND, Duration(20 * SECOND))  # after a cut, until one side notices


class Listener(Protocol):
    """koalad of a site, as others reach it."""

    def arrived(self, neighbour: str, end: End) -> bool:
        """Take the far end of a connection that a neighbour has made. False: nobody listens."""
        ...


class SiteNetwork:
    """The ways between sites. Each pair of sites has one, which may be cut or stall."""

    def __init__(self, agenda: Agenda, rng: Random) -> None:
        self.listeners: dict[str, Listener] = {}
        self._agenda, self._rng = agenda, rng
        self._cut_until: dict[frozenset[str], Instant] = {}
        self._pipes: dict[frozenset[str], list[Pipe]] = {}
        self._on_cut: list[Callable[[], None]] = []

    def on_cut(self, call: Callable[[], None]) -> None:
        """Call after each cut."""
        self._on_cut.append(call)

    def is_open(self, one: str, other: str) -> bool:
        """Return whether the two sites reach each other."""
        return self._agenda.now >= self._cut_until.get(frozenset((one, other)), self._agenda.now)

    def connect(self, dialer: str, to: str) -> End | None:
        """Return the near end of a new connection; None if nobody answers there."""
        if not self.is_open(dialer, to) or to not in self.listeners:
            return None
        pipe = Pipe(self._agenda, lambda: between(self._rng, *_LATENCY))
        if not self.listeners[to].arrived(dialer, pipe.far):
            return None
        pair = frozenset((dialer, to))
        self._pipes[pair] = [*(each for each in self._pipes.get(pair, []) if each.stands), pipe]
        return pipe.near

    def cut(self, one: str, other: str, duration: Duration) -> None:
        """Break the connections of two sites. For a while neither reaches the other."""
        pair = frozenset((one, other))
        until = Instant(self._agenda.now + duration)
        self._cut_until[pair] = max(until, self._cut_until.get(pair, until))
        for pipe in self._pipes.pop(pair, []):
            pipe.cut(between(self._rng, *_NOTICES), between(self._rng, *_NOTICES))
        for call in self._on_cut:
            call()

    def stall(self, one: str, other: str, duration: Duration) -> None:
        """Let nothing arrive between two sites for a while. Nothing is lost."""
        for pipe in self._pipes.get(frozenset((one, other)), []):
            pipe.stall(duration)

    def mend(self) -> None:
        """End all cuts."""
        self._cut_until.clear()
