"""One standing connection to a KCM: frames out and in, requests and their answers, and the watch over its silence."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from koalapy_adapters import clock
from koalapy_adapters.connections.protocol import Channel
from koalapy_adapters.frames import Chunk, Control, Credit, Decoder, Frame, FrameError, encode, together
from koalapy_adapters.messages import FROM_KCM, MessageError, from_json, to_json

from koalapy.model.errors import Reason, TransientError
from koalapy.runtime.session.exchange import Exchange

_READ = 1 << 18
_LAST_WORDS_S = 0.5  # that the other side has, once its output has ended, to say why
_FIRST_REQUEST = 1 << 40  # numbers below are those of the outbox
_LOST = Reason("lost", "transient", "The connection was lost.", "koalad connects again by itself.")

Receive = Callable[[Any], None]


def garbled(error: Exception) -> Reason:
    """Why a session ends over what is no frame, or a message that does not pass its checks."""
    advice = "koalad connects again after a while. If it stays, end what runs as the KCM there, and look for its cause."
    return Reason("garbled", "ours", f"The KCM cannot be understood: {error}.", advice)


class Session:
    """Lasts until the channel ends or `end` is called.

    `receive` is called by `run` with every message that answers no exchange; `tick` about every `tick_s`.
    """

    def __init__(self, channel: Channel, receive: Receive, tick: Callable[[], None], tick_s: float) -> None:
        self._channel, self._receive, self._tick, self._tick_s = channel, receive, tick, tick_s
        self._urgent: deque[bytes] = deque()
        self._bulk: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._why: Reason | None = None
        self._numbers = itertools.count(_FIRST_REQUEST)
        self._exchanges: dict[int, Exchange] = {}
        self._heard = clock.elapsed()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._write, self._watch)]

    @property
    def silent_s(self) -> float:
        """Seconds since anything was heard, with those in which this host slept."""
        return clock.elapsed() - self._heard

    def run(self) -> Reason | None:
        """Read until the session is over; why it was ended, None if the other side ended it. The channel is closed."""
        for thread in self._threads:
            thread.start()
        try:
            self._read()
        except (FrameError, MessageError) as error:
            self.end(garbled(error))
        finally:
            self.end(None)
            self._channel.close()
            for thread in self._threads:
                thread.join()
        return self._why

    def end(self, why: Reason | None) -> None:
        """Any thread, any number of times; the first reason counts."""
        with self._changed:
            if self._over.is_set():
                return
            self._why = why
            self._over.set()
            self._changed.notify_all()
        for exchange in list(self._exchanges.values()):
            exchange.lost(why or _LOST)

    def check(self) -> None:
        """Raises TransientError once the session is over."""
        if self._over.is_set():
            lost = self._why or _LOST
            raise TransientError(lost.code, lost.message, lost.advice)

    def send(self, message: Any) -> None:
        """Returns at once; lost if the session is over. Raises FrameError for a message that is too large."""
        self._put(self._urgent, encode(Control(to_json(message))))

    def send_chunk(self, chunk: Chunk) -> None:
        """What is urgent passes it. The caller keeps to its credit."""
        self._put(self._bulk, encode(chunk))

    def grant(self, stream: int, chunks: int) -> None:
        self._put(self._urgent, encode(Credit(stream, chunks)))

    @contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """A request of its own number, for as long as somebody waits for it."""
        exchange = Exchange(next(self._numbers))
        self._exchanges[exchange.id] = exchange
        if self._over.is_set():
            exchange.lost(self._why or _LOST)
        try:
            yield exchange
        finally:
            del self._exchanges[exchange.id]

    def _put(self, queue: deque[bytes], data: bytes) -> None:
        with self._changed:
            queue.append(data)
            self._changed.notify_all()

    # ---- threads

    def _read(self) -> None:
        decoder = Decoder()
        while data := self._channel.read(_READ):
            self._heard = clock.elapsed()
            for frame in decoder.feed(data):
                self._take(frame)
            if self._over.is_set():
                return
        if not self._over.is_set():
            self._channel.exit_status(_LAST_WORDS_S)

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Control):
            message = from_json(frame.data, FROM_KCM)
            exchange = self._exchanges.get(getattr(message, "id", -1))
            if exchange is None:
                self._receive(message)
            else:
                exchange.answered(message)
            return
        exchange = self._exchanges.get(frame.stream)
        if exchange is not None and isinstance(frame, Chunk):
            exchange.arrived(frame.data)
        elif exchange is not None and isinstance(frame, Credit):
            exchange.granted(frame.chunks)

    def _write(self) -> None:
        while (data := self._next()) is not None:
            try:
                self._channel.write(data)
            except (OSError, EOFError):
                self._channel.close()  # the reader comes to the end of the stream
                return

    def _next(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._urgent or self._bulk or self._over.is_set())
            if self._over.is_set():
                return None
            return together(self._urgent) if self._urgent else self._bulk.popleft()

    def _watch(self) -> None:
        while not self._over.wait(self._tick_s):
            self._tick()
        self._channel.close()
