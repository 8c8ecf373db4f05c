"""A TCP cable from a port of 127.0.0.1 to a server: it counts what goes either way, breaks at a byte, or is slow."""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

_PIECE = 1 << 16
Address = tuple[str, int]


class Way:
    """One direction, over all connections. It breaks once, when `breaks_at` bytes have gone; never, if that is None.

    `pace`: so many bytes a second go at most.
    """

    def __init__(self, breaks_at: int | None, pace: float = math.inf) -> None:
        self.carried = 0
        self._breaks_at, self._pace = breaks_at, pace
        self._lock = threading.Lock()

    def break_after(self, size: int) -> None:
        """Break once more, when so many further bytes have gone."""
        with self._lock:
            self._breaks_at = self.carried + size

    @property
    def has_broken(self) -> bool:
        return self._breaks_at is not None and self.carried >= self._breaks_at

    def carry(self, source: socket.socket, target: socket.socket) -> None:
        """Until the source ends, or the way breaks."""
        while data := source.recv(self._room()):
            target.sendall(data)
            time.sleep(len(data) / self._pace)
            if self._breaks_with(len(data)):
                return

    def _room(self) -> int:
        """Not a byte more than it breaks at."""
        if self._breaks_at is None or self.has_broken:
            return _PIECE
        return min(_PIECE, self._breaks_at - self.carried)

    def _breaks_with(self, size: int) -> bool:
        with self._lock:
            before = self.has_broken
            self.carried += size
            return self.has_broken != before


class Meddler(Way):
    """A direction with somebody in it, who has each whole frame of the relay and decides what goes on in its place."""

    def __init__(self) -> None:
        super().__init__(None)
        self.meddle: Callable[[bytes], list[bytes]] = lambda frame: [frame]
        self.seen: list[bytes] = []

    def carry(self, source: socket.socket, target: socket.socket) -> None:
        """Until the source ends."""
        buffer = b""
        while data := source.recv(_PIECE):
            buffer += data
            while len(buffer) >= 5 and len(buffer) >= (end := 5 + int.from_bytes(buffer[1:5], "big")):
                frame, buffer = buffer[:end], buffer[end:]
                self.seen.append(frame)
                for each in self.meddle(frame):
                    target.sendall(each)


class Cable:
    """Up when it is made. A connection of which one way ends or breaks is cut at both ends; the next one works."""

    def __init__(self, server: Address, up: Way, down: Way) -> None:
        """`up` is the way to the server."""
        self.up, self.down = up, down
        self._server = server
        self._plugs: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._spawn(self._listen)

    def close(self) -> None:
        """Nothing of it is left when this returns."""
        _cut(self._listener)
        self._threads[0].join()  # who spawns the others
        _cut(*self._plugs)
        for thread in self._threads:
            thread.join()
        for plug in (self._listener, *self._plugs):
            plug.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # once it is cut
            while True:
                near, _ = self._listener.accept()
                self._plugs.append(near)
                self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._server)
        except OSError:
            return _cut(near)
        self._plugs.append(far)
        self._spawn(self._carry, self.up, near, far)
        self._spawn(self._carry, self.down, far, near)

    def _carry(self, way: Way, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            way.carry(source, target)
        _cut(source, target)

    def _spawn(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, name="cable", daemon=True)
        self._threads.append(thread)
        thread.start()


def _cut(*plugs: socket.socket) -> None:
    """Cut the cable. A thread that waits at either end is woken."""
    for plug in plugs:
        with contextlib.suppress(OSError):  # it is cut already
            plug.shutdown(socket.SHUT_RDWR)
