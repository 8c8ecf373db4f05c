"""The relay: compute nodes reach their head node only, so their wrappers speak with koalad through this TCP server."""

import asyncio
import collections
import socket
from typing import Any, Callable, Dict, NamedTuple, Optional

from koalapy_adapters.channel import Channel
from koalapy_adapters.clock import now
from koalapy_adapters.frames import Chunk, FrameError
from koalapy_adapters.kcm.execution.threads import in_thread
from koalapy_adapters.kcm.koalad_streams import log
from koalapy_adapters.kcm.relay import addresses
from koalapy_adapters.kcm.relay.authentication import Admitted, Authenticator, outcome
from koalapy_adapters.kcm.state.actions import WrapperConnected, WrapperDisconnected
from koalapy_adapters.messages import Heartbeat, MessageError, from_json, to_json

BEAT, SILENCE, PROOF_WITHIN = 10.0, 30.0, 3.0  # seconds
SHOW_LIFE = 5.0
MAX_STRANGERS = 256  # connections that have not proven themselves yet
MAX_STRANGERS_OF_ONE = 32  # by the address that they come from
MAX_BACKLOG = 8 << 20  # bytes that a wrapper has not read
COUNTED_IN = 60.0  # seconds, after which strangers are logged as one number
MOST_CHUNKS = 1 << 9  # of byte streams that wait for a wrapper; more are dropped, and their ends send them again
_WRITTEN = 1 << 17  # bytes that a wrapper has not read, beyond which chunks wait, so that control passes them
_ROOM, _MORE_ROOM = 1 << 13, 1 << 18  # bytes that the kernel keeps of a connection, before its proof and after it


class _Wrapper(NamedTuple):
    """A wrapper that was let in, by one connection."""

    admitted: Admitted
    writer: asyncio.StreamWriter
    channel: Channel
    chunks: "asyncio.Queue[Chunk]"

    def send(self, message: Any) -> None:
        if not isinstance(message, Chunk):
            self.writer.write(self.channel.encode(to_json(message)))
        elif self.chunks.empty() and self.writer.transport.get_write_buffer_size() < _WRITTEN:
            self.writer.write(self.channel.encode_chunk(message))
        elif self.chunks.qsize() < MOST_CHUNKS:
            self.chunks.put_nowait(message)

    async def send_chunks(self) -> None:
        """Write the chunks that wait, each when the wrapper has read most of what was written before."""
        while True:
            self.writer.write(self.channel.encode_chunk(await self.chunks.get()))
            try:
                await self.writer.drain()
            except OSError:
                return  # the reader of this connection sees it too


class Strangers:
    """Connections that have not proven themselves, oldest first. Their number is bounded; the newest always has room.

    A true wrapper needs two round trips for its proof. So it is in before many others have come after it, however
    often somebody else renews his connections.
    """

    def __init__(self) -> None:
        self._sources: "collections.OrderedDict[asyncio.StreamWriter, str]" = collections.OrderedDict()
        self.refused = 0  # since it was counted last

    def __len__(self) -> int:
        return len(self._sources)

    def add(self, writer: asyncio.StreamWriter, source: str) -> None:
        """Take this connection in; for its sake another may be aborted."""
        same = [each for each, where in self._sources.items() if where == source]
        if len(same) >= MAX_STRANGERS_OF_ONE:
            self._abort(same[0])
        elif len(self._sources) >= MAX_STRANGERS:
            self._abort(next(iter(self._sources)))
        self._sources[writer] = source

    def remove(self, writer: asyncio.StreamWriter) -> None:
        self._sources.pop(writer, None)

    def count(self) -> int:
        """How many were refused since the last call."""
        refused, self.refused = self.refused, 0
        return refused

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        del self._sources[writer]
        writer.transport.abort()


