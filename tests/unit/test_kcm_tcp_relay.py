"""The relay over real sockets: whom it lets in and gives up, and what strangers and men in the middle cannot do."""

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
from koalapy_adapters.kcm.relay import tcp
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.relay.tcp import Relay
from koalapy_adapters.kcm.state.actions import WrapperConnected, WrapperDisconnected, WrapperPut
from koalapy_adapters.messages import RELAY_PROTOCOL, PutKey, RelayHello, Release, Stop, to_json
from koalapy_adapters.wrapper.relay.handshake import Handshake

TAG, TOKEN, SECRET = "kabcde00000001", "secret", "5" * 64
SILENCE = 0.1
PATIENCE_S = 60.0


class Living:
    """A relay in a thread of its own; `told`: what the machine is told; `broken`: exceptions that nobody handled."""

    def __init__(self, **options: Any) -> None:
        self.told: queue.Queue[Any] = queue.Queue()
        self.broken: list[Any] = []
        self._options = options
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)

    def tell(self, message: Any) -> None:
        self._loop.call_soon_threadsafe(self.relay.send, TAG, message)

    def next(self) -> Any:
        return self.told.get(timeout=PATIENCE_S)

    def next_entered(self) -> WrapperConnected:
        said = self.next()
        assert isinstance(said, WrapperConnected)
        assert said.tag == TAG
        return said

    def line(self) -> Line:
        return Line(self.relay.port)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda loop, context: self.broken.append(context))
        token_of = self._options.pop("token_of", lambda tag: TOKEN.encode())
        known = Authenticator(Accounts(token_of), SECRET, lambda size: random.randbytes(size).hex())
        still = self._options.pop("still", False)
        self.relay = Relay(known, self.told.put, lambda: None, lambda tag: still, **self._options)
        await self.relay.start()
        working = asyncio.ensure_future(self.relay.work())
        self._ready.set()
        await self._over.wait()
        working.cancel()
        self.relay.close()
        # Python 3.11 calls it an error that a connection's task is cancelled, as asyncio.run now does.
        self._loop.set_exception_handler(lambda loop, context: None)


