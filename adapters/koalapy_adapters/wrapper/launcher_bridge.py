"""Passes messages between a Launcher and its KCM, and reads none: by a Unix socket to the wrapper, then by the relay.

The socket is there while the relay is, so that the Launcher knows when its KCM is gone, and begins anew.
"""

import json
import os
import selectors
import socket
from typing import Any, Callable, Dict, Optional

from koalapy_adapters.host.json_lines import LineReader
from koalapy_adapters.messages.relay import FromLauncher

Json = Dict[str, Any]

NAME = "launcher"
MAX_WAITING = 1 << 25  # bytes that a stuck Launcher may leave unread


class LauncherBridge:
    """At most one Launcher. `send` is the relay's."""

    def __init__(self, directory: str, selector: selectors.BaseSelector, send: Callable[[Any], Any]) -> None:
        """`directory` is this node's private one."""
        self.path = os.path.join(directory, NAME)
        self._selector, self._send = selector, send
        self._listener: Optional[socket.socket] = None
        self._launcher: Optional[socket.socket] = None
        self._reader = LineReader()
        self._waiting = bytearray()

    def open(self) -> None:
        """The relay is in. Raises OSError where there can be no socket."""
        self.close()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """The relay is lost."""
        self._drop()
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
            os.unlink(self.path)

    def deliver(self, body: Json) -> None:
        """Pass a message of the KCM on; it is dropped if no Launcher is connected."""
        if self._launcher is not None:
            self._waiting += json.dumps(body, separators=(",", ":")).encode() + b"\n"
            self._flush()

    def drain(self) -> None:
        """Read the last messages of a Launcher that has ended."""
        self._accept()
        while self._launcher is not None and self._read():
            pass

    def _accept(self) -> None:
        """The newest counts: the one before it has lost its connection."""
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._drop()
        connection.setblocking(False)
        self._launcher, self._reader, self._waiting = connection, LineReader(), bytearray()
        self._selector.register(connection, selectors.EVENT_READ, self._ready)

    def _ready(self) -> None:
        if self._waiting:
            self._flush()
        if self._launcher is not None:
            self._read()

    def _read(self) -> bool:
        """Return whether there was something."""
        assert self._launcher is not None
        try:
            data = self._launcher.recv(1 << 18)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._drop()
            return False
        for text in self._reader.feed(data):
            self._send(FromLauncher(json.loads(text.decode())))
        return True

    def _flush(self) -> None:
        assert self._launcher is not None
        try:
            while self._waiting:
                del self._waiting[: self._launcher.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop()
            return
        if len(self._waiting) > MAX_WAITING:
            self._drop()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        self._selector.modify(self._launcher, events, self._ready)

    def _drop(self) -> None:
        if self._launcher is not None:
            self._selector.unregister(self._launcher)
            self._launcher.close()
            self._launcher = None
