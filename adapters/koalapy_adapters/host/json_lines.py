"""JSON messages between wrapper and node agents, over the standard input and output of whatever launches the agents.

To an agent, a message is a line. From an agent, a message is several short lines, which launchers do not mix with
those of other agents: srun keeps lines whole up to 1024 bytes. Each is `@NODE+PIECE`, the last one of a message
`@NODE.PIECE`. NODE is the agent's index among those of its launcher. Other lines are the launcher's own output.
"""

import json
import os
import re
import selectors
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple

Json = Dict[str, Any]

PIECE = 900
_AT_ONCE = 4096  # PIPE_BUF of Linux
_PIECE = re.compile(rb"@(\d{1,6})([+.])(.*)\Z")


class Piece(NamedTuple):
    """One whole message of the agent with this index."""

    node: int
    message: Json


def line(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def read(text: bytes) -> Json:
    """The message of a line. Raises ValueError if the line has none."""
    message: Json = json.loads(text.decode())
    return message


def pieces(node: int, message: Json) -> bytes:
    """The lines of an agent's message."""
    text = json.dumps(message, separators=(",", ":")).encode()
    parts = [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
    more = [b"@%d+%s\n" % (node, part) for part in parts[:-1]]
    return b"".join(more) + b"@%d.%s\n" % (node, parts[-1])


class LineReader:
    """A reader that takes bytes and returns whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> List[bytes]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole


class Assembler:
    """A reader that takes a launcher's output and returns messages. Other text is collected in `noise`."""

    def __init__(self) -> None:
        self._reader = LineReader()
        self._parts: Dict[int, List[bytes]] = {}
        self.noise: List[bytes] = []

    def feed(self, data: bytes) -> List[Piece]:
        found = []
        for text in self._reader.feed(data):
            match = _PIECE.match(text)
            if match is None:
                self.noise.append(text)
                continue
            node = int(match.group(1))
            self._parts.setdefault(node, []).append(match.group(3))
            if match.group(2) == b".":
                found += self._message(node, b"".join(self._parts.pop(node)))
        return found

    def _message(self, node: int, text: bytes) -> List[Piece]:
        try:
            message = json.loads(text.decode())
        except ValueError:
            self.noise.append(text)  # an agent died within its message, and another message follows
            return []
        return [Piece(node, message)]


class Writer:
    """Bytes that wait until a descriptor takes them. Bytes that nobody reads any more are dropped.

    The end of the other side's own output shows that it is gone, not an error here.
    """

    def __init__(self, descriptor: int, selector: selectors.BaseSelector) -> None:
        self._descriptor = descriptor
        self._selector = selector
        self._waiting = bytearray()
        self._bulk: Deque[bytes] = deque()  # whole messages, which wait until all else was written
        self._watching = False
        self._open = True
        os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        if self._open:
            self._waiting += data
            self._flush()

    def write_bulk(self, data: bytes) -> None:
        """Write whole messages after everything that `write` gets before they are begun."""
        if self._open:
            self._bulk.append(data)
            self._flush()

    def close(self) -> None:
        """Close the descriptor. The other side reads the bytes that were taken, then the end of file."""
        if self._open:
            self._drop()
            os.close(self._descriptor)

    def _flush(self) -> None:
        try:
            while self._waiting or self._bulk:
                if not self._waiting:
                    self._waiting += self._bulk.popleft()
                written = os.write(self._descriptor, self._next())
                del self._waiting[:written]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting, self._bulk = bytearray(), deque()
        self._watch(bool(self._waiting or self._bulk))

    def _next(self) -> bytearray:
        """The next whole lines that one write takes whole or not at all: other agents may write to the same pipe."""
        end = self._waiting.rfind(b"\n", 0, _AT_ONCE) + 1
        return self._waiting[: end or None]

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watching:
            self._selector.register(self._descriptor, selectors.EVENT_WRITE, self._flush)
        elif self._watching and not wanted:
            self._selector.unregister(self._descriptor)
        self._watching = wanted

    def _drop(self) -> None:
        self._open = False
        self._waiting, self._bulk = bytearray(), deque()
        self._watch(False)
