"""The relay of a simulated KCM: it exchanges messages with wrappers that the real authenticator has admitted."""

from collections.abc import Callable
from typing import Any

from koalapy_adapters import messages
from koalapy_adapters.kcm.relay.authentication import Admitted, Authenticator, Challenged, outcome
from koalapy_adapters.kcm.relay.tcp import BEAT, PROOF_WITHIN, SILENCE
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.streams import frame_to_json

from koalapy.model.units import SECOND, Duration
from koalapy.world.cluster.environment import Environment
from koalapy.world.network import End, Json
from koalapy.world.processes import Process

_BEAT, _SILENCE, _PROOF_WITHIN = (Duration(round(each * SECOND)) for each in (BEAT, SILENCE, PROOF_WITHIN))
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
    ) -> None:
        """`clock`: the KCM's own."""
        self._kcm, self._environment, self.authenticator, self._to_machine = (
            kcm,
            environment,
            authenticator,
            to_machine,
        )
        self.clock = clock
        self._clients: dict[str, End] = {}
        self._ends: dict[End, None] = {}
        self.port = max(environment.ports, default=_FIRST_PORT) + 1
        environment.ports[self.port] = self

    def accept(self, end: End) -> None:
        session = _RelaySession(self, end)
        self._ends[end] = None
        end.on_message = lambda data: self._kcm.run(lambda: session.receive(data))
        end.on_closed = lambda: self._kcm.run(lambda: self.part(session, closed=True))
        self._kcm.after(_PROOF_WITHIN, session.grow_impatient)

    def send(self, tag: str, message: Any) -> None:
        """Send to the wrapper of this tag, if it is connected."""
        if tag in self._clients:
            self._clients[tag].send(frame_to_json(message))

    def has(self, tag: str) -> bool:
        """Return whether the wrapper of this tag is connected."""
        return tag in self._clients

    def close(self) -> None:
        self._environment.ports.pop(self.port, None)
        for end in list(self._ends):
            end.close()

    def admit(self, session: "_RelaySession", admitted: Admitted) -> None:
        """Admit a wrapper; an earlier session of its tag is closed."""
        before = self._clients.get(admitted.tag)
        self._clients[admitted.tag] = session.end
        if before is not None:
            before.close()
            self._ends.pop(before, None)
        session.end.send(messages.to_json(admitted.welcome))
        self._to_machine(do.WrapperConnected(admitted.tag, admitted.clock_at(self.clock())))
        self._kcm.after(_BEAT, lambda: self._beat(session))

    def receive(self, tag: str, message: Any) -> None:
        if (said := outcome(tag, message)) is not None:
            self._to_machine(said)

    def part(self, session: "_RelaySession", closed: bool = False) -> None:
        """`closed`: by the wrapper's side."""
        session.end.close()
        self._ends.pop(session.end, None)
        if self._clients.get(session.tag) is session.end:
            del self._clients[session.tag]
            self._to_machine(do.WrapperDisconnected(session.tag, closed))

    def silent(self, session: "_RelaySession") -> bool:
        return self._environment.agenda.now - session.contact_at >= _SILENCE

    def now(self) -> int:
        return self._environment.agenda.now

    def _beat(self, session: "_RelaySession") -> None:
        if session.end not in self._ends:
            return
        if self.silent(session):
            self.part(session)
            return
        session.end.send(messages.to_json(messages.Heartbeat()))
        self._kcm.after(_BEAT, lambda: self._beat(session))


class _RelaySession:
    """One connection, from its hello on."""

    def __init__(self, relay: SimRelay, end: End) -> None:
        self._relay, self.end = relay, end
        self.tag = ""
        self._challenged: Challenged | None = None
        self.contact_at = relay.now()

    def receive(self, data: Json) -> None:
        self.contact_at = self._relay.now()
        if self.tag:
            self._relay.receive(self.tag, messages.from_json(data))
        elif self._challenged is None:
            self._challenge(data)
        else:
            self._admit(self._challenged, data)

    def _challenge(self, data: Json) -> None:
        self._challenged = self._relay.authenticator.challenge(self._relay.clock(), data)
        if self._challenged is None:
            self._relay.part(self)
            return
        self.end.send(messages.to_json(self._challenged.challenge))

    def _admit(self, challenged: Challenged, data: Json) -> None:
        """Admit the wrapper, or close the connection without an answer."""
        admitted = self._relay.authenticator.admit(challenged, data)
        if admitted is None:
            self._relay.part(self)
            return
        self.tag = admitted.tag
        self._relay.admit(self, admitted)

    def grow_impatient(self) -> None:
        if not self.tag and self.end.open:
            self._relay.part(self)
