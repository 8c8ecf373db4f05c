"""The wrapper's connection to whichever relay is there: found by its file, tried at all addresses, kept while we live.

The loop hands it the addresses, and what time it is; it says through callbacks what came of it.
"""

import os
import selectors
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters import frames, messages
from koalapy_adapters.wrapper.clock import SECOND

BEAT = 10 * SECOND
SILENCE = 35 * SECOND  # after which a connection is given up
FIRST_RETRY, LAST_RETRY = SECOND // 20, 10 * SECOND
ANSWER_WITHIN = 5 * SECOND  # for a connection, and for Enter
MAX_WAITING = 1 << 25  # bytes that a stuck relay may leave unsent


class Callbacks(NamedTuple):
    """`entered(address, relay's clock minus ours)`, `heard(message)`, `lost()` after that, `seek()` the file anew."""

    entered: Callable[[str, int], None]
    heard: Callable[[Any], None]
    lost: Callable[[], None]
    seek: Callable[[], None]


class Relay:
    """At most one connection that is let in; `tick` at `next_wakeup` or later keeps it so."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        knock: Callable[[int], Any],
        callbacks: Callbacks,
        clock: Callable[[], int],
    ) -> None:
        self._selector = selector
        self._knock = knock
        self._callbacks = callbacks
        self._clock = clock
        self._trying: Dict[socket.socket, str] = {}
        self._socket: Optional[socket.socket] = None
        self._address = ""
        self._entered = False
        self._failed: List[str] = []  # addresses that took a connection, but not the knock
        self._decoder = frames.Decoder()
        self._waiting = bytearray()
        self._knocked_at = 0
        self._heard_at = 0
        self._beat_at = 0
        self._deadline: Optional[int] = None
        self._retry = FIRST_RETRY
        self._seek_at: Optional[int] = None

    def connect(self, now: int, addresses: List[str], port: int) -> None:
        """Try all of these at once; ignored while a connection is there or being tried."""
        if self._socket is not None or self._trying:
            return
        untried = [address for address in addresses if address not in self._failed]
        self._failed = self._failed if untried else []
        for address in untried or addresses:
            self._try(address, port)
        self._deadline = now + ANSWER_WITHIN
        if not self._trying:
            self._again(now)

    def nowhere(self, now: int) -> None:
        """The relay's file is not there, or says nothing."""
        self._again(now)

    def send(self, message: Any) -> bool:
        """Whether it was sent as far as we know; a connection that breaks is told by `lost`."""
        if not self._entered:
            return False
        self._write(message)
        return self._entered

    def next_wakeup(self) -> Optional[int]:
        times = [self._deadline, self._seek_at]
        times += [self._beat_at, self._heard_at + SILENCE] if self._entered else []
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: int) -> None:
        if self._seek_at is not None and now >= self._seek_at:
            self._seek_at = None
            self._callbacks.seek()
        if self._deadline is not None and now >= self._deadline:
            self._fail(now)
        if self._entered and now >= self._heard_at + SILENCE:
            self._fail(now)
        if self._entered and now >= self._beat_at:
            self._beat_at = now + BEAT
            self._write(messages.Beat())

    def close(self, linger: float) -> None:
        """Send what waits and let the relay read it: closed with something unread, the kernel would throw it away."""
        for candidate in list(self._trying):
            self._drop(candidate)
        if self._socket is None:
            return
        connection, waiting = self._socket, bytes(self._waiting)
        self._selector.unregister(connection)
        self._socket = None
        try:
            connection.settimeout(linger)
            connection.sendall(waiting)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
        except OSError:
            pass
        connection.close()

    # ---- connecting --------------------------------------------------------------------------------------------------

    def _try(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            candidate = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return
        try:
            candidate.setblocking(False)
            candidate.connect_ex((address, port))
        except OSError:  # an address that is none
            candidate.close()
            return
        self._trying[candidate] = address
        self._selector.register(candidate, selectors.EVENT_WRITE, lambda: self._connected(candidate))

    def _connected(self, candidate: socket.socket) -> None:
        """The first that connects is asked; the others are let go, also those that the same select found ready."""
        if candidate not in self._trying:
            return
        error = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        address = self._trying[candidate]
        now = self._clock()
        if error:
            self._drop(candidate)
            if not self._trying and self._socket is None:
                self._again(now)
            return
        del self._trying[candidate]
        for other in list(self._trying):
            self._drop(other)
        candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._address = candidate, address
        self._decoder, self._waiting = frames.Decoder(), bytearray()
        self._selector.modify(candidate, selectors.EVENT_READ, self._ready)
        self._knocked_at = now
        self._deadline = now + ANSWER_WITHIN
        self._write(self._knock(now))

    def _drop(self, candidate: socket.socket) -> None:
        del self._trying[candidate]
        self._selector.unregister(candidate)
        candidate.close()

    # ---- connected ---------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        now = self._clock()
        if self._waiting:
            self._flush(now)
        if self._socket is not None:
            self._read(now)

    def _read(self, now: int) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._fail(now)
            return
        self._heard_at = now
        try:
            heard = self._decoder.feed(data)
        except frames.FrameError:
            self._fail(now)
            return
        for frame in heard:
            if isinstance(frame, frames.Control):
                self._hear(now, frame.data)

    def _hear(self, now: int, data: Any) -> None:
        try:
            message = messages.from_json(data)
        except messages.MessageError:
            return  # of a newer release: what it means is not for this wrapper
        if isinstance(message, messages.Enter) and not self._entered:
            self._entered = True
            self._deadline, self._retry, self._failed = None, FIRST_RETRY, []
            self._beat_at = now + BEAT
            self._callbacks.entered(self._address, message.clock - (self._knocked_at + now) // 2)
        elif self._entered and not isinstance(message, messages.Beat):
            self._callbacks.heard(message)

    def _write(self, message: Any) -> None:
        self._waiting += frames.encode(frames.Control(messages.to_json(message)))
        self._flush(self._clock())

    def _flush(self, now: int) -> None:
        assert self._socket is not None
        try:
            while self._waiting:
                sent = self._socket.send(self._waiting)
                del self._waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._fail(now)
            return
        if len(self._waiting) > MAX_WAITING:
            self._fail(now)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        self._selector.modify(self._socket, events, self._ready)

    def _fail(self, now: int) -> None:
        """Give up what is there, and seek the relay anew: it may be elsewhere by now."""
        was_in, self._entered = self._entered, False
        if self._socket is not None:
            if not was_in:
                self._failed.append(self._address)
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        for candidate in list(self._trying):
            self._drop(candidate)
        self._again(now)
        if was_in:
            self._callbacks.lost()

    def _again(self, now: int) -> None:
        """Exponentially later, with jitter: all wrappers of a cluster lose their relay at the same instant."""
        self._deadline = None
        jitter = int.from_bytes(os.urandom(2), "big") / 65536
        self._seek_at = now + int(self._retry * (0.5 + jitter))
        self._retry = min(LAST_RETRY, self._retry * 2)
