"""A simulated wrapper's connection to the relay: the real contact's decisions over simulated connections."""

from collections.abc import Callable
from typing import Any, Protocol

from koalapy_adapters import messages
from koalapy_adapters.wrapper import events, failure_texts
from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.file_client import FileRelayClient
from koalapy_adapters.wrapper.relay.file_transport import FileTransport
from koalapy_adapters.wrapper.relay.handshake import Handshake
from koalapy_adapters.wrapper.relay.transport import TransportListener

from koalapy.model.units import MILLISECOND, Duration
from koalapy.world.agenda import ScheduledCall
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.network import End, Json, Pipe
from koalapy.world.processes import Process
from koalapy.world.random_streams import between

_LATENCY = Duration(MILLISECOND // 2), Duration(50 * MILLISECOND)


class Host(Protocol):
    """The wrapper whose connection it is."""

    node: SimNode
    name: str

    def clock(self) -> int: ...

    def handle(self, event: Any) -> None: ...

    def entered(self, offset: int) -> None: ...

    def shut_out(self, contact_at: int) -> None: ...

    def to_launcher(self, message: messages.ToLauncher) -> None: ...

    def seek_relay(self) -> None: ...

    def perform(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None: ...


class RelayClient:
    """The relay client of a wrapper, with at most one admitted connection."""

    def __init__(
        self,
        environment: Environment,
        host: Host,
        process: Process,
        handshake: Handshake,
        shut_out_after: int,
        box: FileRelayClient,
    ) -> None:
        """`process`: the wrapper's process; a dead one does nothing."""
        self._environment, self._host, self._process = environment, host, process
        self._rng = environment.rng(f"guest/{self._host.name}")
        self._contact = contact.Contact(handshake.open, self._rng.random, shut_out_after)
        self._files = FileTransport(box, self._perform, self._listener(), self._host.clock)
        self._by_files = False
        self._end: End | None = None
        self._pipe: Pipe | None = None
        self._timer: ScheduledCall | None = None
        self._closed = False

    def found(self, place: Any) -> None:
        """Use the address in the relay's file; see relay.address."""
        self._do(self._contact.found(self._host.clock(), place))

    def send(self, message: Any) -> None:
        """Send a message. It is dropped without a connection; all is repeated over the next one."""
        if self._contact.is_in:
            self._write(message)

    def stall(self, duration: Duration) -> None:
        """Let nothing pass for a while; each side decides whether to give up."""
        if self._pipe is not None:
            self._pipe.stall(duration)

    def expect(self, awaited: bool) -> None:
        """Note whether the wrapper waits for the relay's next message."""
        self._files.expect(awaited)
        self._set_timer()

    def leave(self) -> None:
        """Leave the relay: the wrapper has no more messages."""
        if self._by_files and not self._closed:
            self._files.leave()
        self.close()

    def close(self) -> None:
        """Close the connection; the other side reads all sent messages first."""
        self._closed = True
        self._environment.agenda.cancel(self._timer)
        self._drop()

    # ---- the contact's actions

    def _do(self, actions: list[Any]) -> None:
        if self._closed:
            return
        for action in actions:
            if isinstance(action, contact.Write):
                self._write(action.message)
            elif isinstance(action, contact.Begin):
                self._begin(action.messages)
            elif isinstance(action, contact.Secure):
                pass  # a simulated connection cannot be intercepted
            elif isinstance(action, contact.Received):
                self._pass_on(action.message)
            elif isinstance(action, contact.Try):
                self._open_session(action.directory) if action.directory else self._try(
                    action.addresses[0], action.port
                )
            elif isinstance(action, contact.Drop):
                self._drop()
            elif isinstance(action, contact.Entered):
                self._host.entered(action.offset)
            elif isinstance(action, contact.Lost):
                self._host.shut_out(action.contact_at)
            elif isinstance(action, contact.ShutOut):
                shut_out = failure_texts.shut_out(self._host.node.name, action.addresses, action.port)
                self._host.handle(events.PreparationFailed(shut_out))
            else:
                self._host.seek_relay()
        self._set_timer()

    def _listener(self) -> TransportListener:
        clock = self._host.clock
        return TransportListener(
            lambda directory, patience: self._do(self._contact.connected(clock(), directory, patience)),
            lambda: self._do(self._contact.unreachable(clock())),
            lambda: self._contact.arrived(clock()),
            lambda data: self._do(self._contact.received(clock(), messages.from_json(data))),
            lambda: self._do(self._contact.broken(clock())),
        )

    def _perform(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        def done(result: Any) -> None:
            then(result)
            self._set_timer()

        self._host.perform(act, done)

    def _open_session(self, directory: str) -> None:
        self._by_files = True
        self._files.open_session(directory)

    def _drop(self) -> None:
        self._files.drop()
        end, self._end = self._end, None
        if end is not None:
            end.close()

    def _set_timer(self) -> None:
        self._environment.agenda.cancel(self._timer)
        dues = [due for due in (self._contact.next_wakeup(), self._files.next_wakeup()) if due is not None]
        if dues and self._process.alive and not self._closed:
            self._timer = self._process.after(Duration(max(0, min(dues) - self._host.clock())), self._tick)

    def _tick(self) -> None:
        self._do(self._contact.tick(self._host.clock()))
        if not self._closed:
            self._files.tick(self._host.clock())
            self._set_timer()

    def _try(self, address: str, port: int) -> None:
        """Try an address; an unreachable head node gives no answer."""
        self._by_files = False
        if self._environment.reaches_relay and self._host.node.reachable:
            self._process.after(self._latency(), lambda: self._dial(address, port))

    def _dial(self, address: str, port: int) -> None:
        listener = self._environment.ports.get(port)
        if self._closed or not self._contact.is_trying:
            return
        if listener is None:
            self._do(self._contact.unreachable(self._host.clock()))
            return
        pipe = self._pipe = Pipe(self._environment.agenda, self._latency)
        self._host.node.keep(pipe)
        self._environment.head.keep(pipe)
        end = self._end = pipe.near
        end.on_message = lambda data: self._process.run(lambda: self._receive_all(end, data))
        end.on_closed = lambda: self._process.run(lambda: self._lost(end))
        listener.accept(pipe.far)
        self._do(self._contact.connected(self._host.clock(), address))

    def _receive_all(self, end: End, data: Json) -> None:
        if end is self._end:
            self._contact.arrived(self._host.clock())
            self._do(self._contact.received(self._host.clock(), messages.from_json(data)))

    def _lost(self, end: End) -> None:
        if end is self._end:
            self._do(self._contact.broken(self._host.clock()))

    def _pass_on(self, message: Any) -> None:
        if isinstance(message, messages.Release):
            self._host.handle(events.ReleaseReceived(message.first_rank, message.hosts))
        elif isinstance(message, messages.Stop):
            self._host.handle(events.StopReceived(message.force))
        elif isinstance(message, messages.ToLauncher):
            self._host.to_launcher(message)

    def _begin(self, first: list[Any]) -> None:
        if self._by_files:
            self._files.begin(first)
            return
        for message in first:
            self._write(message)

    def _write(self, message: Any) -> None:
        if self._by_files:
            self._files.write(message)
            self._set_timer()
        elif self._end is not None:
            self._end.send(messages.to_json(message))

    def _latency(self) -> Duration:
        return between(self._rng, *_LATENCY)
