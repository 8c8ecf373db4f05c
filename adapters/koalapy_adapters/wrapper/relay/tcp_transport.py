"""The line of sockets: connects to several addresses, keeps the first that answers, and exchanges frames over it."""

import errno
import select
import selectors
import socket
from collections import deque
from typing import Any, Deque, Dict, List, Optional

from koalapy_adapters import frames, messages
from koalapy_adapters.channel import Channel, Keys
from koalapy_adapters.clock import SECOND
from koalapy_adapters.wrapper.relay.transport import SocketTransport, TransportListener

PATIENCE = 5 * SECOND  # with an answer
HEAD_START_MS = 20  # of the first address: mostly it answers, and the relay is spared the others
MAX_WAITING = 1 << 25  # bytes that a stuck relay may leave unsent
MOST_CHUNKS = 1 << 9  # of byte streams that wait; more are dropped, and their ends send them again


class TcpTransport(SocketTransport):
    """At most one connection at a time."""

    def __init__(self, selector: selectors.BaseSelector, listener: TransportListener) -> None:
        self._selector, self._listener = selector, listener
        self._trying: Dict[socket.socket, str] = {}
        self._socket: Optional[socket.socket] = None
        self._channel = Channel()
        self._waiting = bytearray()
        self._chunks: Deque[frames.Chunk] = deque()  # they wait until all else was sent
        self._events = 0  # that the selector watches

    def connect(self, addresses: List[str], port: int) -> None:
        """-> connected for the first that takes it, unreachable if none does

        All but the first are tried at once, after HEAD_START_MS in which the first has not answered (after RFC 8305).
        """
        for number, address in enumerate(addresses):
            self._try(address, port)
            if number == 0 and len(addresses) > 1 and self._answers_soon():
                break
        if not self._trying:
            self._listener.unreachable()

    def begin(self, first: List[Any]) -> None:
        """-> broken if that fails"""
        for message in first:
            self.write(message)

    def secure(self, keys: Keys) -> None:
        """Seal every frame from now on."""
        self._channel.secure(keys.wrapper, keys.kcm)

    def write(self, message: Any) -> None:
        """Send a message, or a chunk of a byte stream. -> broken if that fails"""
        if self._socket is None:
            return
        if not isinstance(message, frames.Chunk):
            self._waiting += self._channel.encode(messages.to_json(message))
        elif len(self._chunks) < MOST_CHUNKS:
            self._chunks.append(message)
        self._flush()

    def drop(self) -> None:
        """Close what is connected or being tried."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        for candidate in list(self._trying):
            self._let_go(candidate)

    def leave(self, linger: float) -> None:
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

    def _try(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            candidate = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return
        try:
            candidate.setblocking(False)
            begun = candidate.connect_ex((address, port)) in (0, errno.EINPROGRESS)  # else SO_ERROR would be empty
        except OSError:  # an address that is none
            begun = False
        if not begun:
            candidate.close()
            return
        self._trying[candidate] = address
        self._selector.register(candidate, selectors.EVENT_WRITE, lambda: self._connected(candidate))

    def _answers_soon(self) -> bool:
        """Return whether the address that is being tried takes the connection within its head start."""
        for candidate in list(self._trying):
            ready = select.poll()
            ready.register(candidate, select.POLLOUT)
            if ready.poll(HEAD_START_MS):
                if not candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    return True
                self._let_go(candidate)  # its error has been read, and would not show again
        return False

    def _connected(self, candidate: socket.socket) -> None:
        """The first that connects is asked; the others are let go, also those that the same select found ready."""
        if candidate not in self._trying:
            return
        address = self._trying[candidate]
        if candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._let_go(candidate)
            if not self._trying:
                self._listener.unreachable()
            return
        del self._trying[candidate]
        for other in list(self._trying):
            self._let_go(other)
        candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = candidate
        self._channel, self._waiting, self._chunks = Channel(), bytearray(), deque()
        self._events = selectors.EVENT_READ
        self._selector.modify(candidate, self._events, self._ready)
        self._listener.connected(address, PATIENCE)

    def _let_go(self, candidate: socket.socket) -> None:
        del self._trying[candidate]
        self._selector.unregister(candidate)
        candidate.close()

    def _ready(self) -> None:
        if self._waiting or self._chunks:
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
            self._listener.broken()
            return
        self._listener.arrived()
        channel = self._channel
        channel.feed(data)
        while self._socket is not None and channel is self._channel:  # a message may end the connection
            try:
                received = channel.take()
            except frames.FrameError:
                self._listener.broken()
                return
            if received is None:
                return
            self._listener.received(received)

    def _try_to_send(self, data: memoryview) -> int:
        """Return how many bytes the kernel has taken. Raises OSError if the connection is broken."""
        assert self._socket is not None
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0

    def _flush(self) -> None:
        assert self._socket is not None
        try:
            while self._waiting or self._chunks:
                if self._waiting:
                    del self._waiting[: self._socket.send(self._waiting)]
                    continue
                data = memoryview(self._channel.encode_chunk(self._chunks.popleft()))
                sent = self._try_to_send(data)
                self._waiting += data[sent:]
                if sent < len(data):
                    break
        except BlockingIOError:
            pass
        except OSError:
            self._listener.broken()
            return
        if len(self._waiting) > MAX_WAITING:
            self._listener.broken()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        if events != self._events:
            self._events = events
            self._selector.modify(self._socket, events, self._ready)
