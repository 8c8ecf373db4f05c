"""The wrapper's relay: what its contact wants is done on a line of sockets or of files, as the relay's file says."""

import os
import selectors
import threading
from typing import Any, Callable, List, NamedTuple, Optional, Union

from koalapy_adapters import messages
from koalapy_adapters.frames import Chunk
from koalapy_adapters.streams import as_frame
from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.file_transport import FileTransport, Perform
from koalapy_adapters.wrapper.relay.tcp_transport import TcpTransport
from koalapy_adapters.wrapper.relay.transport import TransportListener


class Callbacks(NamedTuple):
    """`entered(address, relay's clock minus ours)`, `received(message)`, then `lost(last contact)`; `seek()` the file.

    `shut_out(addresses, port)`: none of these can be reached from here, though the KCM lives.
    """

    entered: Callable[[str, int], None]
    received: Callable[[Any], None]
    lost: Callable[[int], None]
    seek: Callable[[], None]
    shut_out: Callable[[List[str], int], None]


class Transports(NamedTuple):
    """The needs of the transports: TCP a selector, files a client and a function that may block."""

    selector: selectors.BaseSelector
    box: FileRelayClient
    perform: Perform


class RelayClient:
    """At most one connection that is let in; `tick` at `next_wakeup` or later keeps it so."""

    def __init__(self, ways: Transports, mind: contact.Contact, callbacks: Callbacks, clock: Callable[[], int]) -> None:
        self._callbacks, self._clock, self._contact = callbacks, clock, mind
        listener = TransportListener(
            lambda address, patience: self._do(mind.connected(clock(), address, patience)),
            lambda: self._do(mind.unreachable(clock())),
            lambda: mind.arrived(clock()),
            self._receive_all,
            lambda: self._do(mind.broken(clock())),
        )
        self._sockets = TcpTransport(ways.selector, listener)
        self._files = FileTransport(ways.box, ways.perform, listener, clock)
        self._line: Union[TcpTransport, FileTransport] = self._sockets

    def connect(self, now: int, place: RelayAddress) -> None:
        """Where the relay's file says that it is. Ignored while there is a connection."""
        self._do(self._contact.found(now, place))

    def send(self, message: Any) -> bool:
        """Whether it was sent as far as we know; a connection that breaks is told by `lost`."""
        if not self._contact.is_in:
            return False
        self._line.write(message)
        return self._contact.is_in

    def expect(self, awaited: bool) -> None:
        """Whether something waits for what the relay says next; files are looked at more often then."""
        self._files.expect(awaited)

    def next_wakeup(self) -> Optional[int]:
        times = [self._contact.next_wakeup(), self._files.next_wakeup()]
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: int) -> None:
        self._do(self._contact.tick(now))
        self._files.tick(now)

    def close(self, linger: float) -> None:
        """Let the relay have what was sent, and see that we leave; wait for it no longer than `linger` seconds."""
        if self._line is self._sockets:
            self._sockets.leave(linger)
            return
        left = threading.Event()
        self._files.leave(left.set)
        left.wait(linger)

    def _do(self, actions: List[Any]) -> None:
        for action in actions:
            if isinstance(action, contact.Write):
                self._line.write(action.message)
            elif isinstance(action, contact.Begin):
                self._line.begin(action.messages)
            elif isinstance(action, contact.Secure):
                self._line.secure(action.keys)
            elif isinstance(action, contact.Received):
                self._callbacks.received(action.message)
            elif isinstance(action, contact.Try):
                self._try(action)
            elif isinstance(action, contact.Drop):
                self._line.drop()
            elif isinstance(action, contact.Entered):
                self._callbacks.entered(action.address, action.offset)
            elif isinstance(action, contact.Lost):
                self._callbacks.lost(action.contact_at)
            elif isinstance(action, contact.ShutOut):
                self._callbacks.shut_out(action.addresses, action.port)
            else:
                self._callbacks.seek()

    def _try(self, action: contact.Try) -> None:
        if action.directory:
            self._line = self._files
            self._files.open_session(action.directory)
        else:
            self._line = self._sockets
            self._sockets.connect(action.addresses, action.port)

    def _receive_all(self, data: Any) -> None:
        try:
            message = data if isinstance(data, Chunk) else as_frame(messages.from_json(data))
        except messages.MessageError:
            return  # of a newer release: what it means is not for this wrapper
        self._do(self._contact.received(self._clock(), message))


def jitter() -> float:
    """From 0 to 1."""
    return int.from_bytes(os.urandom(2), "big") / 65536
