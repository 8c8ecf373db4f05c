"""A person at the terminal of an interactive job, or a pipe at its standard input: attached while its program runs."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from koalapy.cli.output import print_message
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.terminal import Terminal
from koalapy.common.lines import Writer
from koalapy.model.errors import KoalaError, RequestError, TransientError

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job, TerminalAnswer

FIRST = Writer(0, 0)
"""The process that has the terminal."""
ESCAPE = "^]"
_PIECE_BYTES = 1 << 16
_TRY_AGAIN_S = 0.5
_HAS_ENDED = frozenset({"stream_attempt_ended", "stream_no_terminal", "stream_closed", "wrong_state"})
_REACHED = frozenset({"released", "running"})
# What a program may have switched on in a terminal that is left before its end: the other screen, mouse, paste, cursor.
_CALM = b"\x1b[?1047l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m\r\n"


class Detached(Exception):
    """The person has left the terminal; the job runs on. `is_taken`: another client has it."""

    def __init__(self, is_taken: bool = False) -> None:
        super().__init__(is_taken)
        self.is_taken = is_taken


class Keys:
    """Finds the request to detach in what is typed: the escape key, then `d`. The escape key twice is sent once.

    `escape`: the key's one byte; empty if there is none.
    """

    def __init__(self, escape: bytes) -> None:
        self._escape = escape
        self._begun = False

    def typed(self, keys: bytes) -> tuple[bytes, bool]:
        """Return the bytes for the program, and whether the person wants to detach."""
        passed = bytearray()
        for number in keys:
            key = bytes([number])
            if self._begun:
                self._begun = False
                if key in (b"d", b"D"):
                    return bytes(passed), True
                passed += key if key == self._escape else self._escape + key
            elif key == self._escape:
                self._begun = True
            else:
                passed += key
        return bytes(passed), False


def escape_of(text: str) -> bytes:
    """Return the byte of a key such as ^] or ^a; none for `none`. Raises RequestError."""
    if text == "none":
        return b""
    if len(text) == 2 and text[0] == "^" and "@" < text[1].upper() <= "_":
        return bytes([ord(text[1].upper()) ^ 0x40])
    message = f"--escape {text!r} is neither a key such as ^] nor none."
    raise RequestError("bad_option", message, "Write ^ and a letter, or one of [ \\ ] ^ _.")


class AttachedTerminal:
    """Attaches to the job's terminal while its program runs, and again after koalad or a cluster could not be reached.

    `take`: also if another client is attached. `escape`: see Keys. `reconnect_s`: the seconds for which the cluster
    may be unreachable. `screen`: where the terminal is shown; texts from elsewhere pass through it too.
    """

    def __init__(self, koalad: Grid, job: int, screen: Screen, take: bool, escape: bytes, reconnect_s: float) -> None:
        self.koalad, self.job, self.screen, self.reconnect_s = koalad, job, screen, reconnect_s
        self._take, self._escape = take, escape
        self._ended_attempt = 0  # the attempt whose program has ended
        self._silent_since: float | None = None
        self.has_begun = False
        self._is_whole = True  # what was shown

    @property
    def has_shown_all(self) -> bool:
        """Return whether all that the program wrote to its terminal was shown."""
        return self.has_begun and self._is_whole

    def attend(self, found: Job) -> None:
        """Attach if the program runs, until it ends. `found`: the job's document.

        Raises Detached once the person is gone, NotReachable if koalad is, and KoalaError if that is for good.
        """
        first = found["components"][0]
        if first["state"] not in _REACHED or first["attempt"] == self._ended_attempt:
            return
        try:
            where = self.koalad.terminal(self.job)
            with self.koalad.attach(self.job, take=self._take) as terminal:
                self._begin(where)
                if where["kind"] == "terminal":
                    self.screen.use(terminal, Keys(self._escape))
                else:
                    self._feed(terminal)
            self._ended_attempt = first["attempt"]
        except NotReachable:
            raise
        except TransientError as error:
            self._pause(error)
        except KoalaError as error:
            if error.reason.code == "stream_taken":
                raise Detached(is_taken=True) from None
            if error.reason.code not in _HAS_ENDED:
                raise
            self._ended_attempt, self._is_whole = first["attempt"], False

    def _begin(self, where: TerminalAnswer) -> None:
        self._silent_since = None
        if self.has_begun:
            return
        self.has_begun, self._take = True, False
        if where["slow"]:
            print_message(f"koala: {where['cluster']} has `relay: files`, so that a key takes up to seconds.")
        if where["kind"] == "terminal" and self._escape:
            key = "^" + chr(self._escape[0] ^ 0x40)
            print_message(f"koala: this is the terminal of job {self.job} on {where['cluster']}; {key} d detaches.")

    def _pause(self, error: TransientError) -> None:
        """Wait a moment. Raises the error if the cluster has been unreachable for too long."""
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
            if self.has_begun:
                print_message(f"koala: {error.reason.message} Waiting for it for {self.reconnect_s:g} s.")
        if now - self._silent_since >= self.reconnect_s:
            raise error
        time.sleep(_TRY_AGAIN_S)

    def _feed(self, terminal: Terminal) -> None:
        """Pass standard input on, until the program has it all, or has ended.

        Raises OurError if it breaks off: nobody knows then how much of a pipe the program has read.
        """
        typed = sys.stdin.isatty()
        sent = False
        try:
            with _reading(terminal, lambda data: None) as (end, _):
                while not end():
                    data = _typed(sys.stdin.fileno(), end.descriptor)
                    if data is None:
                        continue
                    sent = True
                    with end.explained():
                        terminal.write(data) if data else terminal.end_input()
                    if not data:
                        end.wait()
        except TransientError as error:
            if typed or not sent:
                raise
            message = f"The standard input of job {self.job} broke off: {error.reason.message}"
            raise RequestError("cut", message, f"`koala cancel {self.job}` ends the job. Submit it again.") from error


class Screen:
    """The terminal here, on which the program's is shown. Output of other processes comes between, line by line.

    `file`: what it is shown on. While the program has the terminal, line feeds of others get a carriage return.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._is_raw = False

    def write(self, data: bytes) -> int:
        """Write the output of other processes."""
        with self._lock:
            return self._file.write(data.replace(b"\n", b"\r\n") if self._is_raw else data)

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        return self._file.fileno()

    def use(self, terminal: Terminal, keys: Keys) -> None:
        """Give keys to the program, and show what it shows, until it ends.

        Raises Detached if the person detaches or hangs up, and KoalaError if the connection breaks.
        """
        ended = False
        try:
            with self._raw(), _reading(terminal, self._show) as (end, resized):
                with end.explained():
                    terminal.resize(*_size())
                while not end():
                    typed = _typed(sys.stdin.fileno(), end.descriptor)
                    with end.explained():
                        if resized():
                            terminal.resize(*_size())
                        passed, leaves = keys.typed(typed or b"")
                        terminal.write(passed)
                    if leaves or typed == b"":
                        raise Detached
                ended = True
        except KeyboardInterrupt:  # a hang-up, or SIGTERM: Ctrl-C is a key for the program
            raise Detached from None
        finally:
            if not ended:
                self._show(_CALM)

    def _show(self, data: bytes) -> None:
        with self._lock, suppress(OSError):
            self._file.write(data)
            self._file.flush()

    @contextmanager
    def _raw(self) -> Iterator[None]:
        """Let every key through in the block, Ctrl-C too."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        self._is_raw = True
        try:
            tty.setraw(descriptor, termios.TCSADRAIN)
            yield
        finally:
            self._is_raw = False
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class _EndOfOutput:
    """The end of what a terminal shows. `descriptor` can be read once there is something to look at."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.error: KoalaError | None = None
        self.event = threading.Event()

    def __call__(self) -> bool:
        """Return whether all is shown. Raises the error that broke it off."""
        if self.event.is_set():
            self.wait()
        return self.event.is_set()

    def wait(self) -> None:
        """Wait until all is shown. Raises the error that broke it off."""
        self.event.wait()
        if self.error is not None:
            raise self.error

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Wait for the end in place of an error of the block, which only means that nothing can be sent any more."""
        try:
            yield
        except NotReachable:
            self.wait()


@contextmanager
def _reading(terminal: Terminal, show: Callable[[bytes], None]) -> Iterator[tuple[_EndOfOutput, Callable[[], bool]]]:
    """Show what the terminal shows, on a thread of its own, while the block runs.

    Yields its end, and a function that returns whether the window has another size since the last call.
    """
    reading, writing = os.pipe()
    end, sizes = _EndOfOutput(reading), [False]

    def wake() -> None:
        with suppress(OSError):
            os.write(writing, b"!")

    def read() -> None:
        try:
            for data in terminal.read():
                show(data)
        except KoalaError as error:
            end.error = error
        end.event.set()
        wake()

    def on_resize(number: int, frame: object) -> None:
        sizes[0] = True
        wake()

    def resized() -> bool:
        was, sizes[0] = sizes[0], False
        return was

    thread = threading.Thread(target=read, name="terminal", daemon=True)
    with ExitStack() as left:
        left.callback(os.close, writing)
        left.callback(os.close, reading)
        before = signal.signal(signal.SIGWINCH, on_resize)
        left.callback(signal.signal, signal.SIGWINCH, before)
        thread.start()
        left.callback(thread.join)
        left.callback(terminal.hang_up)
        yield end, resized


def _typed(descriptor: int, wakes: int) -> bytes | None:
    """Return what is typed next, nothing at its end, and None if `wakes` came first."""
    ready, _, _ = select.select([descriptor, wakes], [], [])
    if wakes in ready:
        os.read(wakes, _PIECE_BYTES)
        return None
    try:
        return os.read(descriptor, _PIECE_BYTES)
    except OSError:  # the terminal is gone
        return b""


def _size() -> tuple[int, int]:
    """Return rows and columns of the window here."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(sys.stdin.fileno(), termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        rows = columns = 0
    return rows or 24, columns or 80
