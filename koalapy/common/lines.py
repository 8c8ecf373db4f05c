"""The output of several processes as one stream of whole lines, each process's in order."""

import re
from typing import NamedTuple

_LONG = 1 << 20  # bytes of a line that is waited for
_HELD = 16 << 20  # bytes of all unfinished lines
_BEGINS = re.compile(rb"(?<=\n)(?=.)|(?<=\r)(?=[^\n])", re.DOTALL)


class Writer(NamedTuple):
    """One process of a job."""

    component: int
    rank: int


class Interleaving:
    """A merger of several processes' bytes into whole lines.

    A line ends with a newline, or with a carriage return alone. An unfinished line is held until it is finished or its
    component has ended. Nothing is held of a process that is `alone`, since nothing can come between. A line of more
    than 1 MiB is not held, nor one with which more than 16 MiB would be held. Such a line can be broken. `prefix`: each
    line begins with its component and rank.
    """

    def __init__(self, prefix: bool, alone: bool = False) -> None:
        self._prefix, self._alone = prefix, alone
        self._held: dict[Writer, bytearray] = {}
        self._size = 0  # bytes that are held
        self._open: Writer | None = None  # whose line the stream ends with
        self._returned = False  # with a carriage return, which a newline may follow

    def take(self, writer: Writer, data: bytes) -> bytes:
        """Take bytes that the process has written. Returns the bytes that can be shown now."""
        held = self._held.setdefault(writer, bytearray())
        end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(0, len(data) - 1))) + 1
        if end or (held.endswith(b"\r") and not data.startswith(b"\n")):
            end += len(held)
        held += data
        self._size += len(data)
        if self._alone or len(held) - end > _LONG or self._size - end > _HELD:
            end = len(held)
        if not end:
            return b""
        shown = bytes(held[:end])
        self._size -= end
        del held[:end]
        if not held:
            del self._held[writer]
        return self._shown(writer, shown)

    def end(self, component: int) -> bytes:
        """Return the unfinished last line of each process of the component, none of which writes any more."""
        left = sorted(writer for writer in self._held if writer.component == component)
        shown = [self._shown(writer, bytes(self._held.pop(writer))) for writer in left]
        self._size = sum(map(len, self._held.values()))
        if self._open is not None and self._open.component == component:
            self._open = Writer(component, -1)  # what another try of it writes is a line of its own
        return b"".join(shown)

    def _shown(self, writer: Writer, data: bytes) -> bytes:
        """Return the bytes as they are shown: no line begins within another's."""
        if not data:
            return b""
        goes_on = self._open == writer and (not self._returned or data.startswith(b"\n"))
        breaks = self._open is not None and self._open != writer
        self._returned = data.endswith(b"\r")
        self._open = None if data.endswith(b"\n") else writer
        if self._prefix:
            prefix = b"[%d.%d] " % writer
            data = (b"" if goes_on else prefix) + _BEGINS.sub(prefix, data)
        return b"\n" + data if breaks else data
