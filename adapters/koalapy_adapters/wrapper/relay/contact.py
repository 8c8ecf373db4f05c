"""How a wrapper keeps in contact with its relay, decided without a socket: addresses, times of tries, and their end.

apart -> trying (addresses at once, or a directory) -> opening (with the first that answers) -> in; and back to apart
from each. Each call reports an event, and returns the commands that follow, in order.
"""

from typing import Any, Callable, List, NamedTuple, Optional

from koalapy_adapters.channel import Keys
from koalapy_adapters.clock import SECOND
from koalapy_adapters.messages import relay
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.handshake import Answer, Opening, Welcomed

BEAT = 10 * SECOND
SILENCE = 35 * SECOND  # after which a connection is given up
FIRST_RETRY, LAST_RETRY = SECOND // 20, 10 * SECOND
CONNECT_WITHIN = 5 * SECOND
IN_VAIN = 2  # tries by a KCM that lives, before it is reported as out of reach

APART, TRYING, OPENING, IN = "apart", "trying", "opening", "in"


class Seek(NamedTuple):
    """Read the relay's file anew. -> found"""


class Try(NamedTuple):
    """Connect to all of these at once, or use the directory. -> connected for the first that accepts, or unreachable"""

    addresses: List[str]
    port: int
    directory: str = ""


class Write(NamedTuple):
    """Send it. -> broken if that fails"""

    message: Any


class Begin(NamedTuple):
    """Send these, the first messages of the connection. -> broken if that fails"""

    messages: List[Any]


class Secure(NamedTuple):
    """Seal with these keys what is sent from now on, and accept nothing else."""

    keys: Keys


class Drop(NamedTuple):
    """Close what is connected or being tried."""


class Entered(NamedTuple):
    """The relay let us in; `offset`: its clock minus ours."""

    address: str
    offset: int


class Received(NamedTuple):
    """A message from the relay."""

    message: Any


class Lost(NamedTuple):
    """The connection is lost. `contact_at`: the instant of the relay's last sign."""

    contact_at: int


class ShutOut(NamedTuple):
    """We were never in, and for long none of these could be reached or let us in, although its KCM lives."""

    addresses: List[str]
    port: int


