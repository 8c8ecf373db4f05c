"""What every connection offers: one remote command, with its standard streams."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

MAX_LINE = 8192  # of standard error; what is longer is cut

Lines = Callable[[str], None]


class Channel(Protocol):
    """The streams of a running command. One thread reads, one writes, any closes."""

    def read(self, size: int) -> bytes:
        """At least one byte and at most `size`; b"" at the end, and as soon as the channel is closed here. Blocks."""
        ...

    def write(self, data: bytes) -> None:
        """All of it; blocks. Raises OSError if the other side takes no more, or the channel is closed."""
        ...

    def exit_status(self, timeout_s: float) -> int | None:
        """The command's exit status, None if it is not known within the time. After the end of its output."""
        ...

    def close(self) -> None:
        """End the command's input, and soon the command. Any number of times; wakes up whoever reads or writes."""
        ...


class Connection(Protocol):
    """A way to start a command on a head node."""

    @property
    def where(self) -> str:
        """How a message names the other side: fs0.example, this machine, the container head."""
        ...

    @property
    def python(self) -> str:
        """The interpreter to start there if the grid file does not say."""
        ...

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        """Connect and start the command. `stderr` is called with each line of its standard error, by other threads.

        Blocks, for half a minute at most. Raises TransientError or ClusterError; then nothing is left open.
        """
        ...


@runtime_checkable
class Remembering(Connection, Protocol):
    """A connection that knows something of its last login."""

    @property
    def asked(self) -> bool:
        """Whether a person had to answer something for it: it is not given up lightly."""
        ...

    def reachable(self, timeout_s: float) -> bool | None:
        """Whether the other side could be reached now, without a login; None if that cannot be told."""
        ...


class LineSplitter:
    """Bytes in, whole lines of text to a callback out."""

    def __init__(self, line: Lines) -> None:
        self._line = line
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:MAX_LINE]
        for line in lines:
            self._say(line)

    def end(self) -> None:
        self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        text = line[:MAX_LINE].decode(errors="replace").strip()
        if text:
            self._line(text)