class Relay:
    """Lets in wrappers that prove themselves, and passes their messages to the machine.

    `answers`: whether a connection from this address is answered at all. `is_suspended`: whether the batch system has
    suspended the attempt of this tag. Such a silent one is not given up: its node keeps the connection, and closes it
    when the wrapper is ended without having gone on.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        tell: Callable[[Any], None],
        show_life: Callable[[], None],
        is_suspended: Callable[[str], bool],
        answers: Callable[[str], bool] = lambda address: True,
        silence: float = SILENCE,
    ) -> None:
        self._authenticator, self._tell_machine, self._show_life = authenticator, tell, show_life
        self._is_suspended, self._answers, self._silence = is_suspended, answers, silence
        self._wrappers: Dict[str, _Wrapper] = {}
        self._listener: Optional[socket.socket] = None
        self._server: Any = None
        self.strangers = Strangers()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of every address; nobody is answered before `work`. Raises OSError."""
        self._listener = addresses.listening_socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
        self.port = self._listener.getsockname()[1]

    def send(self, tag: str, message: Any) -> None:
        """Send to the wrapper of this tag, if it is connected and reads."""
        wrapper = self._wrappers.get(tag)
        if wrapper is None:
            return
        if wrapper.writer.transport.get_write_buffer_size() > MAX_BACKLOG:
            wrapper.writer.transport.abort()
            return
        wrapper.send(message)

    async def work(self) -> str:
        """Answer wrappers once the machine takes their messages, and show that this KCM lives."""
        counted_at = now()
        while True:
            if self._server is None and self._listener is not None:
                self._server = await asyncio.start_server(self._serve, sock=self._listener)
            await asyncio.sleep(SHOW_LIFE)
            await in_thread(self._show_life)
            if now() - counted_at >= COUNTED_IN * 1e6:
                counted_at = now()
                self._log_strangers()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._listener is not None:
            self._listener.close()
        for wrapper in self._wrappers.values():
            wrapper.writer.close()

    def _log_strangers(self) -> None:
        refused = self.strangers.count()
        if refused:
            log("The relay refused %d connections that were no wrapper's in the last minute." % refused)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages = _Messages(reader)
        try:
            wrapper = await self._authenticated(messages, writer)
            if wrapper is not None:
                await self._host(wrapper, messages)
        except (OSError, EOFError):
            pass  # it comes again, or its record shows how it ended
        except (FrameError, MessageError, asyncio.TimeoutError) as error:
            log("A wrapper's connection ended: %s %s" % (type(error).__name__, error))
        finally:
            writer.close()

    async def _authenticated(self, messages: "_Messages", writer: asyncio.StreamWriter) -> Optional[_Wrapper]:
        """Authenticate a connection; None for a stranger, who learns nothing."""
        peer = writer.get_extra_info("peername")
        source = str(peer[0]) if peer else ""
        if not self._answers(source):
            self.strangers.refused += 1
            return None
        self.strangers.add(writer, source)
        try:
            admitted = await asyncio.wait_for(self._admitted(messages, writer), PROOF_WITHIN)
        except (OSError, EOFError, FrameError, asyncio.TimeoutError):
            admitted = None
        finally:
            self.strangers.remove(writer)
        if admitted is None or writer.transport.is_closing():
            self.strangers.refused += not messages.nothing_came  # a wrapper tries several addresses, and keeps one
            return None
        messages.channel.secure(admitted.keys.kcm, admitted.keys.wrapper)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _MORE_ROOM)
        writer.transport.set_write_buffer_limits(high=_WRITTEN)
        return _Wrapper(admitted, writer, messages.channel, asyncio.Queue())

    async def _admitted(self, messages: "_Messages", writer: asyncio.StreamWriter) -> Optional[Admitted]:
        hello = await messages.next()
        challenged = self._authenticator.challenge(now(), hello)
        if challenged is None:
            other = await in_thread(lambda: self._authenticator.other_version(hello))
            if other is not None:
                self._tell_machine(other)
            return None
        writer.write(messages.channel.encode(to_json(challenged.challenge)))
        proof = await messages.next()
        return await in_thread(lambda: self._authenticator.admit(challenged, proof))  # type: ignore[no-any-return]

    async def _host(self, wrapper: _Wrapper, messages: "_Messages") -> None:
        tag = wrapper.admitted.tag
        before = self._wrappers.get(tag)
        self._wrappers[tag] = wrapper
        if before is not None:
            before.writer.transport.abort()
        wrapper.send(wrapper.admitted.welcome)
        self._tell_machine(WrapperConnected(tag, wrapper.admitted.clock_at(now())))
        works = [_beat(wrapper), wrapper.send_chunks(), self._watch_silence(tag, messages)]
        tasks = [asyncio.ensure_future(work) for work in works]
        closed = False
        try:
            while self._wrappers.get(tag) is wrapper:  # no message of one that was replaced counts
                data = await messages.next()
                said = outcome(tag, data if isinstance(data, Chunk) else from_json(data))
                if said is not None:
                    self._tell_machine(said)
        except (EOFError, ConnectionResetError):
            closed = True
            raise
        finally:
            for task in tasks:
                task.cancel()
            if self._wrappers.get(tag) is wrapper:
                del self._wrappers[tag]
                self._tell_machine(WrapperDisconnected(tag, closed))

    async def _watch_silence(self, tag: str, messages: "_Messages") -> None:
        """End the connection of a wrapper that is silent without having been suspended.

        One timer serves all its messages: one for each would cost more than a chunk of a byte stream does.
        """
        while messages.silent_s < self._silence or self._is_suspended(tag):
            left = self._silence - messages.silent_s
            await asyncio.sleep(left if left > 0 else self._silence)
        messages.end(asyncio.TimeoutError())


class _Messages:
    """The JSON objects and chunks of one connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self.channel = reader, Channel()
        self._loop = asyncio.get_event_loop()
        self._received_at = self._loop.time()
        self.nothing_came = False

    @property
    def silent_s(self) -> float:
        """Seconds since bytes came."""
        return self._loop.time() - self._received_at

    def end(self, error: Exception) -> None:
        """Let `next` raise this."""
        self._reader.set_exception(error)

    async def next(self) -> Any:
        """Raises EOFError at the end, FrameError for what is none."""
        while True:
            data = self.channel.take()
            if data is not None:
                return data
            read = await self._reader.read(1 << 18)
            if not read:
                self.nothing_came = self.channel.is_empty
                raise EOFError("closed by the wrapper")
            self._received_at = self._loop.time()
            self.channel.feed(read)


async def _beat(wrapper: _Wrapper) -> None:
    while True:
        await asyncio.sleep(BEAT)
        wrapper.send(Heartbeat())
