"""The relay: compute nodes reach their head node only, so their wrappers speak with koalad through this TCP server."""

import asyncio
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.frames import Control, Decoder, FrameError, encode
from koalapy_adapters.kcm import network
from koalapy_adapters.kcm.actions import WrapperEntered, WrapperLeft
from koalapy_adapters.kcm.door import Admitted, Door, outcome
from koalapy_adapters.kcm.pipes import log
from koalapy_adapters.kcm.threads import in_thread
from koalapy_adapters.messages import Beat, MessageError, from_json, to_json

BEAT, SILENCE, KNOCK = 10.0, 30.0, 10.0  # seconds
SHOW_LIFE = 5.0
MAX_STRANGERS = 256  # connections that have not knocked yet
MAX_BACKLOG = 8 << 20  # bytes that a wrapper has not read


class _Guest(NamedTuple):
    """A wrapper that was let in, by one connection."""

    admitted: Admitted
    writer: asyncio.StreamWriter

    def tell(self, message: Any) -> None:
        self.writer.write(encode(Control(to_json(self.admitted.told(message)))))


class Relay:
    """Lets in wrappers whom the door admits, and tells the machine what they say.

    `stands_still`: whether the batch system has suspended the attempt of this tag. Such a silent one is not given up:
    its node keeps the connection, and closes it when the wrapper is ended without having gone on.
    """

    def __init__(
        self,
        door: Door,
        tell: Callable[[Any], None],
        show_life: Callable[[], None],
        stands_still: Callable[[str], bool],
        silence: float = SILENCE,
    ) -> None:
        self._door, self._tell_machine, self._show_life = door, tell, show_life
        self._stands_still, self._silence = stands_still, silence
        self._guests: Dict[str, _Guest] = {}
        self._strangers = 0
        self._server: Any = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of every address. Raises OSError."""
        listener = network.listening_socket()
        self.port = listener.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listener)

    def tell(self, tag: str, message: Any) -> None:
        """Send to the wrapper of this tag, if it is connected and reads."""
        guest = self._guests.get(tag)
        if guest is None:
            return
        if guest.writer.transport.get_write_buffer_size() > MAX_BACKLOG:
            guest.writer.transport.abort()
            return
        guest.tell(message)

    async def work(self) -> str:
        """Show that this KCM lives, for as long as it does: a wrapper that cannot connect is to know why."""
        while True:
            await asyncio.sleep(SHOW_LIFE)
            await in_thread(self._show_life)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for guest in self._guests.values():
            guest.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages = _Messages(reader)
        try:
            admitted = await self._at_door(messages)
            if admitted is not None:
                await self._host(_Guest(admitted, writer), messages)
        except (OSError, EOFError):
            pass  # it comes again, or its record says how it ended
        except (FrameError, MessageError, asyncio.TimeoutError) as error:
            log("A wrapper's connection ended: %s %s" % (type(error).__name__, error))
        finally:
            writer.close()

    async def _at_door(self, messages: "_Messages") -> Optional[Admitted]:
        """None for who is not let in, and learns nothing."""
        if self._strangers >= MAX_STRANGERS:
            return None
        self._strangers += 1
        try:
            knock = await asyncio.wait_for(messages.next(), KNOCK)
            return await in_thread(lambda: self._door.admit(knock))  # type: ignore[no-any-return]
        finally:
            self._strangers -= 1

    async def _host(self, guest: _Guest, messages: "_Messages") -> None:
        tag = guest.admitted.tag
        before = self._guests.get(tag)
        self._guests[tag] = guest
        if before is not None:
            before.writer.transport.abort()
        self._tell_machine(WrapperEntered(tag, guest.admitted.clock))
        beat = asyncio.ensure_future(_beat(guest))
        closed = False
        try:
            while self._guests.get(tag) is guest:  # one that was replaced has nothing more to say
                said = outcome(tag, await self._next(tag, messages))
                if said is not None:
                    self._tell_machine(said)
        except (EOFError, ConnectionResetError):
            closed = True
            raise
        finally:
            beat.cancel()
            if self._guests.get(tag) is guest:
                del self._guests[tag]
                self._tell_machine(WrapperLeft(tag, closed))

    async def _next(self, tag: str, messages: "_Messages") -> Any:
        """Raises asyncio.TimeoutError for one that is silent without having been suspended, and as `_Messages.next`."""
        while True:
            try:
                return await asyncio.wait_for(messages.next(), self._silence)
            except asyncio.TimeoutError:
                if not self._stands_still(tag):
                    raise


class _Messages:
    """The messages of one connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._decoder = reader, Decoder()
        self._waiting: List[Any] = []

    async def next(self) -> Any:
        """Raises EOFError at the end, FrameError or MessageError for what is no message."""
        while not self._waiting:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError("closed by the wrapper")
            for frame in self._decoder.feed(data):
                if not isinstance(frame, Control):
                    raise FrameError("bulk data does not go through the relay")
                self._waiting.append(from_json(frame.data))
        return self._waiting.pop(0)


async def _beat(guest: _Guest) -> None:
    while True:
        await asyncio.sleep(BEAT)
        guest.tell(Beat())
