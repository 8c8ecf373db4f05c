"""The connections of a relay, as a pure machine: which wrappers are let in, whose messages count, who is given up.

Its driver has the sockets: `tcp` has those of the operating system, and the simulated world has its own. All instants
are of the driver's clock, in microseconds, but for those that wrappers are sent.
"""

import collections
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.channel import Keys
from koalapy_adapters.clock import SECOND
from koalapy_adapters.frames import Chunk
from koalapy_adapters.kcm.relay.authentication import Admitted, Authenticator, Challenged, outcome
from koalapy_adapters.kcm.state.actions import WrapperConnected, WrapperDisconnected
from koalapy_adapters.kcm.state.timers import Timers
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.relay import Heartbeat
from koalapy_adapters.wrapper.relay.contact import CONNECT_WITHIN

BEAT, SILENCE = 10 * SECOND, 30 * SECOND
PROOF_WITHIN = 2 * CONNECT_WITHIN  # a wrapper waits that long, from when it sees that it is connected
MAX_STRANGERS = 256  # connections that have not proven themselves yet
MAX_STRANGERS_OF_ONE = 32  # by the address that they come from


class Connection:
    """One connection. `peer` is the driver's own handle of it; `source` is the address that it comes from."""

    def __init__(self, peer: Any, source: str) -> None:
        self.peer, self.source = peer, source
        self.key = ""  # of its timer
        self.tag = ""  # of the wrapper, once it is let in
        self.challenged: Optional[Challenged] = None
        self.contact_at: Optional[int] = None
        self.opened_at = self.beat_at = 0


# ---- commands


class Send(NamedTuple):
    """Send a message; sealed after Secure, else in the clear."""

    connection: Connection
    message: Any


class Verify(NamedTuple):
    """Let the authenticator judge the proof, which blocks, and answer by `verified`. Read nothing until then."""

    connection: Connection
    challenged: Challenged
    proof: Any


class LookUpVersion(NamedTuple):
    """Ask the authenticator about the version of a hello that was refused, which blocks, and pass on its event."""

    hello: Any


class Secure(NamedTuple):
    """Seal every frame from now on."""

    connection: Connection
    keys: Keys


class End(NamedTuple):
    """Abort the connection. `why` is for the log; empty if it was not authenticated or was replaced."""

    connection: Connection
    why: str = ""


class Pass(NamedTuple):
    """Pass an event to the KCM's machine."""

    event: Any


