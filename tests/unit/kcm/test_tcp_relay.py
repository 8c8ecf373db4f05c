"""The TCP relay over real sockets: whom it accepts and drops, and what strangers and men in the middle cannot do."""

import asyncio
import contextlib
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cable import Cable, Meddler, Way
from kcm_connection import Line
from koalapy_adapters.channel import MAX_CLEAR, Channel
from koalapy_adapters.clock import SECOND
from koalapy_adapters.frames import MAX_CHUNK, Chunk
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.relay.sessions import MAX_STRANGERS, MAX_STRANGERS_OF_ONE
from koalapy_adapters.kcm.relay.tcp import MAX_BACKLOG, MOST_CHUNKS, Relay
from koalapy_adapters.kcm.state.actions import WrapperConnected, WrapperDisconnected, WrapperPut
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.kcm import PutKey
from koalapy_adapters.messages.koalad import Release
from koalapy_adapters.messages.relay import RELAY_PROTOCOL, RelayHello, Stop
from koalapy_adapters.wrapper.relay.handshake import Answer, Handshake

TAG, TOKEN, SECRET = "kabcde00000001", "secret", "5" * 64
SILENCE_S = 0.1
PATIENCE_S = 60.0


class RunningRelay:
    """A relay in a thread of its own. `events`: its events for the machine; `errors`: its unhandled exceptions."""

    def __init__(self, **options: Any) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.errors: list[Any] = []
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def send(self, message: Any) -> None:
        self._loop.call_soon_threadsafe(self.relay.send, TAG, message)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call it in the relay's thread, after all that was sent before."""
        answered: queue.Queue[Any] = queue.Queue()
        self._loop.call_soon_threadsafe(lambda: answered.put(function()))
        return answered.get(timeout=PATIENCE_S)

    def next(self) -> Any:
        return self.events.get(timeout=PATIENCE_S)

    def next_entered(self) -> WrapperConnected:
        event = self.next()
        assert isinstance(event, WrapperConnected)
        assert event.tag == TAG
        return event

    def line(self) -> Line:
        return Line(self.relay.port)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda loop, context: self.errors.append(context))
        token_of = self._options.pop("token_of", lambda tag: TOKEN.encode())
        known = Authenticator(Accounts(token_of), SECRET, lambda size: random.randbytes(size).hex())
        still = self._options.pop("still", False)
        self.relay = Relay(known, self.events.put, lambda: None, lambda tag: still, **self._options)
        await self.relay.start()
        working = asyncio.ensure_future(self.relay.work())
        self._ready.set()
        await self._over.wait()
        working.cancel()
        self.relay.close()


