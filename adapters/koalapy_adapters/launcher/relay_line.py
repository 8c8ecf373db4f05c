"""The Launcher's connection to its wrapper: lines of JSON over a Unix socket, which exists while a KCM does."""

import json
import selectors
import socket
from typing import Any, Callable

from koalapy_adapters import messages
from koalapy_adapters.clock import SECOND
from koalapy_adapters.host.json_lines import LineReader

FIRST_RETRY, LAST_RETRY = SECOND // 50, SECOND // 2


class Line:
    """At most one connection. `tick` at `next_wakeup` or later. Data that cannot be written yet waits here."""

    def __init__(
        self,
        path: str,
        selector: selectors.BaseSelector,
        receive: Callable[[Any], None],
        connected: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._path, self._selector = path, selector
        self._receive, self._report_connected, self._report_lost = receive, connected, lost
        self._socket: Any = None
        self._waiting = bytearray()
        self._reader = LineReader()
        self._retry = FIRST_RETRY
        self._try_at = 0

    def send(self, message: Any) -> None:
        """Queue a message. Without a connection it is dropped, which the caller knows."""
        if self._socket is not None:
            self._waiting += json.dumps(messages.to_json(message), separators=(",", ":")).encode() + b"\n"

    def flush(self) -> None:
        """Write the queued data, as much as the socket takes."""
        if self._socket is None:
            return
        try:
            while self._waiting:
                del self._waiting[: self._socket.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self._ready)

    def next_wakeup(self) -> int:
        """The instant of the next attempt to connect; an hour ahead while there is a connection."""
        return self._try_at if self._socket is None else self._try_at + 3600 * SECOND

    def tick(self, now: int) -> None:
        if self._socket is None and now >= self._try_at:
            self._try_at = now + self._retry
            self._retry = min(LAST_RETRY, 2 * self._retry)
            self._connect()

    def leave(self, patience_s: float) -> None:
        """Write what is queued, and close. Waits at most `patience_s` seconds."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(patience_s)
            self._socket.sendall(self._waiting)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the results are in the journal
        self._socket.close()

    def _connect(self) -> None:
        candidate = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            candidate.connect(self._path)
        except OSError:
            candidate.close()
            return
        candidate.setblocking(False)
        self._socket, self._waiting, self._reader = candidate, bytearray(), LineReader()
        self._retry = FIRST_RETRY
        self._selector.register(candidate, selectors.EVENT_READ, self._ready)
        self._report_connected()

    def _ready(self) -> None:
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            self.flush()
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        for text in self._reader.feed(data):
            self._read(text)

    def _read(self, text: bytes) -> None:
        try:
            message = messages.from_json(json.loads(text.decode()))
        except ValueError:
            return  # of another release, whose messages this Launcher does not know
        self._receive(message)

    def _lose(self) -> None:
        self._selector.unregister(self._socket)
        self._socket.close()
        self._socket = None
        self._report_lost()