class Connections:
    """All connections of one relay.

    `clock`: the KCM's clock, which wrappers are sent. `is_suspended`: whether the batch system has suspended the
    attempt of this tag. Such a silent wrapper is not given up: its node keeps the connection, and closes it when the
    wrapper is ended without having gone on. `answers`: whether a connection from this address is answered at all.

    The number of strangers is bounded, and the newest always has room. A true wrapper needs two round trips for its
    proof. So it is in before many others have come after it, however often somebody else renews his connections.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        clock: Callable[[], int],
        is_suspended: Callable[[str], bool],
        answers: Callable[[str], bool] = lambda address: True,
        silence: int = SILENCE,
    ) -> None:
        self._authenticator, self._clock = authenticator, clock
        self._is_suspended, self._answers, self._silence = is_suspended, answers, silence
        self._strangers: "collections.OrderedDict[Connection, None]" = collections.OrderedDict()  # the oldest first
        self._admitted: Dict[str, Connection] = {}
        self._timers = Timers()
        self._by_key: Dict[str, Connection] = {}
        self._opened = self._refused = 0

    @property
    def strangers(self) -> int:
        """How many connections have not proven themselves yet."""
        return len(self._strangers)

    def wrapper(self, tag: str) -> Optional[Connection]:
        """Return the connection of this wrapper; None if it has none."""
        return self._admitted.get(tag)

    def open_connections(self) -> List[Connection]:
        return [*self._strangers, *self._admitted.values()]

    def count_refused(self) -> int:
        """How many strangers were refused since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def next_wakeup(self) -> Optional[int]:
        """The instant of the next `tick`; None if only events matter."""
        return self._timers.next()

    # ---- events

    def opened(self, now: int, connection: Connection) -> List[Any]:
        """Take in an unauthenticated client; another may be dropped to make room."""
        if not self._answers(connection.source):
            self._refused += 1
            return [End(connection)]
        self._opened += 1
        connection.key, connection.opened_at = str(self._opened), now
        same = [each for each in self._strangers if each.source == connection.source]
        actions: List[Any] = []
        if len(same) >= MAX_STRANGERS_OF_ONE:
            actions = self._refuse(same[0])
        elif len(self._strangers) >= MAX_STRANGERS:
            actions = self._refuse(next(iter(self._strangers)))
        self._strangers[connection] = None
        self._wait(connection, now + PROOF_WITHIN)
        return actions

    def contact(self, now: int, connection: Connection) -> None:
        """Note that bytes have come."""
        connection.contact_at = now

    def received(self, now: int, connection: Connection, data: Any) -> List[Any]:
        """React to a JSON value or Chunk. Nothing counts of a connection that was dropped or replaced."""
        if connection.tag:
            return self._reported(connection, data) if self._admitted.get(connection.tag) is connection else []
        if connection not in self._strangers:
            return []
        if connection.challenged is not None:
            return [Verify(connection, connection.challenged, data)]
        connection.challenged = self._authenticator.challenge(self._clock(), data)
        if connection.challenged is None:
            return [LookUpVersion(data), *self._refuse(connection)]
        return [Send(connection, connection.challenged.challenge)]

    def verified(self, now: int, connection: Connection, admitted: Optional[Admitted]) -> List[Any]:
        """Let a wrapper in, in place of an earlier connection of its own; None is not admitted, and gets no answer."""
        if connection not in self._strangers:
            return []
        if admitted is None:
            return self._refuse(connection)
        actions: List[Any] = [Secure(connection, admitted.keys)]
        before = self._admitted.get(admitted.tag)
        if before is not None:
            self._forget(before)
            actions.append(End(before))
        self._forget(connection)
        connection.tag = admitted.tag
        self._admitted[admitted.tag] = connection
        connection.beat_at = now + BEAT
        self._watch(connection)
        event = WrapperConnected(admitted.tag, admitted.clock_at(self._clock()))
        return [*actions, Send(connection, admitted.welcome), Pass(event)]

    def closed(self, connection: Connection, by_wrapper: bool) -> List[Any]:
        """React to the end of a connection. `by_wrapper`: the other side has closed it."""
        if connection in self._strangers:
            self._forget(connection)
            self._refused += connection.contact_at is not None  # a wrapper tries several addresses, and keeps one
            return []
        return self._part(connection, by_wrapper)

    def tick(self, now: int) -> List[Any]:
        """Return what is due by now: heartbeats, and the ends of connections that are silent for too long."""
        actions: List[Any] = []
        for key in self._timers.expire(now):
            connection = self._by_key[key]
            if not connection.tag:
                actions += self._refuse(connection)
            elif now >= self._silent_at(connection) and not self._is_suspended(connection.tag):
                actions += [End(connection, "it was silent"), *self._part(connection, by_wrapper=False)]
            else:
                actions += self._beat(now, connection)
        return actions

    # ---- helpers

    def _reported(self, connection: Connection, data: Any) -> List[Any]:
        try:
            event = outcome(connection.tag, data if isinstance(data, Chunk) else from_json(data))
        except MessageError as error:
            return [End(connection, str(error)), *self._part(connection, by_wrapper=False)]
        return [Pass(event)] if event is not None else []

    def _refuse(self, stranger: Connection) -> List[Any]:
        self._forget(stranger)
        self._refused += 1
        return [End(stranger)]

    def _part(self, connection: Connection, by_wrapper: bool) -> List[Any]:
        if not connection.tag or self._admitted.get(connection.tag) is not connection:
            return []
        self._forget(connection)
        return [Pass(WrapperDisconnected(connection.tag, by_wrapper))]

    def _beat(self, now: int, connection: Connection) -> List[Any]:
        beats = now >= connection.beat_at
        if beats:
            connection.beat_at = now + BEAT
        if now >= self._silent_at(connection):
            self._wait(connection, min(connection.beat_at, now + self._silence))  # it is suspended
        else:
            self._watch(connection)
        return [Send(connection, Heartbeat())] if beats else []

    def _watch(self, connection: Connection) -> None:
        self._wait(connection, min(connection.beat_at, self._silent_at(connection)))

    def _silent_at(self, connection: Connection) -> int:
        contact_at = connection.contact_at
        return (connection.opened_at if contact_at is None else contact_at) + self._silence

    def _wait(self, connection: Connection, until: int) -> None:
        self._by_key[connection.key] = connection
        self._timers.set(connection.key, until)

    def _forget(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        if connection.tag and self._admitted.get(connection.tag) is connection:
            del self._admitted[connection.tag]
        self._timers.set(connection.key, None)
        self._by_key.pop(connection.key, None)
