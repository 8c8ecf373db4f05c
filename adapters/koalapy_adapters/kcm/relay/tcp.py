"""The relay: compute nodes reach their head node only, so their wrappers reach koalad through this TCP server."""

import asyncio
import socket
from collections import deque
from typing import Any, Callable, Deque, List, Optional, Set

from koalapy_adapters.channel import Channel, Keys
from koalapy_adapters.clock import SECOND, now
from koalapy_adapters.frames import Chunk, FrameError
from koalapy_adapters.kcm.execution.threads import in_thread
from koalapy_adapters.kcm.koalad_streams import log
from koalapy_adapters.kcm.relay import addresses
from koalapy_adapters.kcm.relay.authentication import Authenticator
from koalapy_adapters.kcm.relay.sessions import (
    SILENCE,
    Connection,
    Connections,
    End,
    LookUpVersion,
    Pass,
    Secure,
    Send,
    Verify,
)
from koalapy_adapters.messages import to_json

SHOW_LIFE = 5.0  # seconds
MAX_BACKLOG = 8 << 20  # bytes that a wrapper has not read
COUNTED_IN = 60.0  # seconds, after which strangers are logged as one number
MOST_CHUNKS = 1 << 9  # of byte streams that wait for a wrapper; more are dropped, and their ends send them again
_WRITTEN = 1 << 17  # bytes that a wrapper has not read, beyond which chunks wait, so that control passes them
_ROOM, _MORE_ROOM = 1 << 13, 1 << 18  # bytes that the kernel keeps of a connection, before its proof and after it


class Relay:
    """Lets in wrappers that prove themselves, and passes their messages to the KCM's machine by `notify`.

    It has the sockets of `Connections`, where `is_suspended`, `answers` and `silence` (microseconds) are explained.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        notify: Callable[[Any], None],
        show_life: Callable[[], None],
        is_suspended: Callable[[str], bool],
        answers: Callable[[str], bool] = lambda address: True,
        silence: int = SILENCE,
    ) -> None:
        self._authenticator, self._notify_machine, self._show_life = authenticator, notify, show_life
        self.connections = Connections(authenticator, now, is_suspended, answers, silence)
        self._loop = asyncio.get_event_loop()
        self._tasks: Set[Any] = set()
        self._listener: Optional[socket.socket] = None
        self._server: Any = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._timer_at: Optional[int] = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of every address; nobody is answered before `work`. Raises OSError."""
        self._listener = addresses.listening_socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
        self.port = self._listener.getsockname()[1]

    def send(self, tag: str, message: Any) -> None:
        """Send to the wrapper of this tag, if it is connected and reads."""
        connection = self.connections.wrapper(tag)
        if connection is not None:
            connection.peer.send(message)

    async def work(self) -> str:
        """Answer wrappers once the machine takes their messages, and show that this KCM lives."""
        counted_at = now()
        while True:
            if self._server is None and self._listener is not None:
                self._server = await self._loop.create_server(lambda: _Line(self), sock=self._listener)
            await asyncio.sleep(SHOW_LIFE)
            await in_thread(self._show_life)
            if now() - counted_at >= COUNTED_IN * SECOND:
                counted_at = now()
                self._log_strangers()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._listener is not None:
            self._listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in self.connections.open_connections():
            connection.peer.close()

    def _log_strangers(self) -> None:
        refused = self.connections.count_refused()
        if refused:
            log("The relay refused %d connections that were no wrapper's in the last minute" % refused)

    # ---- one connection

    def opened(self, connection: Connection) -> None:
        self._act_all(self.connections.opened(self._moment(), connection))

    def contact(self, connection: Connection) -> None:
        self.connections.contact(self._moment(), connection)

    def received(self, connection: Connection, data: Any) -> None:
        """React to a JSON value or Chunk."""
        actions = self.connections.received(self._moment(), connection, data)
        if isinstance(data, Chunk):  # they come in thousands, and change no timer
            for action in actions:
                self._act(action)
        else:
            self._act_all(actions)

    def closed(self, connection: Connection, by_wrapper: bool) -> None:
        """React to the end of a connection; it may be called again."""
        self._act_all(self.connections.closed(connection, by_wrapper))

    def soon(self, call: Callable[[], None]) -> None:
        """Call it once the event loop has done with what it does now."""
        self._loop.call_soon(call)

    async def _verify(self, action: Verify) -> None:
        try:
            admitted = await in_thread(lambda: self._authenticator.admit(action.challenged, action.proof))
        except OSError:
            admitted = None
        self._act_all(self.connections.verified(self._moment(), action.connection, admitted))
        action.connection.peer.go_on()

    async def _look_up_version(self, hello: Any) -> None:
        other = await in_thread(lambda: self._authenticator.other_version(hello))
        if other is not None:
            self._notify_machine(other)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _act_all(self, actions: List[Any]) -> None:
        for action in actions:
            self._act(action)
        self._set_timer()

    def _act(self, action: Any) -> None:
        if isinstance(action, Pass):
            self._notify_machine(action.event)
        elif isinstance(action, Send):
            action.connection.peer.send(action.message)
        elif isinstance(action, Secure):
            action.connection.peer.secure(action.keys)
        elif isinstance(action, End):
            action.connection.peer.abort()
            if action.why:
                log("A wrapper's connection ended: %s" % action.why)
        elif isinstance(action, Verify):
            action.connection.peer.pause()
            self._spawn(self._verify(action))
        elif isinstance(action, LookUpVersion):
            self._spawn(self._look_up_version(action.hello))

    def _set_timer(self) -> None:
        """Most events leave the connections waiting for the same instant as before, and the timer as it is."""
        at = self.connections.next_wakeup()
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at / SECOND, self._tick) if at is not None else None

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        self._act_all(self.connections.tick(self._moment()))

    def _moment(self) -> int:
        """The event loop's clock in microseconds. It does not count the time in which the host sleeps."""
        return int(self._loop.time() * SECOND)


