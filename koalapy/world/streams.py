"""The byte streams of a simulated world: who writes and reads at their ends, and what was written and read there.

The ends are the real machines of `koalapy_adapters.streams`. What is written depends on stream, direction and offset
only, so that every byte that is read can be checked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from koalapy_adapters.streams import StreamEnd

from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.random_streams import between

PATIENCE = Duration(60 * SECOND)  # of both ends
NEAR, FAR = "near", "far"  # koalad's end, and the end on a compute node
_PERIOD = 65_521  # bytes after which the contents of a direction repeat, a prime number
_CONTENTS = Random("contents of streams").randbytes(_PERIOD) * 3
_LENGTHS = (0, 700, 70_000, 400_000, 1_000_000)  # bytes of a direction
_PIECES = (1, 1_000, _PERIOD)  # most bytes that are written or read at once
_PAUSE = Duration(5 * MILLISECOND), Duration(300 * MILLISECOND)  # between two pieces


@dataclass(slots=True)
class Direction:
    """The bytes that were written at one end of a stream, and those that were read of them at the other, in counts."""

    written: int = 0
    read: int = 0
    ends: bool = False  # nothing more is written
    has_ended: bool = False  # and the reader knows


@dataclass(slots=True)
class Stream:
    """One stream. `ways`: by the end that writes. `ends`: the state of each: open, finished, reset or lost."""

    number: int
    ways: dict[str, Direction] = field(default_factory=lambda: {NEAR: Direction(), FAR: Direction()})
    ends: dict[str, str] = field(default_factory=dict)


class StreamObserver(Protocol):
    """An observer of all streams. No call changes anything."""

    def read(self, stream: Stream, writer: str, data: bytes, expected: bytes) -> None:
        """These bytes were read; `expected` were written there."""
        ...

    def ended(self, stream: Stream, end: str) -> None:
        """One end of a stream has ended."""
        ...


class NoStreamObserver:
    """An observer that ignores every call."""

    def read(self, stream: Stream, writer: str, data: bytes, expected: bytes) -> None: ...

    def ended(self, stream: Stream, end: str) -> None: ...


class StreamLog:
    """All streams of a world, by number."""

    def __init__(self, agenda: Agenda) -> None:
        self.streams: dict[int, Stream] = {}
        self.observer: StreamObserver = NoStreamObserver()
        self._agenda = agenda
        self._changed_at = agenda.now

    @property
    def settled(self) -> bool:
        """Return whether no end is open, or none has written, read or ended for so long that its patience is over."""
        is_open = any("open" in stream.ends.values() for stream in self.streams.values())
        return not is_open or self._agenda.now > self._changed_at + 2 * PATIENCE

    def begin(self) -> Stream:
        """Begin a stream with a number that none has had."""
        stream = Stream((1 << 52) + len(self.streams) + 1)
        self.streams[stream.number] = stream
        return stream

    def write(self, stream: Stream, writer: str, size: int) -> bytes:
        """Return the next bytes that are written at this end."""
        way = stream.ways[writer]
        way.written += size
        self._changed_at = self._agenda.now
        return _content(stream, writer, way.written - size, size)

    def read(self, stream: Stream, writer: str, data: bytes) -> None:
        """Record bytes of this writer that were read at the other end."""
        way = stream.ways[writer]
        there = min(len(data), way.written - way.read)
        self.observer.read(stream, writer, data, _content(stream, writer, way.read, there))
        way.read += len(data)
        self._changed_at = self._agenda.now

    def record_end(self, stream: Stream, end: str, how: str) -> None:
        """Record how an end is over."""
        if stream.ends[end] == "open":
            stream.ends[end] = how
            self._changed_at = self._agenda.now
            self.observer.ended(stream, end)


class StreamUser:
    """A process that writes and reads at one end of a stream, piece by piece, until both directions have ended."""

    def __init__(
        self,
        log: StreamLog,
        stream: Stream,
        side: str,
        end: StreamEnd,
        rng: Random,
        clock: Callable[[], int],
        after: Callable[[Duration, Callable[[], None]], ScheduledCall],
        send: Callable[[Any], None],
        is_there: Callable[[], bool] = lambda: True,
    ) -> None:
        """`after`: see Process.after. `is_there`: whether the process still is."""
        self.end, self._log, self._stream, self._side = end, log, stream, side
        self._rng, self._clock, self._after, self._send, self._is_there = rng, clock, after, send, is_there
        self._left = rng.choice(_LENGTHS)
        self._piece = max(rng.choice(_PIECES), self._left // 60)  # a stream has few pieces
        self._turn: ScheduledCall | None = None
        self._timer: ScheduledCall | None = None
        self._lost = False
        stream.ends[side] = "open"

    def do(self, event: Callable[[StreamEnd, int], list[Any]]) -> None:
        """Let the end handle an event, and send its frames."""
        if self._lost:
            return
        for frame in event(self.end, self._clock()):
            self._send(frame)
        if self.end.is_closed:
            self._log.record_end(self._stream, self._side, "reset" if self.end.reset_by is not None else "finished")
        self._plan()

    def lose(self) -> None:
        """End without a word, as with the host of the process."""
        self._lost = True
        self._log.record_end(self._stream, self._side, "lost")
        for call in (self._turn, self._timer):
            if call is not None:
                call.call = None

    def _plan(self) -> None:
        if self._turn is None and not self.end.is_closed and self.end.is_open:
            self._turn = self._after(between(self._rng, *_PAUSE), self._take_turn)
        if self._timer is None and not self.end.is_forgotten(self._clock()):
            self._timer = self._after(Duration(max(0, self.end.next_wakeup() - self._clock())), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.do(lambda end, now: end.tick(now) if now >= end.next_wakeup() else [])

    def _take_turn(self) -> None:
        """Write a piece and read one. The next turn comes with the next frame, if there is nothing more to do now."""
        if self.end.is_closed:
            return
        if not self._is_there():
            self.do(lambda end, now: end.reset("closed", "The program has ended."))
            return
        self._write()
        self._read()
        self._turn = None
        if self._left or self.end.inbox:
            self._plan()

    def _write(self) -> None:
        size = min(self._left, self._piece, self.end.room)
        if size:
            data = self._log.write(self._stream, self._side, size)
            self._left -= size
            self.do(lambda end, now: end.put(data))
        if not self._left and not self._stream.ways[self._side].ends:
            self._stream.ways[self._side].ends = True
            self.do(lambda end, now: end.end())

    def _read(self) -> None:
        writer = FAR if self._side == NEAR else NEAR
        if data := bytes(self.end.inbox[: self._piece]):
            self._log.read(self._stream, writer, data)
            self.do(lambda end, now: end.consume(len(data)))
        if not self.end.inbox and self.end.has_ended and not self._stream.ways[writer].has_ended:
            self._stream.ways[writer].has_ended = True
            self.do(lambda end, now: end.consume_end())


def _content(stream: Stream, writer: str, offset: int, size: int) -> bytes:
    """Return `size` bytes, at most twice the period, that this end writes at this offset."""
    begin = (offset + stream.number * 7919 + (writer == FAR) * 104_729) % _PERIOD
    return _CONTENTS[begin : begin + size]
