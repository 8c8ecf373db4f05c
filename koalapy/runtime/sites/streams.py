"""Byte streams over the link to a neighbour, beside its messages. Either side opens them; both ends are one machine.

A stream ends in a sink: the neighbour consumes its bytes, and answers with their number, so that `koala sites check`
can measure a link. Or it leads to the KCM of a lease: the lender relays its frames, as do the sites between, and keeps
none of them. Chunks go behind all messages, and a reader that does not read stops the writer.
"""

import secrets
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from koalapy_adapters.frames import MAX_CHUNK, Chunk
from koalapy_adapters.messages.streams import OpenStream, StreamReset
from koalapy_adapters.streams import StreamEnd, StreamName, unknown_stream

from koalapy.model.errors import KoalaError, TransientError
from koalapy.model.units import MINUTE, Instant
from koalapy.runtime.cluster_link.link import Relay
from koalapy.runtime.streams import Stream

_SINK = "sink"
_BITS = 52  # of a number that no stream has had; JSON holds it exactly
_MOST_SINKS = 16  # that a neighbour may have at a time
_MOST_RELAYED = 64  # streams to leases, likewise
_LEASE = "lease-"  # before the number of a lease, as the tag of its streams
_LONGEST_PATIENCE = 5 * MINUTE
_COUNT = struct.Struct(">Q")
_STALLED_S = 60.0
_POLL_S = 1.0  # between two looks at a stream on which nothing happens