class _Line(asyncio.Protocol):
    """The socket of one connection: messages both ways, and chunks of byte streams behind the messages."""

    def __init__(self, relay: Relay) -> None:
        self._relay, self._channel = relay, Channel()
        self._chunks: Deque[Chunk] = deque()  # they wait until the wrapper has read most of what was written before
        self._is_full = self._is_paused = False

    # ---- what asyncio calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._connection = Connection(self, str(peer[0]) if peer else "")
        self._relay.opened(self._connection)

    def data_received(self, data: bytes) -> None:
        self._relay.contact(self._connection)
        self._channel.feed(data)
        self._take()

    def eof_received(self) -> None:
        self._relay.closed(self._connection, by_wrapper=True)  # it comes again, or its record shows how it ended

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._relay.closed(self._connection, by_wrapper=isinstance(exc, ConnectionResetError))

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._relay.soon(self._write_chunks)  # a write that fails within this call breaks asyncio's transport

    # ---- what the relay calls

    def send(self, message: Any) -> None:
        """Send a message. What a wrapper does not read for too long ends its connection."""
        if self._transport.get_write_buffer_size() > MAX_BACKLOG:
            self.abort()
        elif not isinstance(message, Chunk):
            self._transport.write(self._channel.encode(to_json(message)))
        elif not self._is_full and not self._chunks:
            self._transport.write(self._channel.encode_chunk(message))
        elif len(self._chunks) < MOST_CHUNKS:
            self._chunks.append(message)

    def secure(self, keys: Keys) -> None:
        """Seal all frames from now on, and give the connection the buffers of a wrapper's."""
        self._channel.secure(keys.kcm, keys.wrapper)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _MORE_ROOM)
        self._transport.set_write_buffer_limits(high=_WRITTEN)

    def pause(self) -> None:
        """Read nothing until `go_on`."""
        self._is_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def go_on(self) -> None:
        self._is_paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._take()

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    def _write_chunks(self) -> None:
        while self._chunks and not self._is_full and not self._transport.is_closing():
            self._transport.write(self._channel.encode_chunk(self._chunks.popleft()))

    def _take(self) -> None:
        """Pass on what has arrived whole."""
        try:
            while not self._is_paused and not self._transport.is_closing():
                data = self._channel.take()
                if data is None:
                    return
                self._relay.received(self._connection, data)
        except FrameError as error:
            if self._connection.tag:
                log("A wrapper's connection ended: %s" % error)
            self._relay.closed(self._connection, by_wrapper=False)
            self._transport.close()
