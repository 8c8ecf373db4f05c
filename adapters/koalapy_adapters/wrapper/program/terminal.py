"""The terminal of an interactive job's first process, or only its standard input, and the one client that may have it.

A client's bytes are frames (see frames). A chunk holds keys; an empty one is the end of a standard input without a
terminal. A control frame has the window's `rows` and `columns`. Back come the bytes that the terminal shows.
While a client is there, a slow one slows the program down. While none is, the program runs on, and nothing but the last
REPLAYED bytes and the output file, up to LONGEST bytes, is kept.
"""

import fcntl
import os
import re
import selectors
import signal
import socket
import struct
import termios
from typing import Any, Dict, List, Optional

from koalapy_adapters.frames import Chunk, Control, Decoder, FrameError

REPLAYED = 1 << 14  # bytes that a client which attaches is shown again
LONGEST = 16 << 20  # bytes of the output file
_LEFT_OUT = b"\r\n[koala: the terminal has shown more than is kept here]\r\n"
_HELD = 1 << 16  # bytes of one direction that wait here
_LAST = 1 << 20  # bytes at most that are read once the program has ended
_ROWS, _COLUMNS, _MOST = 24, 80, 9999
# Questions of programs to terminals, which a client's terminal must not answer a second time.
_QUESTIONS = re.compile(rb"\x1b(\[[?>=]?[\d;]*([cnt]|\$p|[>?][\d;]*[qu])|\][\d;]*\?(\x07|\x1b\\)|Z|\[[>?][\d;]*[qu])")


