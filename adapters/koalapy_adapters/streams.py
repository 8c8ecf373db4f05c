"""One end of a byte stream between koalad and a compute node: events in, frames out; no clock, socket or thread.

Both ends are the same machine. Each keeps the bytes that the other has not consumed yet, at most WINDOW, and sends them
again when the other has missed some. Therefore the hops between the ends may lose frames, as a cut connection does;
they may not reorder chunks. An end that receives nothing for its patience resets the stream.

    opening -> open -> finished, once both directions have ended and the other end has consumed everything
    opening, open -> reset, by either end, or after the patience
"""

import base64
import binascii
from collections import deque
from typing import Any, Deque, List, NamedTuple, Optional, Tuple

from koalapy_adapters.frames import MAX_CHUNK, Chunk
from koalapy_adapters.messages import from_json, to_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.streams import OpenStream, StreamChunk, StreamReset, StreamState

FRAMES = (OpenStream, StreamState, StreamReset, Chunk)

WINDOW = 2 << 20  # bytes of one direction that may be on the way
MOST_STREAMS = 256  # of one attempt at a time
_REPORT = WINDOW // 8  # consumed bytes, after which the sender is sent a credit
_BEATS = 4  # probes in the patience of an end that receives nothing
_JOINED = 4096  # bytes up to which small pieces are joined, so that many of them take little memory
_OPENING_BEATS = 32  # of one that has not been open yet: a person may wait


def as_message(frame: Any) -> Any:
    """Return a frame as a message, for message files."""
    if isinstance(frame, Chunk):
        return StreamChunk(frame.stream, frame.number, base64.b64encode(frame.data).decode())
    return frame


def as_frame(message: Any) -> Any:
    """Return the frame that `as_message` made a message. Raises MessageError if its bytes are not base64."""
    if not isinstance(message, StreamChunk):
        return message
    try:
        return Chunk(message.stream, message.offset, base64.b64decode(message.data.encode(), validate=True))
    except (ValueError, binascii.Error) as error:
        raise MessageError("not base64: %s" % error) from error


def frame_to_json(frame: Any) -> Any:
    """Return a frame as a JSON object, for a hop that carries JSON only."""
    return to_json(as_message(frame))


def frame_of_json(data: Any) -> Any:
    """Return the frame of a JSON object. Raises MessageError."""
    return as_frame(from_json(data))


def unknown_stream(frame: Any) -> List[Any]:
    """Return the answer to a frame of a stream that this side does not have."""
    if isinstance(frame, StreamState) and frame.asks:
        return [StreamReset(frame.tag, frame.stream, "unknown_stream", "The other end of the stream is gone.")]
    return []


class _Kept:
    """The bytes of one direction that the other end has not consumed, in pieces of at most MAX_CHUNK bytes.

    A chunk has the bytes of its piece, which are not copied. `base`, `end`: the offsets of the first byte and after
    the last one.
    """

    def __init__(self) -> None:
        self._pieces: Deque[bytes] = deque()
        self._first = 0  # the offset of the first piece, of which the bytes before `base` are consumed
        self.base = self.end = 0

    def __len__(self) -> int:
        return self.end - self.base

    def put(self, data: bytes) -> None:
        self.end += len(data)
        if self._pieces and len(self._pieces[-1]) + len(data) <= _JOINED:
            self._pieces[-1] += data
        elif len(data) <= MAX_CHUNK:
            self._pieces.append(data)
        else:
            self._pieces.extend(data[at : at + MAX_CHUNK] for at in range(0, len(data), MAX_CHUNK))

    def drop(self, offset: int) -> None:
        """Forget the bytes before this offset, which is at most `end`."""
        self.base = offset
        while self._pieces and self._first + len(self._pieces[0]) <= offset:
            self._first += len(self._pieces.popleft())

    def after(self, offset: int) -> List[Tuple[int, bytes]]:
        """Return the bytes from this offset on, which is at least `base`, each piece with its offset."""
        found = []
        start = self.end
        for piece in reversed(self._pieces):
            if start <= offset:
                break
            start -= len(piece)
            found.append((start, piece) if start >= offset else (offset, piece[offset - start :]))
        return found[::-1]

    def clear(self) -> None:
        self._pieces.clear()
        self._first = self.base = self.end