@pytest.fixture
def running_relay() -> Iterator[Callable[..., RunningRelay]]:
    made: list[RunningRelay] = []

    def make(**options: Any) -> RunningRelay:
        made.append(RunningRelay(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()
        assert each.errors == []


def enter(line: Line) -> bool:
    return line.enter(Handshake(TAG, TOKEN).open(0, SECRET, by_files=False))


def put(number: int) -> PutKey:
    return PutKey(TAG, str(number), "")


Make = Callable[..., RunningRelay]


# ---- silence


def test_a_silent_wrapper_is_dropped_as_not_closed(running_relay: Make) -> None:
    relay = running_relay(silence=int(SILENCE_S * SECOND))
    with relay.line() as line:
        assert enter(line)
        relay.next_entered()
        assert relay.next() == WrapperDisconnected(TAG, False)


def test_a_suspended_wrapper_may_be_silent_and_is_dropped_when_it_closes(running_relay: Make) -> None:
    relay = running_relay(silence=int(SILENCE_S * SECOND), still=True)
    with relay.line() as line:
        assert enter(line)
        relay.next_entered()
        with pytest.raises(queue.Empty):
            relay.events.get(timeout=5 * SILENCE_S)
    assert relay.next() == WrapperDisconnected(TAG, True)


def test_a_wrapper_that_connects_before_the_relay_works_is_answered_once_it_does() -> None:
    """Before that, the relay could pass the wrapper's messages to no machine."""

    async def run() -> None:
        events: asyncio.Queue[Any] = asyncio.Queue()
        known = Authenticator(Accounts(lambda tag: TOKEN.encode()), SECRET, lambda size: random.randbytes(size).hex())
        relay = Relay(known, events.put_nowait, lambda: None, lambda tag: False)
        await relay.start()
        line = Line(relay.port)
        entered = asyncio.ensure_future(asyncio.to_thread(enter, line))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(events.get(), SILENCE_S)
        working = asyncio.ensure_future(relay.work())
        assert isinstance(await events.get(), WrapperConnected)
        assert await entered
        line.connection.close()
        assert await events.get() == WrapperDisconnected(TAG, True)
        working.cancel()
        relay.close()

    asyncio.run(run())


def test_the_time_of_a_handshake_does_not_shift_the_clock(running_relay: Make) -> None:
    """Otherwise the instants of a wrapper would be late, such as its arrival at the barrier."""

    def token_of(tag: str) -> bytes:
        time.sleep(SILENCE_S)  # a slow shared directory
        return TOKEN.encode()

    relay = running_relay(token_of=token_of)
    with relay.line() as line:
        assert enter(line)
        assert relay.next_entered().clock >= SILENCE_S * SECOND  # the hello had 0


# ---- those that send without a pause, and those that do not read


def test_one_proof_of_a_connection_is_examined_at_a_time(running_relay: Make) -> None:
    asked: queue.Queue[str] = queue.Queue()
    may_answer = threading.Event()

    def token_of(tag: str) -> bytes:
        asked.put(tag)
        assert may_answer.wait(PATIENCE_S)
        return TOKEN.encode()

    relay = running_relay(token_of=token_of)
    opening = Handshake(TAG, TOKEN).open(0, SECRET, by_files=False)
    with relay.line() as line, relay.line() as later:
        line.send(*opening.first)
        answer = opening.received(0, line.receive())
        assert isinstance(answer, Answer)
        line.send(*[answer.proof] * 5)
        asked.get(timeout=PATIENCE_S)
        later.send(*Handshake(TAG, TOKEN).open(0, SECRET, by_files=False).first)
        assert later.receive() is not None  # what came before was read too
        assert asked.empty()
        may_answer.set()
        relay.next_entered()


def test_chunks_wait_in_bounds_for_a_wrapper_that_does_not_read_and_control_passes_them(running_relay: Make) -> None:
    relay = running_relay()
    with relay.line() as line:
        assert enter(line)
        relay.next_entered()
        peer = relay.relay.connections.wrapper(TAG).peer  # type: ignore[union-attr]
        for number in range(3 * MOST_CHUNKS):
            relay.send(Chunk(1, number, bytes(MAX_CHUNK)))
        relay.send(Stop())
        relay.call(lambda: None)
        assert relay.call(lambda: len(peer._chunks)) == MOST_CHUNKS
        found: list[Any] = []
        while len(found) < MOST_CHUNKS:
            while (data := line.channel.take()) is None:
                line.channel.feed(line.connection.recv(1 << 18))
            found.append(data)
        chunks = [each.number for each in found if isinstance(each, Chunk)]
        assert chunks == list(range(MOST_CHUNKS - 1))
        assert 0 < next(place for place, each in enumerate(found) if not isinstance(each, Chunk)) < MOST_CHUNKS // 2


def test_a_wrapper_that_reads_no_message_for_too_long_is_dropped(running_relay: Make) -> None:
    relay = running_relay(still=True)  # that it sends nothing is no reason
    with relay.line() as line:
        assert enter(line)
        relay.next_entered()
        for number in range(4 * MAX_BACKLOG // MAX_CHUNK):
            relay.send(PutKey(TAG, str(number), "x" * MAX_CHUNK))
        assert relay.next() == WrapperDisconnected(TAG, False)


# ---- men in the middle


@pytest.fixture
def middle() -> Iterator[Callable[[RunningRelay], tuple[int, Meddler, Meddler]]]:
    """Make a port that leads to a relay, and the meddlers on both ways: to the relay, and back."""
    cables: list[Cable] = []

    def between(relay: RunningRelay) -> tuple[int, Meddler, Meddler]:
        up, down = Meddler(), Meddler()
        cables.append(Cable(("127.0.0.1", relay.relay.port), up, down))
        return cables[-1].port, up, down

    yield between
    for cable in cables:
        cable.close()


Middle = Callable[[RunningRelay], tuple[int, Meddler, Meddler]]


def test_a_middle_that_passes_everything_on_changes_nothing(running_relay: Make, middle: Middle) -> None:
    relay = running_relay()
    port, up, down = middle(relay)
    with Line(port) as line:
        assert enter(line)
        line.send(put(1), put(2))
        relay.next_entered()
        assert [relay.next(), relay.next()] == [WrapperPut(TAG, "1", ""), WrapperPut(TAG, "2", "")]
        relay.send(Stop())
        assert line.receive() == Stop()
    assert all(TOKEN.encode() not in frame and SECRET.encode() not in frame for frame in up.seen + down.seen)


def injected(frame: bytes, before: list[bytes]) -> list[bytes]:
    return [Channel().encode(to_json(put(9))), frame]


def changed(frame: bytes, before: list[bytes]) -> list[bytes]:
    return [frame.replace(b'"key":"2"', b'"key":"9"')]


def replayed(frame: bytes, before: list[bytes]) -> list[bytes]:
    return [before[-2], frame]


def moved(frame: bytes, before: list[bytes]) -> list[bytes]:
    """Replace a frame by the one before it."""
    return [] if b'"2"' in frame else [frame, before[-2]]


@pytest.mark.parametrize("meddle", [injected, changed, replayed, moved])
def test_a_middle_that_changes_frames_can_only_end_the_connection(
    running_relay: Make, middle: Middle, meddle: Any
) -> None:
    relay = running_relay()
    port, up, _ = middle(relay)
    with Line(port) as line:
        assert enter(line)
        line.send(put(1))
        relay.next_entered()
        assert relay.next() == WrapperPut(TAG, "1", "")
        up.meddle = lambda frame: meddle(frame, up.seen)
        line.send(put(2), put(3))
        assert relay.next() == WrapperDisconnected(TAG, False)
        assert line.receive() is None


def test_a_recorded_handshake_is_refused_while_its_kcm_runs(running_relay: Make) -> None:
    relay = running_relay()
    with relay.line() as line:
        assert enter(line)
        line.send(put(1))
        relay.next_entered()
        assert relay.next() == WrapperPut(TAG, "1", "")
        with relay.line() as another:
            another.send_bytes(line.sent)  # hello, proof and what followed
            assert another.receive() is not None  # a challenge of its own
            assert another.receive() is None
        line.send(put(2))
        assert relay.next() == WrapperPut(TAG, "2", "")  # the true wrapper is still connected


@pytest.mark.parametrize("kind", ["injected", "replayed", "moved"])
def test_a_wrapper_ignores_frames_that_its_kcm_did_not_seal(world: Any, kind: str) -> None:
    """It ends the connection, connects again, and only the true relay can release it."""
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    down = Meddler()
    cable = Cable(("127.0.0.1", relay.port), Way(None), down)
    world.publish(cable.port, secret=relay.secret)
    stop = Channel().encode(to_json(Stop(force=True)))
    try:
        attempt.start()
        relay.report(attempt, "at_barrier")
        relay.hellos.get(timeout=PATIENCE_S)
        held: list[bytes] = []

        def meddle(frame: bytes) -> list[bytes]:
            """Meddle with the first two frames of this connection only."""
            held.append(frame)
            if len(held) > 2:
                return [frame]
            instead = {"injected": ([stop], []), "replayed": ([frame, frame], []), "moved": ([], [frame, held[0]])}
            return instead[kind][len(held) - 1]

        down.meddle = meddle
        relay.send(attempt.tag, PutKey("x", "first", "1"))
        relay.send(attempt.tag, PutKey("x", "second", "2"))
        relay.hellos.get(timeout=PATIENCE_S)
        relay.release(attempt)
        assert attempt.wait() == 0
        assert attempt.record()["ending"] == "exited"
    finally:
        relay.close()
        cable.close()


# ---- strangers


def frame(payload: bytes, kind: bytes = b"J") -> bytes:
    return kind + struct.pack(">I", len(payload)) + payload


def hello(**fields: Any) -> bytes:
    fields = {**to_json(RelayHello(RELAY_PROTOCOL, TAG, 0, "0" * 32)), **fields}
    return frame(str(fields).replace("'", '"').replace("None", "null").encode("utf-8", "surrogatepass"))


RAW = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "random": bytes(range(256)) * 4,
    "NULs": b"\0" * 1000,
    "a length of 4 GiB": b"J\xff\xff\xff\xff",
    "a length of 1 MiB": b"J" + struct.pack(">I", 1 << 20) + b"x" * 4096,
    "a byte too long": b"J" + struct.pack(">I", MAX_CLEAR + 1),
    "nothing in it": frame(b""),
    "no JSON": frame(b"{"),
    "no UTF-8": frame(b"\xff\xfe"),
    "deep lists": frame(b"[" * 1000),
    "deep objects": frame(b'{"":' * 250),
    "many lists": frame(b"[" + b"[]," * 300 + b"0]"),
    "NaN": frame(b"NaN"),
    "infinity": frame(b'{"type": "relay_hello", "protocol": Infinity}'),
    "many digits": frame(b"9" * 1000),
    "a large exponent": frame(b"1e999999999"),
    "half a character": hello(tag="\\ud800"),
    "a tag with NUL": hello(tag="\\u0000"),
    "a path": hello(tag="../../etc/passwd"),
    "another protocol": hello(protocol=3),
    "no protocol": hello(protocol=None),
    "a type that is a list": frame(b'{"type": ["relay_hello"]}'),
    "a type that is an object": frame(b'{"type": {}}'),
    "a chunk": frame(b"\0" * 16, b"C"),
    "a credit": frame(b"\0" * 16, b"G"),
    "a sealed frame": frame(b"{}" + b"\0" * 16, b"S"),
    "a hello with one more field, and a sealed frame": hello(more=1) + frame(b"{}" + b"\0" * 16, b"S"),
    "a proof of nothing": hello() + frame(b'{"type": "relay_proof", "proof": null}'),
    "a proof of no type": hello() + frame(b'{"type": {}, "proof": "0"}'),
    "an order": frame(str(to_json(Release(1, TAG, 0, []))).replace("'", '"').encode()),
}


def test_a_stranger_is_dropped_whatever_it_sends_and_the_relay_still_serves(running_relay: Make) -> None:
    relay = running_relay()
    for kind, data in RAW.items():
        with relay.line() as line:
            with contextlib.suppress(ConnectionError):  # the relay may end the connection before everything is sent
                line.send_bytes(data)
            received = b""
            with contextlib.suppress(ConnectionError):
                while read := line.connection.recv(1 << 16):
                    received += read
            assert len(received) < 200, kind  # a challenge at most
    assert relay.events.empty()
    with relay.line() as line:
        assert enter(line)
    assert relay.errors == []


def test_if_strangers_fill_the_table_the_oldest_is_dropped_and_a_wrapper_is_accepted(running_relay: Make) -> None:
    """The strangers come from eight addresses, and each sends one byte less than a frame."""
    relay = running_relay()
    with contextlib.ExitStack() as stack:
        strangers = [stranger(stack, relay.relay.port, 2 + number // 32) for number in range(MAX_STRANGERS)]
        with relay.line() as line:
            assert enter(line)
        assert is_cut(strangers[0])
        assert relay.relay.connections.strangers <= MAX_STRANGERS
    relay.next()


def test_an_address_has_no_more_strangers_than_its_share(running_relay: Make) -> None:
    relay = running_relay()
    with contextlib.ExitStack() as stack:
        mine = [stranger(stack, relay.relay.port, 2) for _ in range(MAX_STRANGERS_OF_ONE)]
        others = stranger(stack, relay.relay.port, 3)
        assert relay.relay.connections.strangers <= MAX_STRANGERS_OF_ONE + 1
        stranger(stack, relay.relay.port, 2)
        assert is_cut(mine[0])
        others.setblocking(False)
        with pytest.raises(BlockingIOError):
            others.recv(100)


def test_strangers_that_connect_again_and_again_keep_no_wrapper_out(running_relay: Make) -> None:
    relay, over = running_relay(), threading.Event()

    def renew(number: int) -> None:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            while not over.is_set():
                stranger(stack, relay.relay.port, 2 + number)

    threads = [threading.Thread(target=renew, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        entered = 0
        for _ in range(20):
            with relay.line() as line:
                entered += enter(line)
        assert entered >= 15  # a dropped wrapper connects again
        assert relay.relay.connections.strangers <= MAX_STRANGERS
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_stranger_from_another_network_is_dropped_at_once(running_relay: Make) -> None:
    relay = running_relay(answers=lambda address: address.endswith("127.0.0.1"))
    with contextlib.ExitStack() as stack:
        assert is_cut(stranger(stack, relay.relay.port, 2))
    with relay.line() as line:
        assert enter(line)


def test_strangers_are_counted_and_not_printed_one_by_one(
    running_relay: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    relay = running_relay()
    for data in (RAW["HTTP"], RAW["no JSON"], b""):
        with relay.line() as line:
            line.send_bytes(data)
            line.connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                line.connection.recv(100)
    assert "connection" not in capfd.readouterr().err
    assert relay.relay.connections.count_refused() == 2  # the third sent nothing, as a probe of the address does
    assert relay.relay.connections.count_refused() == 0


def stranger(stack: contextlib.ExitStack, port: int, host: int) -> socket.socket:
    """Return a connection from 127.0.0.HOST that has sent one byte less than a frame."""
    made = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S, (f"127.0.0.{host}", 0)))
    with contextlib.suppress(ConnectionError):
        made.sendall(frame(b" " * MAX_CLEAR)[:-1])
    return made


def is_cut(connection: socket.socket) -> bool:
    """Wait until the relay sends something or ends the connection. Returns whether it ended it without a byte."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True
