"""How a wrapper keeps in contact with its relay, decided without a socket: whom to try, when again, when to give up.

apart -> trying (all addresses at once) -> knocked (at the first that answers) -> in; and back to apart from each.
What happens is told in calls, and each answers with what is to be done, in order.
"""

from typing import Any, Callable, List, NamedTuple, Optional

from koalapy_adapters import messages
from koalapy_adapters.wrapper.clock import SECOND

BEAT = 10 * SECOND
SILENCE = 35 * SECOND  # after which a connection is given up
FIRST_RETRY, LAST_RETRY = SECOND // 20, 10 * SECOND
ANSWER_WITHIN = 5 * SECOND  # for a connection, and for Enter

APART, TRYING, KNOCKED, IN = "apart", "trying", "knocked", "in"


class Seek(NamedTuple):
    """Read the relay's file anew. -> found"""


class Try(NamedTuple):
    """Connect to all of these at once. -> connected for the first that takes it, unreachable if none does"""

    addresses: List[str]
    port: int


class Write(NamedTuple):
    """Send it. -> broken if that fails"""

    message: Any


class Drop(NamedTuple):
    """Close what is connected or being tried."""


class Entered(NamedTuple):
    """The relay let us in; `offset`: its clock minus ours."""

    address: str
    offset: int


class Heard(NamedTuple):
    """The relay says so."""

    message: Any


class Lost(NamedTuple):
    """We are no longer in; the relay was heard at this instant last."""

    heard_at: int


class Contact:
    """At most one connection; `tick` at `next_wakeup` or later. `jitter`: any number from 0 to 1, another each time."""

    def __init__(self, knock: Callable[[int], Any], jitter: Callable[[], float]) -> None:
        self._knock, self._jitter = knock, jitter
        self._state = APART
        self._address = ""
        self._failed: List[str] = []  # addresses that took a connection, but not the knock
        self._knocked_at = 0
        self._heard_at = 0
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

    def found(self, now: int, addresses: List[str], port: int) -> List[Any]:
        """What the relay's file says, no addresses where there is none. Ignored while we are not apart."""
        if self._state != APART:
            return []
        if not addresses:
            return self._again(now)
        untried = [address for address in addresses if address not in self._failed]
        self._failed = self._failed if untried else []
        self._state, self._deadline = TRYING, now + ANSWER_WITHIN
        return [Try(untried or addresses, port)]

    def unreachable(self, now: int) -> List[Any]:
        """None of those that were tried takes a connection."""
        return self._again(now) if self._state == TRYING else []

    def connected(self, now: int, address: str) -> List[Any]:
        """The first has taken the connection; whoever else is tried is let go."""
        self._state, self._address = KNOCKED, address
        self._knocked_at, self._deadline = now, now + ANSWER_WITHIN
        return [Write(self._knock(now))]

    def arrived(self, now: int) -> None:
        """Anything at all came over the connection."""
        self._heard_at = now

    def heard(self, now: int, message: Any) -> List[Any]:
        self._heard_at = now
        if self._state == KNOCKED and isinstance(message, messages.Enter):
            self._state, self._deadline = IN, None
            self._retry, self._failed = FIRST_RETRY, []
            self._beat_at = now + BEAT
            return [Entered(self._address, message.clock - (self._knocked_at + now) // 2)]
        if self._state == IN and not isinstance(message, messages.Beat):
            return [Heard(message)]
        return []

    def broken(self, now: int) -> List[Any]:
        """The connection broke, or is of no use: the relay may be elsewhere by now."""
        before = self._state
        if before == APART:
            return []
        if before == KNOCKED:
            self._failed.append(self._address)
        return [Drop(), *self._again(now)] + ([Lost(self._heard_at)] if before == IN else [])

    def next_wakeup(self) -> Optional[int]:
        times = [self._deadline, self._seek_at]
        times += [self._beat_at, self._heard_at + SILENCE] if self.is_in else []
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: int) -> List[Any]:
        """What is due by now."""
        if self._seek_at is not None and now >= self._seek_at:
            self._seek_at = None
            return [Seek()]
        late = self._deadline is not None and now >= self._deadline
        if late or (self.is_in and now >= self._heard_at + SILENCE):
            return self.broken(now)
        if self.is_in and now >= self._beat_at:
            self._beat_at = now + BEAT
            return [Write(messages.Beat())]
        return []

    def _again(self, now: int) -> List[Any]:
        """Exponentially later, with jitter: all wrappers of a cluster lose their relay at the same instant."""
        self._state, self._deadline = APART, None
        self._seek_at = now + int(self._retry * (0.5 + self._jitter()))
        self._retry = min(LAST_RETRY, self._retry * 2)
        return []
