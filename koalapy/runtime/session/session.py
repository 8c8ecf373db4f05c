"""The transport of one session with a KCM: frames out and in, requests and answers."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from koalapy_adapters.connections.protocol import Channel, Immediate
from koalapy_adapters.frames import Chunk, Control, Credit, Decoder, Frame, FrameError, encode, together
from koalapy_adapters.messages import FROM_KCM, Messages, from_json, to_json
from koalapy_adapters.messages.fields import Json, MessageError
from koalapy_adapters.messages.kcm import Done, Fetched
from koalapy_adapters.messages.streams import OpenStream, StreamReset, StreamState

from koalapy.model.errors import ClusterError, Reason, TransientError
from koalapy.runtime.host import ThreadHost
from koalapy.runtime.session.exchange import Exchange, done, stalled

_READ = 1 << 18
_EXIT_STATUS_S = 0.5  # for the exit status, after the output has ended
_FIRST_REQUEST = 1 << 40  # numbers below are those of the outbox
_MOST_WAITING = 4 << 20  # bytes of control that may wait to be written while the other side is read
_MOST_CHUNKS = 1 << 9  # that wait to be written, beyond which those of byte streams are dropped
_AT_ONCE = 1 << 12  # bytes of a frame that is written at once if nothing waits, for to wake a thread takes longer
_LINGER_S = 2.0  # from the last write until its thread ends
_LOST = Reason("lost", "transient", "The connection was lost.", "koalad connects again by itself.")

Receive = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Wire:
    """The messages of a session: readers of those that come, and the JSON of those that are sent.

    `who`: what is at the other end. `advice`: what to do if it stays impossible to understand.
    """

    who: str
    readers: Messages
    json_of: Callable[[Any], Json]
    advice: str

    def garbled(self, error: Exception) -> Reason:
        """Return the reason to end a session after a malformed frame or message."""
        advice = f"koalad connects again after a while. If it stays, {self.advice}"
        return Reason("garbled", "ours", f"{self.who} cannot be understood: {error}.", advice)


KCM = Wire("The KCM", FROM_KCM, to_json, "end what runs as the KCM there, and look for its cause.")


class Session:
    """A session, which lasts until the channel ends or `end` is called.

    If the other side does not take what it is sent, it is not read either: replies to it would grow without a bound.
    """

    def __init__(
        self,
        channel: Channel,
        host: ThreadHost,
        stream_frame: Receive = lambda frame: None,
        wire: Wire = KCM,
        too_large: Callable[[Any, FrameError], None] | None = None,
    ) -> None:
        """`stream_frame` is called by `serve` with every frame of a byte stream to a compute node.

        `too_large`: reacts to a message that exceeds a frame; without it, `send` raises FrameError.
        """
        self._channel, self._host = channel, host
        self._stream_frame, self._wire, self._too_large = stream_frame, wire, too_large
        self._receive: Receive
        self._alive: Callable[[], None]
        self._urgent: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._waiting = 0  # bytes of control messages that are queued or being written
        self._taken = 0  # bytes of control messages that were written
        self._is_writing = self._has_writer = False
        self._immediate = channel if isinstance(channel, Immediate) else None
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._why: Reason | None = None
        self._numbers = itertools.count(_FIRST_REQUEST)
        self._exchanges: dict[int, Exchange] = {}

    @property
    def waiting(self) -> int:
        """The bytes of control messages that are not written yet."""
        return self._waiting

    def serve(self, received: Receive, alive: Callable[[], None], ended: Callable[[Reason | None], None]) -> None:
        """Read until the session has ended, and close the channel; see Connection of koalapy.link. Blocks.

        `received` is called with every message that answers no exchange, `alive` when bytes have arrived. While the
        other side is not read, `alive` is called when it has taken some.
        """
        self._receive, self._alive = received, alive
        try:
            self._read()
        except (FrameError, MessageError) as error:
            self._end(self._wire.garbled(error))
        finally:
            self._end(None)
            self._channel.close()
            ended(self._why)

    def end(self, why: Reason | None) -> None:
        """End the session. Any thread may call it, any number of times; the first reason counts. Returns at once."""
        if self._end(why):
            self._host.in_thread("close", self._channel.close)

    def _end(self, why: Reason | None) -> bool:
        """End the session, but leave its channel open. False if it has ended before."""
        with self._changed:
            if self._ended.is_set():
                return False
            self._why = why
            self._ended.set()
            self._changed.notify_all()
        for exchange in list(self._exchanges.values()):
            exchange.lost(why or _LOST)
        return True

    def check(self) -> None:
        """Raises TransientError once the session has ended."""
        if self._ended.is_set():
            lost = self._why or _LOST
            raise TransientError(lost.code, lost.message, lost.advice)

    def send(self, message: Any) -> None:
        """Send a message. Returns at once; the message is lost if the session has ended.

        Raises FrameError if it is too large, unless there is `too_large`.
        """
        try:
            self._request(message)
        except FrameError as error:
            if self._too_large is None:
                raise
            self._too_large(message, error)

    def _request(self, message: Any) -> None:
        """Send a message whose answer is waited for. Raises FrameError if it is too large."""
        self._put_urgent(encode(Control(self._wire.json_of(message))))

    def send_chunk(self, chunk: Chunk) -> None:
        """Send a chunk. Control messages are sent first. The caller has to keep to the credit of its stream."""
        data = encode(chunk)
        with self._changed:
            if not self._written_at_once(data):
                self._bulk.append(data)
                self._wake_writer()

    def send_frame(self, frame: Any) -> None:
        """Send a frame of a byte stream. A chunk is dropped if too many wait: its end of the stream sends it again."""
        if not isinstance(frame, Chunk):
            self.send(frame)
        elif len(self._bulk) < _MOST_CHUNKS:
            self.send_chunk(frame)

    def grant(self, exchange: Exchange, chunks: int) -> None:
        """Allow this number of further chunks on the exchange's stream."""
        exchange.grant(chunks)
        self._put_urgent(encode(Credit(exchange.id, chunks)))

    @contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """Open a request with a new number, for as long as the caller waits for it."""
        exchange = Exchange(next(self._numbers))
        self._exchanges[exchange.id] = exchange
        if self._ended.is_set():
            exchange.lost(self._why or _LOST)
        try:
            yield exchange
        finally:
            del self._exchanges[exchange.id]

    def ask(self, request: Callable[[int], Any], timeout_s: float, look: Callable[[], None] = lambda: None) -> Done:
        """Send the request that is made with a number, and return the answer.

        `look` is called about every second, and may raise. Raises KoalaError, and TimeoutError after `timeout_s`.
        """
        with self.exchange() as exchange:
            self._request(request(exchange.id))
            return done(exchange.answer(timeout_s, look))

    # ---- streams of files, in either direction: their chunks, credit and time-outs

    def send_stream(
        self,
        request: Callable[[int], Any],
        pieces: Iterable[bytes],
        cluster: str,
        limit_s: float,
        look: Callable[[], None],
    ) -> Done:
        """Send the request that is made with a number, then the pieces as the credit allows. Returns the answer.

        An answer that arrives first means that the rest is not needed. `look` is called for each piece and about every
        second, and may raise. Raises KoalaError, and TransientError with code `stalled` if nothing was taken or
        answered for `limit_s` seconds.
        """
        with self.exchange() as exchange:
            self._request(request(exchange.id))
            try:
                self._send_pieces(exchange, pieces, limit_s, look)
                return done(exchange.answer(limit_s, look))
            except TimeoutError as error:
                raise stalled(cluster) from error

    def _send_pieces(
        self, exchange: Exchange, pieces: Iterable[bytes], limit_s: float, look: Callable[[], None]
    ) -> None:
        number = 0
        try:
            for data in pieces:
                look()
                if not exchange.may_send(limit_s, look):
                    return
                self.send_chunk(Chunk(exchange.id, number, data))
                number += 1
        finally:  # a stream that is given up is ended too: the cluster keeps what has arrived
            self.send_chunk(Chunk(exchange.id, number, b""))

    def receive_stream(
        self,
        request: Callable[[int], Any],
        cluster: str,
        limit_s: float | None,
        end_s: float,
        ended: Callable[[Fetched], None],
    ) -> Iterator[bytes]:
        """Send the request that is made with a number, and yield the pieces of its stream.

        `ended` is called with the Fetched at its end, which is due within `end_s` seconds. An empty piece comes about
        every second in which nothing else does. Raises KoalaError, and TransientError with code `stalled` if nothing
        has come for `limit_s` seconds.
        """
        with self.exchange() as exchange:
            self._request(request(exchange.id))
            try:
                yield from self._chunks(exchange, limit_s)
                end = exchange.answer(end_s)
            except TimeoutError as error:
                raise stalled(cluster) from error
            if not isinstance(end, Fetched):
                raise ClusterError("bad_stream", f"{cluster} does not report how a stream of files ended.", "")
            ended(end)

    def _chunks(self, exchange: Exchange, limit_s: float | None) -> Iterator[bytes]:
        try:
            for data in exchange.chunks(limit_s):
                yield data
                if data:
                    self.grant(exchange, 1)
        except (GeneratorExit, TimeoutError):
            self.send_chunk(Chunk(exchange.id, 0, b""))  # nothing reads the stream any more
            raise

    def _put_urgent(self, data: bytes) -> None:
        with self._changed:
            if not self._written_at_once(data):
                self._urgent.append(data)
                self._waiting += len(data)
                self._wake_writer()

    def _wake_writer(self) -> None:
        """Let a thread write what waits. The caller holds the lock."""
        if self._has_writer:
            self._changed.notify_all()
        elif not self._ended.is_set():
            self._has_writer = True
            self._host.in_thread("write", self._write)

    def _written_at_once(self, data: bytes) -> bool:
        """Write a small frame if nothing is before it and it cannot block. The caller holds the lock."""
        if self._immediate is None or len(data) > _AT_ONCE:
            return False
        if self._is_writing or self._urgent or self._bulk or self._ended.is_set():
            return False
        try:
            return self._immediate.write_now(data)
        except (OSError, EOFError):
            return False  # the thread finds the same, and ends the session

    # ---- the threads that read and write

    def _read(self) -> None:
        decoder = Decoder()
        while data := self._channel.read(_READ):
            self._alive()
            for frame in decoder.feed(data):
                self._take(frame)
            self._let_it_read()
            if self._ended.is_set():
                return
        if not self._ended.is_set():
            self._channel.exit_status(_EXIT_STATUS_S)

    def _let_it_read(self) -> None:
        """Wait while too many bytes wait to be written. Bytes that the other side takes are a sign of life."""
        with self._changed:
            while self._waiting > _MOST_WAITING and not self._ended.is_set():
                before = self._taken
                self._changed.wait()
                if self._taken > before:
                    self._alive()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Control):
            message = from_json(frame.data, self._wire.readers)
            exchange = self._exchanges.get(getattr(message, "id", -1))
            if isinstance(message, (OpenStream, StreamState, StreamReset)):
                self._stream_frame(message)
            elif exchange is None:
                self._receive(message)
            else:
                exchange.answered(message)
            return
        exchange = self._exchanges.get(frame.stream)
        if exchange is not None and isinstance(frame, Chunk):
            exchange.arrived(frame.data)
        elif exchange is not None and isinstance(frame, Credit):
            exchange.granted(frame.chunks)
        elif isinstance(frame, Chunk):
            self._stream_frame(frame)

    def _write(self) -> None:
        """Write what waits, until nothing has come for a while."""
        urgent = 0  # bytes of control in the last write
        while (data := self._next(urgent)) is not None:
            try:
                self._channel.write(data[0])
            except (OSError, EOFError):
                self._channel.close()  # the reader sees the end of the stream
                self._drop_all()
                return
            urgent = data[1]

    def _next(self, written: int) -> tuple[bytes, int] | None:
        """Wait for bytes to write. Returns them, and how many of them are control.

        None if the session has ended, or nothing has come for a while. `written`: bytes of control in the last write.
        """
        with self._changed:
            self._is_writing = False
            self._waiting -= written
            self._taken += written
            if written:
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._urgent or self._bulk or self._ended.is_set(), _LINGER_S)
            if self._ended.is_set() or not (self._urgent or self._bulk):
                self._has_writer = False
                return None
            self._is_writing = True
            if not self._urgent:
                return self._bulk.popleft(), 0
            data = together(self._urgent)
            return data, len(data)

    def _drop_all(self) -> None:
        with self._changed:
            self._urgent.clear()
            self._bulk.clear()
            self._waiting = 0
            self._changed.notify_all()