@pytest.fixture
def living() -> Iterator[Callable[..., Living]]:
    made: list[Living] = []

    def make(**options: Any) -> Living:
        made.append(Living(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()
        assert each.broken == []


def enter(line: Line) -> bool:
    return line.enter(Handshake(TAG, TOKEN).open(0, SECRET, by_files=False))


def put(number: int) -> PutKey:
    return PutKey(TAG, str(number), "")


Make = Callable[..., Living]


# ---- silence


def test_one_that_is_silent_is_given_up_and_nobody_knows_whether_it_has_ended(living: Make) -> None:
    relay = living(silence=SILENCE)
    with relay.line() as line:
        assert enter(line)
        relay.next_entered()
        assert relay.next() == WrapperDisconnected(TAG, False)


def test_one_that_is_suspended_may_be_silent_and_its_end_is_known_by_its_own_side(living: Make) -> None:
    relay = living(silence=SILENCE, still=True)
    with relay.line() as line:
        assert enter(line)
        relay.next_entered()
        with pytest.raises(queue.Empty):
            relay.told.get(timeout=5 * SILENCE)
    assert relay.next() == WrapperDisconnected(TAG, True)


def test_who_comes_before_the_relay_works_is_answered_when_it_does() -> None:
    """Before, nobody could be told what he says."""

    async def run() -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()
        known = Authenticator(Accounts(lambda tag: TOKEN.encode()), SECRET, lambda size: random.randbytes(size).hex())
        relay = Relay(known, told.put_nowait, lambda: None, lambda tag: False)
        await relay.start()
        line = Line(relay.port)
        entered = asyncio.ensure_future(asyncio.to_thread(enter, line))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(told.get(), SILENCE)
        working = asyncio.ensure_future(relay.work())
        assert isinstance(await told.get(), WrapperConnected)
        assert await entered
        line.connection.close()
        assert await told.get() == WrapperDisconnected(TAG, True)
        working.cancel()
        relay.close()

    asyncio.run(run())


def test_the_time_that_a_handshake_takes_counts_in_no_clock(living: Make) -> None:
    """Else instants of a wrapper would come late, such as its arrival at the barrier."""

    def token_of(tag: str) -> bytes:
        time.sleep(SILENCE)  # a slow shared directory
        return TOKEN.encode()

    relay = living(token_of=token_of)
    with relay.line() as line:
        assert enter(line)
        assert relay.next_entered().clock >= SILENCE * 1e6  # the hello said 0


# ---- men in the middle


@pytest.fixture
def middle() -> Iterator[Callable[[Living], tuple[int, Meddler, Meddler]]]:
    """A port that leads to a relay, and the meddlers on both ways: to the relay, and back."""
    cables: list[Cable] = []

    def between(relay: Living) -> tuple[int, Meddler, Meddler]:
        up, down = Meddler(), Meddler()
        cables.append(Cable(("127.0.0.1", relay.relay.port), up, down))
        return cables[-1].port, up, down

    yield between
    for cable in cables:
        cable.close()


Middle = Callable[[Living], tuple[int, Meddler, Meddler]]


def test_who_passes_all_on_changes_nothing(living: Make, middle: Middle) -> None:
    relay = living()
    port, up, down = middle(relay)
    with Line(port) as line:
        assert enter(line)
        line.send(put(1), put(2))
        relay.next_entered()
        assert [relay.next(), relay.next()] == [WrapperPut(TAG, "1", ""), WrapperPut(TAG, "2", "")]
        relay.tell(Stop())
        assert line.receive() == Stop()
    assert all(TOKEN.encode() not in frame and SECRET.encode() not in frame for frame in up.seen + down.seen)


def injected(frame: bytes, before: list[bytes]) -> list[bytes]:
    return [Channel().encode(to_json(put(9))), frame]


def changed(frame: bytes, before: list[bytes]) -> list[bytes]:
    return [frame.replace(b'"key":"2"', b'"key":"9"')]


def replayed(frame: bytes, before: list[bytes]) -> list[bytes]:
    return [before[-2], frame]


def moved(frame: bytes, before: list[bytes]) -> list[bytes]:
    """It comes in place of the one after it."""
    return [] if b'"2"' in frame else [frame, before[-2]]


@pytest.mark.parametrize("meddle", [injected, changed, replayed, moved])
def test_who_sits_between_can_only_end_the_connection(living: Make, middle: Middle, meddle: Any) -> None:
    relay = living()
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


def test_a_handshake_that_was_recorded_is_refused_while_its_kcm_lives(living: Make) -> None:
    relay = living()
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
        assert relay.next() == WrapperPut(TAG, "2", "")  # the true one has not been thrown out


@pytest.mark.parametrize("kind", ["injected", "replayed", "moved"])
def test_a_wrapper_heeds_nothing_that_its_kcm_did_not_seal(world: Any, kind: str) -> None:
    """It hangs up, comes again, and is released by the true one alone."""
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
            """With the first two frames of this connection alone."""
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
    said = {**to_json(RelayHello(RELAY_PROTOCOL, TAG, 0, "0" * 32)), **fields}
    return frame(str(said).replace("'", '"').replace("None", "null").encode("utf-8", "surrogatepass"))


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


def test_whatever_bytes_a_stranger_sends_he_is_hung_up_on_and_the_relay_serves_on(living: Make) -> None:
    relay = living()
    for kind, data in RAW.items():
        with relay.line() as line:
            with contextlib.suppress(ConnectionError):  # it may hang up before all is sent
                line.send_bytes(data)
            received = b""
            with contextlib.suppress(ConnectionError):
                while read := line.connection.recv(1 << 16):
                    received += read
            assert len(received) < 200, kind  # a challenge at most
    assert relay.told.empty()
    with relay.line() as line:
        assert enter(line)
    assert relay.broken == []


def test_when_strangers_fill_the_table_the_oldest_is_dropped_and_a_true_wrapper_gets_in(living: Make) -> None:
    """Each holds a byte less than a frame, from eight addresses."""
    relay = living()
    with contextlib.ExitStack() as stack:
        strangers = [stranger(stack, relay.relay.port, 2 + number // 32) for number in range(tcp.MAX_STRANGERS)]
        with relay.line() as line:
            assert enter(line)
        assert is_cut(strangers[0])
        assert len(relay.relay.strangers) <= tcp.MAX_STRANGERS
    relay.next()


def test_of_one_address_no_more_strangers_are_kept_than_its_share(living: Make) -> None:
    relay = living()
    with contextlib.ExitStack() as stack:
        mine = [stranger(stack, relay.relay.port, 2) for _ in range(tcp.MAX_STRANGERS_OF_ONE)]
        others = stranger(stack, relay.relay.port, 3)
        assert len(relay.relay.strangers) <= tcp.MAX_STRANGERS_OF_ONE + 1
        stranger(stack, relay.relay.port, 2)
        assert is_cut(mine[0])
        others.setblocking(False)
        with pytest.raises(BlockingIOError):
            others.recv(100)


def test_strangers_that_renew_their_connections_keep_no_wrapper_out(living: Make) -> None:
    relay, over = living(), threading.Event()

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
        assert entered >= 15  # of those that are dropped each comes again
        assert len(relay.relay.strangers) <= tcp.MAX_STRANGERS
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_who_comes_from_another_network_is_hung_up_on_unheard(living: Make) -> None:
    relay = living(answers=lambda address: address.endswith("127.0.0.1"))
    with contextlib.ExitStack() as stack:
        assert is_cut(stranger(stack, relay.relay.port, 2))
    with relay.line() as line:
        assert enter(line)


def test_strangers_are_counted_and_said_in_one_line(living: Make, capfd: pytest.CaptureFixture[str]) -> None:
    relay = living()
    for data in (RAW["HTTP"], RAW["no JSON"], b""):
        with relay.line() as line:
            line.send_bytes(data)
            line.connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                line.connection.recv(100)
    assert "connection" not in capfd.readouterr().err
    assert relay.relay.strangers.count() == 2  # one tried this address, and said nothing
    assert relay.relay.strangers.count() == 0


def stranger(stack: contextlib.ExitStack, port: int, host: int) -> socket.socket:
    """A connection from 127.0.0.HOST that holds a byte less than a frame."""
    made = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S, (f"127.0.0.{host}", 0)))
    with contextlib.suppress(ConnectionError):
        made.sendall(frame(b" " * MAX_CLEAR)[:-1])
    return made


def is_cut(connection: socket.socket) -> bool:
    """Whether the relay has ended the connection without a byte; waits for one of both."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True
