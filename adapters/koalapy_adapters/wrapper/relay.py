"""The wrapper's connection to whichever relay is there, as sockets: what to do with them is the contact's to say."""

import os
import selectors
import socket
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters import frames, messages
from koalapy_adapters.wrapper import contact

MAX_WAITING = 1 << 25  # bytes that a stuck relay may leave unsent


class Callbacks(NamedTuple):
    """`entered(address, relay's clock minus ours)`, `heard(message)`, then `lost(heard last at)`; `seek()` the file."""

    entered: Callable[[str, int], None]
    heard: Callable[[Any], None]
    lost: Callable[[int], None]
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
        self._callbacks = callbacks
        self._clock = clock
        self._contact = contact.Contact(knock, _jitter)
        self._trying: Dict[socket.socket, str] = {}
        self._socket: Optional[socket.socket] = None
        self._decoder = frames.Decoder()
        self._waiting = bytearray()

    def connect(self, now: int, addresses: List[str], port: int) -> None:
        """What the relay's file says; no addresses where it is not there. Ignored while there is a connection."""
        self._do(self._contact.found(now, addresses, port))

    def send(self, message: Any) -> bool:
        """Whether it was sent as far as we know; a connection that breaks is told by `lost`."""
        if not self._contact.is_in:
            return False
        self._write(message)
        return self._contact.is_in

    def next_wakeup(self) -> Optional[int]:
        return self._contact.next_wakeup()

    def tick(self, now: int) -> None:
        self._do(self._contact.tick(now))

    def close(self, linger: float) -> None:
        """Send what waits and let the relay read it: closed with something unread, the kernel would throw it away."""
        for candidate in list(self._trying):
            self._let_go(candidate)
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

    # ---- what the contact wants

    def _do(self, actions: List[Any]) -> None:
        for action in actions:
            if isinstance(action, contact.Write):
                self._write(action.message)
            elif isinstance(action, contact.Heard):
                self._callbacks.heard(action.message)
            elif isinstance(action, contact.Try):
                self._try_all(action)
            elif isinstance(action, contact.Drop):
                self._drop()
            elif isinstance(action, contact.Entered):
                self._callbacks.entered(action.address, action.offset)
            elif isinstance(action, contact.Lost):
                self._callbacks.lost(action.heard_at)
            else:
                self._callbacks.seek()

    def _try_all(self, action: contact.Try) -> None:
        for address in action.addresses:
            self._try(address, action.port)
        if not self._trying:
            self._do(self._contact.unreachable(self._clock()))

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
        address = self._trying[candidate]
        if candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._let_go(candidate)
            if not self._trying:
                self._do(self._contact.unreachable(self._clock()))
            return
        del self._trying[candidate]
        for other in list(self._trying):
            self._let_go(other)
        candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = candidate
        self._decoder, self._waiting = frames.Decoder(), bytearray()
        self._selector.modify(candidate, selectors.EVENT_READ, self._ready)
        self._do(self._contact.connected(self._clock(), address))

    def _drop(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        for candidate in list(self._trying):
            self._let_go(candidate)

    def _let_go(self, candidate: socket.socket) -> None:
        del self._trying[candidate]
        self._selector.unregister(candidate)
        candidate.close()

    # ---- the connection

    def _ready(self) -> None:
        if self._waiting:
            self._flush()
        if self._socket is not None:
            self._read()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._break()
            return
        self._contact.arrived(self._clock())
        try:
            heard = self._decoder.feed(data)
        except frames.FrameError:
            self._break()
            return
        for frame in heard:
            if isinstance(frame, frames.Control):
                self._hear(frame.data)

    def _hear(self, data: Any) -> None:
        try:
            message = messages.from_json(data)
        except messages.MessageError:
            return  # of a newer release: what it means is not for this wrapper
        self._do(self._contact.heard(self._clock(), message))

    def _write(self, message: Any) -> None:
        if self._socket is not None:
            self._waiting += frames.encode(frames.Control(messages.to_json(message)))
            self._flush()

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            while self._waiting:
                sent = self._socket.send(self._waiting)
                del self._waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._break()
            return
        if len(self._waiting) > MAX_WAITING:
            self._break()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        self._selector.modify(self._socket, events, self._ready)

    def _break(self) -> None:
        self._do(self._contact.broken(self._clock()))


def _jitter() -> float:
    return int.from_bytes(os.urandom(2), "big") / 65536