class StreamName(NamedTuple):
    """The stream's attempt and its number, and the microseconds after which a silent other end is given up."""

    tag: str
    stream: int
    patience: int


class StreamEnd:
    """One end. Every event is a method that takes `now` and returns the frames to send, in their order.

    `opening`: koalad's message, at the end that opens; the other end begins with `accept`.
    """

    def __init__(self, now: int, name: StreamName, opening: Optional[OpenStream] = None) -> None:
        self.name = name
        self._opening = opening
        self.is_open = False  # the other end is there
        self.reset_by: Optional[StreamReset] = None  # why it was reset
        self._received_at = self._probed_at = now
        self._out = _Kept()
        self._base = 0  # the offset after all that the other end has consumed, its end counted as one byte
        self._next = 0  # the offset that is sent next
        self._highest = 0  # the offset after all that was ever sent
        self._total: Optional[int] = None  # the offset of this direction's end, once nothing more is put
        self._in = bytearray()  # bytes that were received and not consumed
        self._consumed = 0
        self._reported = 0  # `_consumed`, as the other end knows it
        self._end_at: Optional[int] = None  # the offset of the other direction's end
        self._gap_at = -1  # the offset from which bytes were requested again

    # ---- what the owner of the end sees

    @property
    def room(self) -> int:
        """The bytes that `put` takes now."""
        return 0 if self._total is not None or self.is_closed else WINDOW - len(self._out)

    @property
    def inbox(self) -> bytearray:
        """The bytes that have arrived and were not consumed; not to be changed."""
        return self._in

    @property
    def has_ended(self) -> bool:
        """Return whether the other end sends nothing after the bytes in the inbox."""
        return self._end_at is not None and self.reset_by is None

    @property
    def is_finished(self) -> bool:
        """Return whether every byte of both directions was consumed."""
        return self.is_sent and self._is_read

    @property
    def is_sent(self) -> bool:
        """Return whether the other end has consumed everything, the end too."""
        return self._total is not None and self._base > self._total

    @property
    def is_closed(self) -> bool:
        """Return whether nothing more can be put or comes."""
        return self.reset_by is not None or self.is_finished

    # ---- events of the owner

    def open(self, now: int) -> List[Any]:
        """Ask for the other end."""
        assert self._opening is not None
        self._probed_at = now
        return [self._opening]

    def accept(self, now: int) -> List[Any]:
        """Begin: what the other end asked for is there."""
        self.is_open, self._received_at = True, now
        return [self._state(), *self._send()]

    def put(self, data: bytes) -> List[Any]:
        """Send these bytes, at most `room`."""
        assert len(data) <= self.room
        if data:
            self._out.put(data)
        return self._send()

    def end(self) -> List[Any]:
        """Send nothing more after the bytes that were put. The other direction goes on."""
        if self._total is not None or self.is_closed:
            return []
        self._total = self._out.end
        return self._send()

    def consume(self, size: int) -> List[Any]:
        """Take the first `size` bytes out of the inbox."""
        del self._in[:size]
        self._consumed += size
        return [self._state()] if self._consumed - self._reported >= _REPORT else []

    def consume_end(self) -> List[Any]:
        """Note that the owner knows of the other direction's end; the inbox is empty."""
        if self.reset_by is not None or self._end_at is None or self._in or self._is_read:
            return []
        self._consumed += 1
        return [self._state()]

    def reset(self, code: str, message: str) -> List[Any]:
        """End both directions at once; what was not consumed is lost."""
        if self.is_closed:
            return []
        why = StreamReset(self.name.tag, self.name.stream, code, message)
        self._close(why)
        return [why]

    def resume(self, now: int) -> List[Any]:
        """Find out what was lost: the connection to the other end is a new one."""
        if self.is_closed:
            return []
        self._probed_at = now
        return [self._probe()]

    # ---- frames of the other end

    def received(self, now: int, frame: Any) -> List[Any]:
        """React to a frame of this stream. One that breaks the rules resets the stream."""
        self._received_at = now
        if isinstance(frame, StreamReset):
            if not self.is_closed:
                self._close(frame)
            return []
        if self.reset_by is not None:
            asks = isinstance(frame, OpenStream) or (isinstance(frame, StreamState) and frame.asks)
            return [self.reset_by] if asks else []
        if isinstance(frame, OpenStream):
            return [self._state(again=True)] if self.is_open else []
        if isinstance(frame, Chunk):
            return self._arrived(frame)
        return self._acknowledged(frame) if isinstance(frame, StreamState) else []

    # ---- time

    def next_wakeup(self) -> int:
        """Return when to call `tick`. An end that has ended is to be forgotten then; until then it answers."""
        silent_at = self._received_at + self.name.patience
        return silent_at if self.is_closed else min(silent_at, self._probe_at)

    def tick(self, now: int) -> List[Any]:
        """Return what is due by `now`."""
        if self.is_closed:
            return []
        if now >= self._received_at + self.name.patience:
            return self.reset("timed_out", "The other end of the stream has not answered in time.")
        if now >= self._probe_at:
            return self.resume(now)
        return []

    def is_forgotten(self, now: int) -> bool:
        """Return whether nothing needs this end any more."""
        return self.is_closed and now >= self._received_at + self.name.patience

    # ---- inside

    @property
    def _is_read(self) -> bool:
        return self._end_at is not None and self._consumed > self._end_at

    @property
    def _received(self) -> int:
        """The offset of the next byte to receive."""
        return self._end_at + 1 if self._end_at is not None else self._consumed + len(self._in)

    @property
    def _probe_at(self) -> int:
        beats = _BEATS if self.is_open else _OPENING_BEATS
        return max(self._received_at, self._probed_at) + self.name.patience // beats

    def _probe(self) -> Any:
        return self._opening if self._opening is not None else self._state(again=True, asks=True)

    def _state(self, again: bool = False, asks: bool = False) -> StreamState:
        self._reported = self._consumed
        return StreamState(self.name.tag, self.name.stream, self._received, self._consumed, again, asks)

    def _close(self, why: StreamReset) -> None:
        self.reset_by = why
        self._out.clear()
        self._in = bytearray()

    def _send(self) -> List[Any]:
        """Return the chunks that were not sent yet."""
        if not self.is_open or self.is_sent:
            return []
        chunks: List[Any] = []
        for offset, data in self._out.after(self._next):
            chunks.append(Chunk(self.name.stream, offset, data))
        self._next = max(self._next, self._out.end)
        if self._next == self._total:
            chunks.append(Chunk(self.name.stream, self._next, b""))
            self._next += 1
        self._highest = max(self._highest, self._next)
        return chunks

    def _arrived(self, chunk: Chunk) -> List[Any]:
        before = self._received
        if chunk.number > before:
            if self._gap_at == before:
                return []  # they were requested already
            self._gap_at = before
            return [self._state(again=True)]
        fresh = chunk.data[before - chunk.number :]
        if not chunk.data:
            if chunk.number == before and self._end_at is None:
                self._end_at = before
            return []
        if not fresh:
            return []
        if self._end_at is not None or len(self._in) + len(fresh) > WINDOW:
            return self.reset("broken", "The other end of the stream sent more than it may.")
        self._in += fresh
        return []

    def _acknowledged(self, state: StreamState) -> List[Any]:
        if not state.consumed <= state.received <= self._highest:
            return self.reset("broken", "The other end of the stream acknowledged what was not sent.")
        self.is_open, self._opening = True, None
        if state.consumed > self._base:
            self._base = state.consumed
            self._out.drop(min(self._base, self._out.end))
        if state.again and state.received < self._next:
            self._next = max(self._base, state.received)
        answer: List[Any] = [self._state(again=True)] if state.asks else []
        return answer + self._send()