RelayLease = Callable[[str, int, OpenStream, Callable[[Any], None]], Relay | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A link's figures in seconds: a round trip before and amid the transfer of `size` bytes, and the transfer."""

    round_trip_s: float
    busy_round_trip_s: float
    size: int
    seconds: float


class _Sink:
    """The end of a stream that the neighbour has opened: it counts what comes, and answers with the count."""

    def __init__(self, now: Instant, opening: OpenStream) -> None:
        patience = min(opening.patience, _LONGEST_PATIENCE)
        self.end = StreamEnd(now, StreamName(opening.tag, opening.stream, patience))
        self._count = 0

    def received(self, now: Instant, frame: Any) -> list[Any]:
        end = self.end
        frames = end.received(now, frame)
        if size := len(end.inbox):
            self._count += size
            frames += end.consume(size)
        if end.has_ended and end.room:
            frames += [*end.consume_end(), *end.put(_COUNT.pack(self._count)), *end.end()]
        return frames


class SiteStreams:
    """The streams over one link. Any thread may call it. `send`: sends a frame if there is a session, else drops it."""

    def __init__(
        self, name: str, send: Callable[[Any], None], now: Callable[[], Instant], relay: RelayLease | None = None
    ) -> None:
        """`relay`: finds the way to a lease of the neighbour; see ClusterLinks.relay_lease."""
        self._name, self._send, self._now, self._relay = name, send, now, relay
        self._lock = threading.Lock()
        self._own: dict[int, tuple[str, Stream]] = {}  # with their tags
        self._relayed: dict[int, tuple[str, Relay]] = {}
        self._passed: dict[int, tuple[str, Callable[[Any], None]]] = {}
        self._sinks: dict[int, _Sink] = {}

    def received(self, frame: Any) -> None:
        """Take a frame of the neighbour."""
        if isinstance(frame, OpenStream) and frame.tag.startswith(_LEASE):
            self._open_relayed(frame)
            return
        with self._lock:
            tag, own = self._own.get(frame.stream, ("", None))
            sink, relayed = self._sinks.get(frame.stream), self._relayed.get(frame.stream)
            passed = self._passed.get(frame.stream)
            frames: list[Any] = []
            if sink is not None:
                frames = sink.received(self._now(), frame)
            elif isinstance(frame, OpenStream):
                frames = self._accept(frame)
            elif own is None and relayed is None and passed is None:
                frames = unknown_stream(frame)
            for each in frames:
                self._send(each)
        if relayed is not None and sink is None:
            self._pass_on(frame, *relayed)
        elif passed is not None and sink is None:
            if isinstance(frame, Chunk) or frame.tag == passed[0]:
                passed[1](frame)
        elif own is not None and sink is None and (isinstance(frame, Chunk) or frame.tag == tag):
            own.received(frame)

    # ---- streams to leases, at the lender

    def _open_relayed(self, opening: OpenStream) -> None:
        """Open a stream to a lease of the neighbour, or open it once more: the borrower repeats what has no answer."""
        with self._lock:
            known = self._relayed.get(opening.stream)
            taken = any(opening.stream in each for each in (self._own, self._sinks, self._passed))
            full = len(self._relayed) >= _MOST_RELAYED
        if known is not None:
            known[1].send(known[1].opening)
            return
        way, number = None, opening.tag.removeprefix(_LEASE)
        why = "There are no such streams here."
        if self._relay is not None and number.isascii() and number.isdecimal() and not taken:
            try:
                why = "It has too many streams."
                way = None if full else self._relay(self._name, int(number), opening, self._back(opening.tag))
            except KoalaError as error:
                why = error.reason.message
        if way is None:
            self._send(StreamReset(opening.tag, opening.stream, "refused", why))
            return
        with self._lock:
            self._relayed[opening.stream] = opening.tag, way
        way.send(way.opening)

    def _pass_on(self, frame: Any, tag: str, way: Relay) -> None:
        """Pass a frame of the borrower on to its lease."""
        if isinstance(frame, Chunk):
            way.send(frame)
        elif frame.tag == tag:
            way.send(frame._replace(tag=way.tag))
            if isinstance(frame, StreamReset):
                self._forget_relayed(frame.stream)

    def _back(self, tag: str) -> Callable[[Any], None]:
        """Return the function that passes frames of the lease on to the borrower."""

        def back(frame: Any) -> None:
            self._send(frame if isinstance(frame, Chunk) else frame._replace(tag=tag))
            if isinstance(frame, StreamReset):
                self._forget_relayed(frame.stream)

        return back

    def _forget_relayed(self, number: int) -> None:
        with self._lock:
            _, way = self._relayed.pop(number, ("", None))
        if way is not None:
            way.forget()

    def reset_relayed(self, lease: int) -> None:
        """Reset the streams of the neighbour to a lease that has ended."""
        with self._lock:
            ended = [(number, *each) for number, each in self._relayed.items() if each[0] == f"{_LEASE}{lease}"]
        for number, tag, way in ended:
            why = StreamReset(tag, number, "lease_ended", "The lease has ended.")
            self._pass_on(why, tag, way)
            self._send(why)

    # ---- streams to leases of the neighbour, at a site between

    def relay(self, lease: int, opening: OpenStream, back: Callable[[Any], None]) -> Relay | None:
        """Return the way of a stream of another site to a lease of this neighbour.

        `back` gets its frames, until one end has reset it. None: its number is used already.
        """
        number, tag = opening.stream, f"{_LEASE}{lease}"
        with self._lock:
            if any(number in each for each in (self._own, self._sinks, self._relayed, self._passed)):
                return None
            self._passed[number] = tag, back

        def forget() -> None:
            with self._lock:
                self._passed.pop(number, None)

        return Relay(tag, opening._replace(tag=tag), self._send, forget)

    def _accept(self, opening: OpenStream) -> list[Any]:
        now = self._now()
        self._sinks = {number: each for number, each in self._sinks.items() if not _is_gone(each.end, now)}
        if opening.tag != _SINK or len(self._sinks) >= _MOST_SINKS:
            what = "It has too many streams." if opening.tag == _SINK else "There are no such streams here."
            return [StreamReset(opening.tag, opening.stream, "refused", what)]
        sink = self._sinks[opening.stream] = _Sink(now, opening)
        return sink.end.accept(now)

    def resume(self) -> None:
        """Find out what was lost: there is a new session."""
        with self._lock:
            own = [stream for _, stream in self._own.values()]
            for sink in self._sinks.values():
                for frame in sink.end.resume(self._now()):
                    self._send(frame)
        for stream in own:
            stream.resume()

    def open_lease(self, lease: int) -> Stream:
        """Open a stream to the KCM that the neighbour starts on a lease."""
        number = secrets.randbits(_BITS) | 1 << _BITS
        opening = OpenStream(f"{_LEASE}{lease}", number, 0, 0, MINUTE)
        stream = Stream(None, opening, self._send, self._now)
        with self._lock:
            self._own = {key: each for key, each in self._own.items() if not each[1].is_forgotten()}
            self._own[number] = opening.tag, stream
        stream.open()
        return stream

    def measure(self, size: int) -> Measured:
        """Send so many bytes to the neighbour, and measure the link. Blocks. Raises KoalaError."""
        began, changed = time.monotonic(), threading.Event()
        bulk = self._open(lambda stream: changed.set())
        try:
            self._wait(bulk, changed, lambda: bulk.is_open)
            opened = time.monotonic()
            busy_s = self._send_all(bulk, changed, size)
            answer = b""
            while len(answer) < _COUNT.size:
                answer += self._wait(bulk, changed, lambda: bulk.take(_COUNT.size)) or b""
            seconds = time.monotonic() - opened
        finally:
            self._forget(bulk)
        if _COUNT.unpack(answer)[0] != size:
            message = f"{self._name} counts {_COUNT.unpack(answer)[0]} bytes of {size}."
            raise TransientError("bytes_lost", message, "Report this as a mistake of koalapy.")
        return Measured(opened - began, busy_s, size, seconds)

    def _send_all(self, bulk: Stream, changed: threading.Event, size: int) -> float:
        """Send the bytes, and return the seconds of a round trip amid them."""
        data, sent, probe, asked = secrets.token_bytes(MAX_CHUNK), 0, None, 0.0
        answered: list[float] = []
        while sent < size:
            if probe is None and 2 * sent >= size:
                asked = time.monotonic()

                def note(stream: Stream) -> None:
                    with suppress(KoalaError):  # which is raised where it is waited for
                        if stream.is_open:
                            answered.append(time.monotonic())
                    changed.set()

                probe = self._open(note)
            room = self._wait(bulk, changed, lambda: bulk.room)
            piece = data[: min(room, size - sent, MAX_CHUNK)]
            bulk.put(piece)
            sent += len(piece)
        bulk.end()
        if probe is not None:
            other = probe
            self._wait(other, changed, lambda: other.is_open and answered)
            self._forget(other)
        return answered[0] - asked if answered else 0.0

    def _open(self, on_change: Callable[[Stream], None]) -> Stream:
        number = secrets.randbits(_BITS) | 1 << _BITS
        stream = Stream(None, OpenStream(_SINK, number, 0, 1, MINUTE), self._send, self._now)
        with self._lock:
            self._own[number] = _SINK, stream
        stream.on_change = lambda: on_change(stream)
        stream.open()
        return stream

    def _forget(self, stream: Stream) -> None:
        stream.on_change = lambda: None
        stream.reset("done", "The measurement is over.")
        with self._lock:
            self._own = {number: each for number, each in self._own.items() if each[1] is not stream}

    def _wait(self, stream: Stream, changed: threading.Event, found: Callable[[], Any]) -> Any:
        """Return what `found` returns once it is true, or None at the stream's end. Raises KoalaError."""
        deadline = time.monotonic() + _STALLED_S
        while True:
            changed.clear()
            if (value := found()) or value is None:
                return value
            if time.monotonic() > deadline:
                message = f"{self._name} has not taken any bytes for {_STALLED_S:.0f} s."
                raise TransientError("stalled", message, "`koala sites` shows whether it is connected.")
            changed.wait(min(_POLL_S, stream.tick()))


def _is_gone(end: StreamEnd, now: Instant) -> bool:
    """Return whether nothing needs the end any more; one from which nothing arrives any more is reset."""
    if now >= end.next_wakeup():
        end.tick(now)
    return end.is_forgotten(now)
