"""The machine of a relay's connections: heartbeats, silence, suspended wrappers, strangers and their proofs."""

from typing import Any

import pytest
from koalapy_adapters.clock import SECOND
from koalapy_adapters.kcm.relay import sessions as relay
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.relay.sessions import BEAT, PROOF_WITHIN, SILENCE, Connection, Connections, End, Pass, Send
from koalapy_adapters.kcm.state.actions import WrapperConnected, WrapperDisconnected, WrapperPut
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.kcm import PutKey
from koalapy_adapters.messages.relay import Heartbeat, RelayChallenge, RelayWelcome
from koalapy_adapters.wrapper.relay.contact import CONNECT_WITHIN
from koalapy_adapters.wrapper.relay.handshake import Answer, Handshake

TAG, TOKEN, SECRET = "kabcde00000001", "secret", "5" * 64


class Play:
    """Connections with the true authenticator, whose answers come at once."""

    def __init__(self) -> None:
        self.now = 0
        self.suspended = False
        self.authenticator = Authenticator(Accounts(lambda tag: TOKEN.encode()), SECRET, lambda size: "0" * 2 * size)
        self.connections = Connections(self.authenticator, lambda: self.now, lambda tag: self.suspended)
        self.actions: list[Any] = []

    def open(self, source: str = "10.0.0.1") -> Connection:
        connection = Connection(None, source)
        self._do(self.connections.opened(self.now, connection))
        return connection

    def enter(self, source: str = "10.0.0.1") -> Connection:
        """Return the connection of a wrapper that has proven itself."""
        connection = self.open(source)
        self.receive(connection, self.proof(connection))
        return connection

    def proof(self, connection: Connection) -> Any:
        """Send a wrapper's hello, and return its proof, which is not sent yet."""
        opening = Handshake(TAG, TOKEN).open(self.now, SECRET, by_files=False)
        [hello] = opening.first
        self.receive(connection, to_json(hello))
        [challenge] = self.sent(connection, RelayChallenge)
        answer = opening.received(self.now, challenge)
        assert isinstance(answer, Answer)
        return to_json(answer.proof)

    def receive(self, connection: Connection, data: Any) -> None:
        self.connections.contact(self.now, connection)
        self._do(self.connections.received(self.now, connection, data))

    def close(self, connection: Connection) -> None:
        self._do(self.connections.closed(connection, by_wrapper=True))

    def pass_time(self, until: int) -> None:
        while (at := self.connections.next_wakeup()) is not None and at <= until:
            self.now = max(self.now, at)
            self._do(self.connections.tick(self.now))
        self.now = until

    def sent(self, connection: Connection, kind: type) -> list[Any]:
        sends = [each for each in self.actions if isinstance(each, Send) and each.connection is connection]
        return [each.message for each in sends if isinstance(each.message, kind)]

    @property
    def events(self) -> list[Any]:
        return [each.event for each in self.actions if isinstance(each, Pass)]

    @property
    def ended(self) -> list[Connection]:
        return [each.connection for each in self.actions if isinstance(each, End)]

    def _do(self, actions: list[Any]) -> None:
        for each in actions:
            self.actions.append(each)
            if isinstance(each, relay.Verify):
                admitted = self.authenticator.admit(each.challenged, each.proof)
                self._do(self.connections.verified(self.now, each.connection, admitted))


@pytest.fixture
def play() -> Play:
    return Play()


def put(number: int) -> Any:
    return to_json(PutKey(TAG, str(number), ""))


def test_a_wrapper_is_welcomed_and_its_messages_are_passed_on(play: Play) -> None:
    connection = play.enter()
    assert play.sent(connection, RelayWelcome)
    play.receive(connection, put(1))
    assert play.events == [WrapperConnected(TAG, 0), WrapperPut(TAG, "1", "")]
    assert play.connections.strangers == play.connections.count_refused() == 0


def test_a_connected_wrapper_gets_heartbeats_as_long_as_it_sends_some(play: Play) -> None:
    connection = play.enter()
    for second in range(1, 100):
        play.pass_time(second * SECOND)
        play.receive(connection, to_json(Heartbeat()))
    assert len(play.sent(connection, Heartbeat)) == 99 * SECOND // BEAT
    assert not play.ended


def test_a_silent_wrapper_is_given_up_exactly_after_the_silence(play: Play) -> None:
    connection = play.enter()
    play.pass_time(5 * SECOND)
    play.receive(connection, put(1))
    play.pass_time(5 * SECOND + SILENCE - 1)
    assert not play.ended
    play.pass_time(5 * SECOND + SILENCE)
    assert play.ended == [connection]
    assert play.events[-1] == WrapperDisconnected(TAG, False)
    assert play.connections.next_wakeup() is None


def test_a_suspended_wrapper_is_kept_and_given_up_only_after_it_goes_on_in_silence(play: Play) -> None:
    connection = play.enter()
    play.suspended = True
    play.pass_time(10 * SILENCE)
    assert not play.ended
    assert play.connections.wrapper(TAG) is connection
    play.suspended = False
    play.pass_time(11 * SILENCE)
    assert play.ended == [connection]


def test_a_newer_connection_replaces_that_of_the_same_wrapper(play: Play) -> None:
    before = play.enter()
    after = play.enter()
    assert play.ended == [before]
    play.receive(before, put(1))
    play.close(before)
    assert [type(each) for each in play.events] == [WrapperConnected, WrapperConnected]
    play.receive(after, put(2))
    play.close(after)
    assert play.events[2:] == [WrapperPut(TAG, "2", ""), WrapperDisconnected(TAG, True)]


def test_a_message_that_no_wrapper_sends_ends_its_connection(play: Play) -> None:
    connection = play.enter()
    play.receive(connection, {"type": "release"})
    assert play.ended == [connection]
    assert play.events[-1] == WrapperDisconnected(TAG, False)


def test_a_stranger_without_a_proof_is_dropped_in_time(play: Play) -> None:
    stranger = play.open()
    play.pass_time(PROOF_WITHIN - 1)
    assert not play.ended
    play.pass_time(PROOF_WITHIN)
    assert play.ended == [stranger]
    assert play.connections.count_refused() == 1


def test_a_wrapper_that_still_waits_for_the_relays_answers_is_not_dropped(play: Play) -> None:
    """On a busy node it sees 2 s late that it is connected, and its time for the answers begins then."""
    connection = play.open()
    play.pass_time(2 * SECOND + CONNECT_WITHIN - 1)
    play.receive(connection, play.proof(connection))
    assert play.connections.wrapper(TAG) is connection


def test_a_proof_that_comes_after_its_connection_was_dropped_lets_nobody_in(play: Play) -> None:
    connection = play.open()
    [verify] = play.connections.received(0, connection, play.proof(connection))
    play.pass_time(PROOF_WITHIN)
    admitted = play.authenticator.admit(verify.challenged, verify.proof)
    assert admitted is not None
    assert play.connections.verified(play.now, connection, admitted) == []
    assert play.connections.wrapper(TAG) is None
