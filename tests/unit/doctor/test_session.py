"""The doctor's session with a KCM: the reason of its end is reported, and no second session is begun."""

import queue

import pytest
from koalapy_adapters import messages as wire
from koalapy_adapters.frames import Control, Decoder, encode
from koalapy_adapters.messages import kcm, koalad

from koalapy.doctor.kcm_session import Interrupted, KcmSession
from koalapy.model.errors import Reason, TransientError
from koalapy.model.identity import InstanceId

WELCOME = wire.to_json(kcm.Welcome(wire.PROTOCOL, "1", 0, "3.6", "fs0"))


class FakeChannel:
    """A channel whose other side sends what a test puts into `incoming`; b"" is the end. `sent`: all messages to it."""

    def __init__(self) -> None:
        self.incoming: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.sent: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._decoder = Decoder()

    def put(self, *messages: object) -> None:
        for message in messages:
            self.incoming.put(encode(Control(message)))

    def read(self, size: int) -> bytes:
        return self.incoming.get()

    def write(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            assert isinstance(frame, Control)
            self.sent.put(wire.from_json(frame.data))

    def exit_status(self, timeout_s: float) -> int | None:
        return None

    def close(self) -> None:
        self.incoming.put(b"")


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
def session(channel: FakeChannel) -> KcmSession:
    return KcmSession(channel, {"name": "vu", "batch": "slurm"}, InstanceId("abcde"), ["The KCM broke."])


def fails(session: KcmSession) -> Reason:
    """Return the error of a wait that lasts until the session is lost."""
    with pytest.raises(TransientError) as caught:
        session.wait("tag", lambda bodies: None, 30)
    return caught.value.reason


def test_a_session_begins_with_hello_and_asks_for_measurements(session: KcmSession, channel: FakeChannel) -> None:
    channel.put(WELCOME)
    assert session.begin().host == "fs0"
    sent = [channel.sent.get(timeout=30) for _ in range(3)]
    assert [type(each) for each in sent] == [koalad.Hello, koalad.Ping, koalad.WatchCluster]
    channel.put(wire.to_json(kcm.Event(1, wire.to_json(kcm.CleanedUp("tag", 5)))))
    assert session.wait("tag", lambda bodies: list(bodies) or None, 30) == [kcm.CleanedUp("tag", 5)]
    assert channel.sent.get(timeout=30) == koalad.Acknowledge(1)
    channel.incoming.put(b"")
    fails(session)
    assert session.end() == []


def test_a_lost_connection_is_reported_with_the_last_line_of_standard_error(
    session: KcmSession, channel: FakeChannel
) -> None:
    channel.put(WELCOME)
    session.begin()
    channel.incoming.put(b"")
    error = fails(session)
    assert (error.code, error.message) == ("lost", "The connection to the head node was lost: The KCM broke.")
    with pytest.raises(TransientError, match="was lost: The KCM broke"):
        session.ask(lambda id: koalad.Diagnose(id, "head"))
    assert session.end() == []


def test_a_kcm_that_cannot_be_understood_is_reported(session: KcmSession, channel: FakeChannel) -> None:
    channel.put(WELCOME, {"type": "pong", "id": "x"})
    session.begin()
    error = fails(session)
    assert error.code == "garbled"
    assert "cannot be understood: pong" in error.message
    assert session.end() == []


def test_an_interrupt_ends_the_wait_for_the_welcome(session: KcmSession, channel: FakeChannel) -> None:
    session.interrupt()
    with pytest.raises(Interrupted):
        session.begin()
    channel.incoming.put(b"")
    session.end()
