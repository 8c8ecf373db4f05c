"""The output of several processes as a KCM sends it in one stream, split by process."""

import json
from collections.abc import Iterator

from koalapy.model.errors import ClusterError

_HEADER = 64  # bytes before a stretch at most
_STRETCH = 1 << 16  # bytes of one at most
_MOST_RANKS = 1 << 20
_MOST_OMITTED = 1 << 53


class Stretches:
    """A parser of an attempt's output as a KCM sends it (see messages.Fetch with positions), piece by piece.

    `bounded`: bytes may have been left out, and a line states that in their place; `omitted_bytes` counts them.
    """

    def __init__(self, bounded: bool = False) -> None:
        self._bounded = bounded
        self._buffer = bytearray()
        self._rank, self._left = 0, 0
        self.omitted_bytes = 0

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (rank, bytes) in order. Raises ClusterError for any other stream.

        Nothing is held back but an incomplete line before a stretch.
        """
        self._buffer += piece
        while self._buffer:
            if not self._left:
                end = self._buffer.find(b"\n", 0, _HEADER)
                if end < 0:
                    if len(self._buffer) >= _HEADER:
                        raise _not_understood(self._buffer)
                    return
                self._rank, self._left, omitted_bytes = _begun(self._buffer[:end], self._bounded)
                del self._buffer[: end + 1]
                if omitted_bytes:
                    self.omitted_bytes += omitted_bytes
                    yield self._rank, b"\n[koala: %d bytes were left out here]\n" % omitted_bytes
                continue
            data = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
            self._left -= len(data)
            yield self._rank, data


def _begun(line: bytearray, bounded: bool) -> tuple[int, int, int]:
    """Return rank and size in bytes of a stretch, and the number of bytes left out before it.

    Raises ClusterError for any other line.
    """
    try:
        rank, size, *more = json.loads(line)
    except (ValueError, TypeError, RecursionError) as error:
        raise _not_understood(line) from error
    omitted_bytes = more[0] if more and bounded else 0
    if not all(type(number) is int for number in (rank, size, omitted_bytes)) or len(more) > bounded:
        raise _not_understood(line)
    if not 0 <= rank < _MOST_RANKS or not 0 < size <= _STRETCH or not 0 <= omitted_bytes <= _MOST_OMITTED:
        raise _not_understood(line)
    return rank, size, omitted_bytes


def _not_understood(line: bytearray) -> ClusterError:
    return ClusterError("bad_stream", f"What a KCM sends of its output is not understood: {bytes(line[:40])!r}.", "")
