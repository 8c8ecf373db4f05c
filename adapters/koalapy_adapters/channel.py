"""One end of a relay connection: frames are in the clear until both ends have proven themselves, then sealed.

A sealed frame has the kind `S` for one JSON object, or `C` for a chunk of a byte stream. Its payload ends with a seal
of 16 bytes. The seal is an HMAC-SHA256 over the frame's number in its direction, the header and the rest of the
payload. Each direction has a key of its own. Therefore a frame that was injected, changed, repeated, left out or moved
does not verify, and ends the connection.
"""

import hashlib
import hmac
import struct
from typing import Any, NamedTuple, Optional, Union

from koalapy_adapters.frames import (
    HEADER,
    MAX_CONTROL,
    Chunk,
    FrameError,
    as_payload,
    chunk_numbers,
    chunk_of,
    from_payload,
)

MAX_CLEAR = 1024  # bytes of a frame before the proof: anybody may send it
SEAL_BYTES = 16

_CLEAR, _SEALED, _CHUNK = b"J", b"S", b"C"
_NUMBER = struct.Struct(">Q")


class Keys(NamedTuple):
    """The session keys of one connection, named by the end that writes with them; 32 bytes each."""

    wrapper: bytes
    kcm: bytes


class Channel:
    """Encodes JSON objects as frames and decodes frames to JSON objects, for one connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._writer: Optional[_Seal] = None
        self._reader: Optional[_Seal] = None

    @property
    def is_empty(self) -> bool:
        """Return whether no received bytes are left to take."""
        return not self._buffer

    def secure(self, write_key: bytes, read_key: bytes) -> None:
        """Seal every frame from now on, in both directions.

        Frames that have arrived but were not taken must be sealed too.
        """
        self._writer, self._reader = _Seal(write_key), _Seal(read_key)

    def encode(self, data: Any) -> bytes:
        """Encode a JSON object as a frame. Raises FrameError if it is too large."""
        payload = as_payload(data)
        if self._writer is None:
            return HEADER.pack(_CLEAR, len(payload)) + payload
        return self._writer.sealed(_SEALED, b"", payload)

    def encode_chunk(self, chunk: Chunk) -> bytes:
        """Encode a chunk, which is never in the clear."""
        assert self._writer is not None
        return self._writer.sealed(_CHUNK, chunk_numbers(chunk), chunk.data)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Optional[Any]:
        """Take the next JSON value or Chunk that has arrived whole; None if there is none.

        Raises FrameError if the frame is invalid.

        Nothing is parsed before its seal is verified.
        """
        if len(self._buffer) < HEADER.size:
            return None
        kind, length = HEADER.unpack_from(self._buffer)
        wanted, limit = (_CLEAR, MAX_CLEAR) if self._reader is None else (_SEALED + _CHUNK, MAX_CONTROL + SEAL_BYTES)
        if kind not in wanted or length > limit:
            raise FrameError("no frame of the relay: %r" % bytes(self._buffer[:40]))
        end = HEADER.size + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:  # a slice of it is no copy
            body = view[:end] if self._reader is None else self._reader.verified(view[:end])
            payload = body[HEADER.size :]
            taken = chunk_of(payload) if kind == _CHUNK else from_payload(bytes(payload))
            body.release()
            payload.release()
        del self._buffer[:end]
        return taken


class _Seal:
    """The seals of one direction's frames, in order."""

    def __init__(self, key: bytes) -> None:
        self._keyed, self._number = hmac.new(key, digestmod=hashlib.sha256), 0

    def next(self, *parts: Union[bytes, memoryview]) -> bytes:
        """Return the seal of the next frame, whose header and payload are these parts joined."""
        seal = self._keyed.copy()
        seal.update(_NUMBER.pack(self._number))
        for part in parts:
            seal.update(part)
        self._number += 1
        return seal.digest()[:SEAL_BYTES]

    def sealed(self, kind: bytes, numbers: bytes, data: bytes) -> bytes:
        """Return a frame, whose payload is that of `numbers` and `data` joined, and its seal."""
        before = HEADER.pack(kind, len(numbers) + len(data) + SEAL_BYTES) + numbers
        return b"".join((before, data, self.next(before, data)))

    def verified(self, frame: memoryview) -> memoryview:
        """Return a frame, as far as its seal. Raises FrameError if the seal does not verify."""
        if len(frame) < HEADER.size + SEAL_BYTES or not hmac.compare_digest(
            self.next(frame[:-SEAL_BYTES]), frame[-SEAL_BYTES:]
        ):
            raise FrameError("a frame of the relay is not authentic")
        return frame[:-SEAL_BYTES]
