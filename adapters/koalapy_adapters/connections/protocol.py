"""The interface of every connection: one remote command, with its standard streams."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

MAX_LINE = 8192  # of standard error; what is longer is cut

Lines = Callable[[str], None]


class Channel(Protocol):
    """The streams of a running command. One thread reads, one writes, any thread closes."""

    def read(self, size: int) -> bytes:
        """Read at least one byte and at most `size`; b"" at the end, and as soon as the channel is closed here.

        Blocks.
        """
        ...

    def write(self, data: bytes) -> None:
        """Write all of it; blocks. Raises OSError if the other side takes no more, or the channel is closed."""
        ...

    def exit_status(self, timeout_s: float) -> int | None:
        """The command's exit status; None if it is not known within `timeout_s`.

        Call it after the end of the output.
        """
        ...

    def close(self) -> None:
        """End the command's input, and soon the command.

        Wakes up reader and writer. May be called any number of times.
        """
        ...


@runtime_checkable
class Immediate(Channel, Protocol):
    """A channel that knows whether a write would block."""

    def write_now(self, data: bytes) -> bool:
        """Write all of it if that cannot block, and return True; else write nothing.

        Not while another thread writes. `data` has at most a few KiB. Raises what `write` raises.
        """
        ...


class Connection(Protocol):
    """A way to start a command on a head node."""

    @property
    def where(self) -> str:
        """Name of the other side in messages: fs0.example, this machine, the container head."""
        ...

    @property
    def python(self) -> str:
        """The interpreter to start there if the grid file names none."""
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
        """Return whether a person had to answer a question for the last login.

        Such a connection is not given up lightly.
        """
        ...

    def reachable(self, timeout_s: float) -> bool | None:
        """Return whether the other side could be reached now, without a login; None if that is unknown."""
        ...


@runtime_checkable
class Advising(Connection, Protocol):
    """A connection on which a login is no login of a person, so that the usual advice does not fit."""

    @property
    def advice(self) -> str:
        """The remedy if the other side ends while the cluster side is started there, or does not answer."""
        ...


class LineSplitter:
    """Splits bytes into lines of text, and calls `line` with each line that is not blank."""

    def __init__(self, line: Lines) -> None:
        self._line = line
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[:MAX_LINE]
        for line in lines:
            self._emit(line)

    def end(self) -> None:
        self._emit(self._rest)
        self._rest = b""

    def _emit(self, line: bytes) -> None:
        text = line[:MAX_LINE].decode(errors="replace").strip()
        if text:
            self._line(text)
