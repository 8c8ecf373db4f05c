"""Length-prefixed frames: JSON for control, raw numbered chunks for bulk, so that a flood never delays control.

A frame is a 5-byte header (kind, length of the payload, big endian) and the payload. A control frame holds one JSON
object of at most 1 MiB. A chunk holds its stream's id and its number in the stream (8 bytes each), and at most 64 KiB
of data. A credit frame permits a number of further chunks of a stream.
"""

import json
import struct
from typing import Any, Deque, List, NamedTuple, Tuple, Union

MAX_CONTROL = 1 << 20
MAX_CHUNK = 1 << 16
MAX_DIGITS = 64  # of an integer: Pythons before 3.10.7 need seconds to read one of a million digits
INITIAL_CREDIT = 16  # chunks that a sender may have on the way before it is granted more

HEADER = struct.Struct(">cI")

_WRITER = json.JSONEncoder(separators=(",", ":"))
_CHUNK = struct.Struct(">QQ")


class FrameError(ValueError):
    """A frame that is invalid or too large. After an invalid one the connection cannot be used any more."""


class Control(NamedTuple):
    """One JSON object."""

    data: Any


class Chunk(NamedTuple):
    """Part `number` (from 0) of the stream `stream`; an empty one ends it.

    In a byte stream to a compute node `number` is the offset of the first byte (see streams).
    """

    stream: int
    number: int
    data: bytes


class Credit(NamedTuple):
    """Permission to send `chunks` further chunks of this stream."""

    stream: int
    chunks: int


Frame = Union[Control, Chunk, Credit]


def encode(frame: Frame) -> bytes:
    """Encode a frame. Raises FrameError if it is too large."""
    if isinstance(frame, Chunk):
        if len(frame.data) > MAX_CHUNK:
            raise FrameError("a chunk of %d bytes is larger than the limit of %d" % (len(frame.data), MAX_CHUNK))
        header = HEADER.pack(b"C", _CHUNK.size + len(frame.data))
        return b"".join((header, _CHUNK.pack(frame.stream, frame.number), frame.data))
    if isinstance(frame, Credit):
        return HEADER.pack(b"G", _CHUNK.size) + _CHUNK.pack(frame.stream, frame.chunks)
    payload = as_payload(frame.data)
    return HEADER.pack(b"J", len(payload)) + payload


def as_payload(data: Any) -> bytes:
    """Encode the payload of a control frame. Raises FrameError if it is too large."""
    payload = _WRITER.encode(data).encode()
    if len(payload) > MAX_CONTROL:
        raise FrameError("a frame of %d bytes is larger than the limit of %d" % (len(payload), MAX_CONTROL))
    return payload


def from_payload(payload: bytes) -> Any:
    """Decode the payload of a control frame.

    Raises FrameError if it is not JSON, too deep, or has too long a number.
    """
    try:
        return json.loads(payload.decode(), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise FrameError("a broken frame: %s" % error) from error


def chunk_numbers(chunk: Chunk) -> bytes:
    """Encode what is before the data in the payload of a chunk."""
    return _CHUNK.pack(chunk.stream, chunk.number)


def chunk_of(payload: memoryview) -> Chunk:
    """Decode the payload of a chunk. Raises FrameError if it is too short."""
    stream, number = _numbers(payload)
    return Chunk(stream, number, bytes(payload[_CHUNK.size :]))


def together(frames: Deque[bytes]) -> bytes:
    """Take the first frame, and as many more as fit into MAX_CHUNK bytes.

    Returns them joined: each write costs both ends time.
    """
    data = [frames.popleft()]
    size = len(data[0])
    while frames and size + len(frames[0]) <= MAX_CHUNK:
        data.append(frames.popleft())
        size += len(data[-1])
    return b"".join(data)


class Decoder:
    """Decodes a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Frame]:
        """Return the frames that these bytes complete. Raises FrameError for bytes that are no frame."""
        self._buffer += data
        frames: List[Frame] = []
        begin = 0
        with memoryview(self._buffer) as view:  # a slice of it is no copy
            while len(view) - begin >= HEADER.size:
                kind, length = HEADER.unpack_from(view, begin)
                if kind not in b"JCG" or length > MAX_CONTROL:
                    raise FrameError("not a frame: %r" % bytes(view[begin : begin + 40]))
                end = begin + HEADER.size + length
                if len(view) < end:
                    break
                frames.append(_decode(kind, view[begin + HEADER.size : end]))
                begin = end
        del self._buffer[:begin]
        return frames


def _decode(kind: bytes, payload: memoryview) -> Frame:
    if kind == b"J":
        return Control(from_payload(bytes(payload)))
    return chunk_of(payload) if kind == b"C" else Credit(*_numbers(payload))


def _numbers(payload: Union[bytes, memoryview]) -> Tuple[int, int]:
    try:
        first, second = _CHUNK.unpack_from(payload)
    except struct.error as error:
        raise FrameError("a broken frame: %s" % error) from error
    return first, second


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("a number of %d digits" % len(text))
    return int(text)
