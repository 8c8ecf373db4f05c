"""The relay: compute nodes reach their head node only, so their wrappers reach koalad through this TCP server."""

import asyncio
import socket
from typing import Any, Callable, List, Optional

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
                self._server = await asyncio.start_server(self._serve, sock=self._listener)
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
            log("The relay refused %d connections that were no wrapper's in the last minute." % refused)

    # ---- one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        line = _Line(reader, writer)
        connection = Connection(line, str(peer[0]) if peer else "")
        by_wrapper = False
        try:
            await self._perform(self.connections.opened(_moment(), connection))
            while True:
                data = await line.next(lambda: self.connections.contact(_moment(), connection))
                await self._perform(self.connections.received(_moment(), connection, data))
        except (EOFError, ConnectionResetError):
            by_wrapper = True  # it comes again, or its record shows how it ended
        except OSError:
            pass
        except FrameError as error:
            if connection.tag:
                log("A wrapper's connection ended: %s" % error)
        finally:
            line.close()
            self._act_all(self.connections.closed(connection, by_wrapper))

    async def _perform(self, actions: List[Any]) -> None:
        for action in actions:
            if isinstance(action, Verify):
                await self._verify(action)
            elif isinstance(action, LookUpVersion):
                await self._look_up_version(action.hello)
            else:
                self._act(action)
        self._set_timer()

    async def _verify(self, action: Verify) -> None:
        try:
            admitted = await in_thread(lambda: self._authenticator.admit(action.challenged, action.proof))
        except OSError:
            admitted = None
        await self._perform(self.connections.verified(_moment(), action.connection, admitted))

    async def _look_up_version(self, hello: Any) -> None:
        other = await in_thread(lambda: self._authenticator.other_version(hello))
        if other is not None:
            self._notify_machine(other)

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

    def _set_timer(self) -> None:
        """Most events leave the connections waiting for the same instant as before, and the timer as it is."""
        at = self.connections.next_wakeup()
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        loop = asyncio.get_event_loop()
        self._timer = loop.call_at(at / SECOND, self._tick) if at is not None else None

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        self._act_all(self.connections.tick(_moment()))


class _Line:
    """The socket of one connection: messages both ways, and chunks of byte streams behind the messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._channel = reader, writer, Channel()
        self._chunks: "asyncio.Queue[Chunk]" = asyncio.Queue()
        self._sending: Optional["asyncio.Future[None]"] = None

    async def next(self, contact: Callable[[], None]) -> Any:
        """Return the next JSON value or Chunk; `contact` is called when bytes come.

        Raises EOFError at the end, FrameError for what is no frame, OSError.
        """
        while True:
            data = self._channel.take()
            if data is not None:
                return data
            read = await self._reader.read(1 << 18)
            if not read:
                raise EOFError("closed by the other side")
            contact()
            self._channel.feed(read)

    def send(self, message: Any) -> None:
        """Send a message. What a wrapper does not read for too long ends its connection."""
        if self._writer.transport.get_write_buffer_size() > MAX_BACKLOG:
            self.abort()
        elif not isinstance(message, Chunk):
            self._writer.write(self._channel.encode(to_json(message)))
        elif self._chunks.empty() and self._writer.transport.get_write_buffer_size() < _WRITTEN:
            self._writer.write(self._channel.encode_chunk(message))
        elif self._chunks.qsize() < MOST_CHUNKS:
            self._chunks.put_nowait(message)

    def secure(self, keys: Keys) -> None:
        """Seal all frames from now on, and give the connection the buffers of a wrapper's."""
        self._channel.secure(keys.kcm, keys.wrapper)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _MORE_ROOM)
        self._writer.transport.set_write_buffer_limits(high=_WRITTEN)
        self._sending = asyncio.ensure_future(self._send_chunks())

    def abort(self) -> None:
        self._writer.transport.abort()

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
        self._writer.close()

    async def _send_chunks(self) -> None:
        """Write the chunks that wait, each when the wrapper has read most of what was written before."""
        while True:
            self._writer.write(self._channel.encode_chunk(await self._chunks.get()))
            try:
                await self._writer.drain()
            except OSError:
                return  # the reader of this connection sees it too


def _moment() -> int:
    """The event loop's clock in microseconds. It does not count the time in which the host sleeps."""
    return int(asyncio.get_event_loop().time() * SECOND)