class Terminal:
    """One terminal (`has_screen`), or one standard input. Raises OSError if the node can give none."""

    def __init__(self, selector: selectors.BaseSelector, has_screen: bool) -> None:
        self._selector, self._has_screen = selector, has_screen
        self.was_attached = False
        if has_screen:
            self._near, self._far = os.openpty()
            _set_size(self._near, _ROWS, _COLUMNS)
        else:
            self._far, self._near = os.pipe()
        os.set_blocking(self._near, False)
        self._file = -1
        self._file_room = LONGEST
        self._recent, self._shown = bytearray(), 0  # the last bytes, and the number of all
        self._client: Optional[socket.socket] = None
        self._is_new = False  # the client, whose window is not known yet
        self._decoder = Decoder()
        self._input, self._output = bytearray(), bytearray()  # not yet taken by the program, or by the client
        self._no_more_input = False
        self._watched: Dict[Any, int] = {}

    # ---- the program

    def standard(self, files: List[int]) -> List[int]:
        """Return the program's standard descriptors. `files`: those of a process without a terminal."""
        return [self._far] * 3 if self._has_screen else [self._far, *files[1:]]

    def lead(self) -> None:
        """Lead a session whose controlling terminal this is, or a process group without one. Raises OSError."""
        if self._has_screen:
            os.setsid()
            fcntl.ioctl(self._far, termios.TIOCSCTTY, 0)
        else:
            os.setpgid(0, 0)

    def started(self, file: int) -> None:
        """Go on, with this output file, which the terminal owns from now on."""
        self._file = file
        if not self._has_screen:  # the program alone reads it; a terminal hangs up once nobody has it open
            os.close(self._far)
            self._far = -1
        self._watch()

    def ended(self) -> None:
        """Read what is left: the program has ended, though processes that it leaves may hold the terminal."""
        last = self._shown + _LAST
        while self._has_screen and self._shown < last and self._read():
            pass
        self._close_near()
        self._watch()

    def close(self) -> None:
        self._close_near()
        self._leave()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # ---- the client

    def attach(self) -> socket.socket:
        """Return the other end of a new client, in place of one that is there. Raises OSError."""
        self._leave()
        self._client, theirs = socket.socketpair()
        self._client.setblocking(False)
        theirs.setblocking(False)
        self._decoder = Decoder()
        self._output = bytearray(self._replay())
        self._is_new, self.was_attached = self.was_attached, True
        self._watch()
        return theirs

    def _replay(self) -> bytes:
        """Return the last bytes, from the beginning of a line if one begins soon."""
        text = bytes(self._recent)
        if self._shown > len(text):
            text = text[text.find(b"\n", 0, REPLAYED // 4) + 1 :]
        return _QUESTIONS.sub(b"", text) if self.was_attached else text

    def _leave(self) -> None:
        """Close the client's connection. Keys that it sent still reach the program."""
        client, self._client = self._client, None
        self._output = bytearray()
        if client is not None:
            self._unwatch(client)
            client.close()

    # ---- bytes

    def _near_is_ready(self) -> None:
        if self._has_screen and len(self._output) < _HELD:
            self._read()
        self._write()
        self._watch()

    def _client_is_ready(self) -> None:
        self._send()
        if self._client is not None and len(self._input) < _HELD:
            self._receive(self._client)
        self._write()
        self._watch()

    def _read(self) -> bool:
        """Take what the program wrote. Returns whether there was anything."""
        try:
            data = os.read(self._near, _HELD) if self._near >= 0 else b""
        except OSError:  # nothing now, or never again: EIO, after a hang-up
            return False
        self._recent += data
        del self._recent[:-REPLAYED]
        self._shown += len(data)
        self._keep(data)
        if self._client is not None:
            self._output += data
        return bool(data)

    def _keep(self, data: bytes) -> None:
        """Append to the output file, as far as it goes; the terminal itself never fails for it."""
        if not self._file_room:
            return
        fits = data[: self._file_room]
        self._file_room -= len(fits)
        try:
            os.write(self._file, fits if self._file_room else fits + _LEFT_OUT)
        except OSError:
            self._file_room = 0

    def _write(self) -> None:
        """Give the program what it takes now."""
        try:
            while self._input and self._near >= 0:
                del self._input[: os.write(self._near, self._input[:4096])]
        except BlockingIOError:
            return
        except OSError:
            self._input, self._no_more_input = bytearray(), True  # the program has closed it
        if self._no_more_input and not self._has_screen and not self._input:
            self._close_near()

    def _send(self) -> None:
        try:
            while self._client is not None and self._output:
                del self._output[: self._client.send(self._output[:_HELD])]
        except BlockingIOError:
            pass
        except OSError:
            self._leave()

    def _receive(self, client: socket.socket) -> None:
        try:
            data = client.recv(_HELD)
            frames = self._decoder.feed(data)
        except BlockingIOError:
            return
        except (OSError, FrameError):
            data = b""
        if not data:
            self._leave()
            return
        for frame in frames:
            if isinstance(frame, Control):
                self._resize(frame.data)
            elif isinstance(frame, Chunk):
                self._no_more_input = self._no_more_input or not (frame.data or self._has_screen)
                self._input += b"" if self._no_more_input else frame.data

    def _resize(self, size: Any) -> None:
        """Set the window's size. A client that comes later makes the program draw its screen again."""
        if not self._has_screen or self._near < 0 or not isinstance(size, dict):
            return
        rows, columns = _length(size.get("rows")), _length(size.get("columns"))
        if not (rows and columns):
            return
        try:
            if not _set_size(self._near, rows, columns) and self._is_new:
                os.killpg(os.tcgetpgrp(self._near), signal.SIGWINCH)
        except OSError:
            pass  # nothing runs in the terminal's foreground
        self._is_new = False

    def _close_near(self) -> None:
        if self._near >= 0:
            self._unwatch(self._near)
            os.close(self._near)
            self._near = -1
        if self._far >= 0:
            os.close(self._far)
            self._far = -1
        self._input = bytearray()

    # ---- the selector

    def _watch(self) -> None:
        """Watch for what can be done, and close the client's connection once it has all that there will ever be."""
        if self._near < 0 and not self._output:
            self._leave()
        if self._near >= 0 and self._file >= 0:
            reads = self._has_screen and len(self._output) < _HELD
            events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * bool(self._input)
            self._set_watch(self._near, events, self._near_is_ready)
        if self._client is not None:
            reads = len(self._input) < _HELD
            events = selectors.EVENT_READ * reads | selectors.EVENT_WRITE * bool(self._output)
            self._set_watch(self._client, events, self._client_is_ready)

    def _set_watch(self, what: Any, events: int, then: Any) -> None:
        if events == self._watched.get(what, 0):
            return
        if not events:
            self._unwatch(what)
        elif what in self._watched:
            self._selector.modify(what, events, then)
            self._watched[what] = events
        else:
            self._selector.register(what, events, then)
            self._watched[what] = events

    def _unwatch(self, what: Any) -> None:
        if self._watched.pop(what, 0):
            self._selector.unregister(what)


def _set_size(terminal: int, rows: int, columns: int) -> bool:
    """Set the window's size; the kernel sends SIGWINCH if that changes it. Returns whether it does."""
    size = struct.pack("HHHH", rows, columns, 0, 0)
    before = fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    return bytes(before)[:4] != size[:4]


def _length(value: Any) -> int:
    """Return a number of rows or columns; 0 for what is none."""
    return value if type(value) is int and 0 < value <= _MOST else 0