def shut_out_after(barrier_timeout: int) -> int:
    """Return how long no address must answer before that is reported: before koalad's own time-out."""
    return min(30 * SECOND, barrier_timeout // 4)


class Contact:
    """At most one connection; `tick` at `next_wakeup` or later.

    `open_with(now, secret, by files)`: the handshake; no message counts before it is done.
    `jitter`: any number from 0 to 1, another each time. `shut_out_after`: microseconds in which nobody could be
    reached; None if that is not to be reported.
    """

    def __init__(
        self,
        open_with: Callable[[int, str, bool], Opening],
        jitter: Callable[[], float],
        shut_out_after: Optional[int] = None,
    ) -> None:
        self._open_with, self._jitter = open_with, jitter
        self._opening: Optional[Opening] = None
        self._shut_out_after = shut_out_after
        self._place = RelayAddress()
        self._lives = False  # the KCM has shown so between the last two looks at its file
        self._vain_since: Optional[int] = None
        self._vain = 0
        self._state = APART
        self._address = ""
        self._failed: List[str] = []  # addresses that took a connection, but did not let us in
        self._tries_last = False  # those that are to be tried last have their turn
        self._contact_at = 0
        self._beat_at = 0
        self._deadline: Optional[int] = None
        self._retry = FIRST_RETRY
        self._seek_at: Optional[int] = None

    @property
    def is_in(self) -> bool:
        return self._state == IN

    @property
    def is_trying(self) -> bool:
        return self._state == TRYING

    def found(self, now: int, place: RelayAddress) -> List[Any]:
        """Connect to the address in the relay's file. Ignored while we are not apart."""
        if self._state != APART:
            return []
        before, self._place = self._place, place
        if before.secret != place.secret:
            self._failed = []  # of another KCM
        self._lives = before.touched not in (0.0, place.touched)
        if not place.addresses and not place.last and not place.directory:
            return self._again(now)
        self._state, self._deadline = TRYING, now + CONNECT_WITHIN
        if place.directory:
            self._failed = []
            return [Try([], 0, place.directory)]
        return [Try(self._chosen(place), place.port)]

    def unreachable(self, now: int) -> List[Any]:
        """No address that was tried takes a connection."""
        if self._state != TRYING:
            return []
        self._tries_last = not self._tries_last
        return self._again(now) + self._tried_in_vain(now)

    def connected(self, now: int, address: str, patience: int = CONNECT_WITHIN) -> List[Any]:
        """The first has taken the connection; whoever else is tried is let go. `patience`: with its answer."""
        self._state, self._address, self._deadline = OPENING, address, now + patience
        self._opening = self._open_with(now, self._place.secret, bool(self._place.directory))
        return [Begin(self._opening.first)]

    def arrived(self, now: int) -> None:
        """Anything at all came over the connection."""
        self._contact_at = now

    def received(self, now: int, message: Any) -> List[Any]:
        self._contact_at = now
        if self._state == OPENING:
            assert self._opening is not None
            return self._opened(now, self._opening.received(now, message))
        if self._state == IN and not isinstance(message, relay.Heartbeat):
            return [Received(message)]
        return []

    def broken(self, now: int) -> List[Any]:
        """The connection broke, or is of no use: the relay may be elsewhere by now."""
        before = self._state
        if before == APART:
            return []
        if before == OPENING:
            self._failed.append(self._address)
        self._tries_last = not self._tries_last if before == TRYING else self._tries_last
        lost = [Lost(self._contact_at)] if before == IN else self._tried_in_vain(now)
        return [Drop(), *self._again(now), *lost]

    def next_wakeup(self) -> Optional[int]:
        times = [self._deadline, self._seek_at]
        times += [self._beat_at, self._contact_at + SILENCE] if self.is_in else []
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: int) -> List[Any]:
        """The commands that are due by `now`."""
        if self._seek_at is not None and now >= self._seek_at:
            self._seek_at = None
            return [Seek()]
        late = self._deadline is not None and now >= self._deadline
        if late or (self.is_in and now >= self._contact_at + SILENCE):
            return self.broken(now)
        if self.is_in and now >= self._beat_at:
            self._beat_at = now + BEAT
            return [Write(relay.Heartbeat())]
        return []

    def _chosen(self, place: RelayAddress) -> List[str]:
        """The addresses to try now: those that have not failed, of the group whose turn it is."""
        first, last = (
            [address for address in group if address not in self._failed] for group in (place.addresses, place.last)
        )
        if not first and not last:
            self._failed, first, last = [], place.addresses, place.last
        self._tries_last = bool(last) and (self._tries_last or not first)
        return last if self._tries_last else first

    def _opened(self, now: int, answer: Any) -> List[Any]:
        """The commands after the handshake's next step."""
        if isinstance(answer, Answer):
            return [Write(answer.proof), Secure(answer.keys)]
        if not isinstance(answer, Welcomed):
            return self.broken(now)
        self._state, self._deadline = IN, None
        self._retry, self._failed, self._tries_last = FIRST_RETRY, [], False
        self._shut_out_after = None
        self._beat_at = now + BEAT
        return [Entered(self._address, answer.offset)]

    def _again(self, now: int) -> List[Any]:
        """Exponentially later, with jitter: all wrappers of a cluster lose their relay at the same instant."""
        self._state, self._deadline = APART, None
        self._seek_at = now + int(self._retry * (0.5 + self._jitter()))
        self._retry = min(LAST_RETRY, self._retry * 2)
        return []

    def _tried_in_vain(self, now: int) -> List[Any]:
        """Count a try that failed while the KCM lives. A KCM that is gone shows nothing of the network to it."""
        if self._place.directory:
            return []  # there is nothing to connect to
        self._vain_since = now if self._vain_since is None else self._vain_since
        self._vain += self._lives
        if self._shut_out_after is None or self._vain < IN_VAIN or now - self._vain_since < self._shut_out_after:
            return []
        self._shut_out_after = None
        return [ShutOut(self._place.addresses + self._place.last, self._place.port)]
