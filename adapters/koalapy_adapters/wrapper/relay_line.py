"""The line to the relay: the transport that the relay's file demands, between it and the session."""

from typing import Any, Callable, List, Optional

from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.file_transport import FileTransport, Perform
from koalapy_adapters.wrapper.relay.transport import SocketTransport, Transport, TransportListener
from koalapy_adapters.wrapper.session import WrapperSession


class RelayLine:
    """Two transports, of which the newest Try chooses one. `tick` at `next_wakeup` or later."""

    def __init__(
        self,
        session: WrapperSession,
        do: Callable[[List[Any]], None],
        clock: Callable[[], int],
        sockets_of: Callable[[TransportListener], SocketTransport],
        box: FileRelayClient,
        perform: Perform,
    ) -> None:
        """`do`: performs the session's commands. `box`, `perform`: see FileTransport."""
        listener = TransportListener(
            lambda address, patience: do(session.connected(clock(), address, patience)),
            lambda: do(session.unreachable(clock())),
            lambda: session.arrived(clock()),
            lambda data: do(session.received(clock(), data)),
            lambda: do(session.broken(clock())),
        )
        self.files = FileTransport(box, perform, listener, clock)
        self._sockets = sockets_of(listener)
        self._chosen: Transport = self._sockets

    @property
    def by_files(self) -> bool:
        return self._chosen is self.files

    def perform(self, command: Any) -> None:
        """Perform a Try, Begin, Write, Secure or Drop of the contact."""
        if isinstance(command, contact.Try):
            self._try(command)
        elif isinstance(command, contact.Begin):
            self._chosen.begin(command.messages)
        elif isinstance(command, contact.Write):
            self._chosen.write(command.message)
        elif isinstance(command, contact.Secure):
            self._chosen.secure(command.keys)
        else:
            self._chosen.drop()

    def _try(self, command: contact.Try) -> None:
        if command.directory:
            self._chosen = self.files
            self.files.open_session(command.directory)
        else:
            self._chosen = self._sockets
            self._sockets.connect(command.addresses, command.port)

    def next_wakeup(self) -> Optional[int]:
        return self.files.next_wakeup()

    def tick(self, now: int) -> None:
        self.files.tick(now)
