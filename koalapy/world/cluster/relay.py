"""The relay of a simulated KCM: the real connections and authenticator, over the simulated network."""

from collections.abc import Callable
from typing import Any

from koalapy_adapters.kcm.relay.authentication import Authenticator
from koalapy_adapters.kcm.relay.sessions import (
    Connection,
    Connections,
    End,
    LookUpVersion,
    Pass,
    Secure,
    Send,
    Verify,
)
from koalapy_adapters.streams import frame_to_json

from koalapy.model.units import Duration
from koalapy.world.agenda import ScheduledCall
from koalapy.world.cluster.environment import Environment
from koalapy.world.network import End as PipeEnd
from koalapy.world.network import Json
from koalapy.world.processes import Process

_FIRST_PORT = 20_000


class SimRelay:
    """Listens on a port of the head node until it is closed."""

    def __init__(
        self,
        kcm: Process,
        environment: Environment,
        authenticator: Authenticator,
        clock: Callable[[], int],
        to_machine: Callable[[Any], None],
        is_suspended: Callable[[str], bool],
    ) -> None:
        """`clock`: the KCM's own. `is_suspended`: see Connections."""
        self._kcm, self._environment, self._to_machine = kcm, environment, to_machine
        self._authenticator = authenticator
        self._connections = Connections(authenticator, clock, is_suspended)
        self._timer: ScheduledCall | None = None
        self._timer_at: int | None = None
        self.port = max(environment.ports, default=_FIRST_PORT) + 1
        environment.ports[self.port] = self

    def accept(self, end: PipeEnd, source: str) -> None:
        """Take a connection from the node of this address."""
        connection = Connection(end, source)
        end.on_message = lambda data: self._kcm.run(lambda: self._received(connection, data))
        end.on_closed = lambda: self._kcm.run(lambda: self._closed(connection))
        self._kcm.run(lambda: self._perform(self._connections.opened(self._environment.agenda.now, connection)))

    def send(self, tag: str, message: Any) -> None:
        """Send to the wrapper of this tag, if it is connected."""
        connection = self._connections.wrapper(tag)
        if connection is not None:
            connection.peer.send(frame_to_json(message))

    def has(self, tag: str) -> bool:
        """Return whether the wrapper of this tag is connected."""
        return self._connections.wrapper(tag) is not None

    def close(self) -> None:
        self._environment.ports.pop(self.port, None)
        self._environment.agenda.cancel(self._timer)
        for connection in self._connections.open_connections():
            connection.peer.close()

    def _received(self, connection: Connection, data: Json) -> None:
        now = self._environment.agenda.now
        self._connections.contact(now, connection)
        self._perform(self._connections.received(now, connection, data))

    def _closed(self, connection: Connection) -> None:
        connection.peer.close()
        self._perform(self._connections.closed(connection, by_wrapper=True))

    def _perform(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Pass(event):
                    self._to_machine(event)
                case Send(connection, message):
                    connection.peer.send(frame_to_json(message))
                case End(connection):
                    connection.peer.close()
                case Verify(connection, challenged, proof):
                    admitted = self._authenticator.admit(challenged, proof)
                    self._perform(self._connections.verified(self._environment.agenda.now, connection, admitted))
                case LookUpVersion(hello):
                    if (other := self._authenticator.other_version(hello)) is not None:
                        self._to_machine(other)
                case Secure():
                    pass  # a simulated connection cannot be intercepted
        self._set_timer()

    def _set_timer(self) -> None:
        at = self._connections.next_wakeup()
        if at == self._timer_at:
            return
        self._environment.agenda.cancel(self._timer)
        self._timer_at = at
        self._timer = None
        if at is not None:
            self._timer = self._kcm.after(Duration(max(0, at - self._environment.agenda.now)), self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        self._perform(self._connections.tick(self._environment.agenda.now))
