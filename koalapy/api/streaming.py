"""Byte streams of jobs as requests of the HTTP API, whose body and answer flow at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from fastapi.responses import Response
from koalapy_adapters.frames import MAX_CHUNK, Chunk, Control, encode
from starlette.types import Receive, Scope, Send

from koalapy.model.errors import KoalaError
from koalapy.runtime.streams import Stream
from koalapy.views import fields

FRAMES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "frames: bytes, and a document at a failure"}
}
BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}


class ApiStream:
    """koalad's end of a stream, in the event loop of the API."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._changed = stream, asyncio.Event()
        loop = asyncio.get_running_loop()
        self._called = False  # the loop will set the event soon

        def wake() -> None:
            if not self._called:
                self._called = True
                with suppress(RuntimeError):  # the loop is closed: koalad ends
                    loop.call_soon_threadsafe(self._wake)

        stream.on_change = wake

    def _wake(self) -> None:
        self._called = False
        self._changed.set()

    async def opened(self) -> None:
        """Wait until the program has taken the connection. Raises KoalaError if it does not."""
        keeping = asyncio.ensure_future(self.keep())  # what asks for the program may be lost on its way
        try:
            await self._wait_for(lambda: self._stream.is_open)
        finally:
            keeping.cancel()

    async def write(self, data: bytes) -> None:
        """Send these bytes, as fast as the program reads."""
        for start in range(0, len(data), MAX_CHUNK):
            piece = data[start : start + MAX_CHUNK]
            await self._wait_for(lambda: self._stream.is_closed or self._stream.room >= len(piece))  # noqa: B023
            self._stream.put(piece)

    def end(self) -> None:
        self._stream.end()

    async def read(self) -> bytes | None:
        """Return what the program wrote next, None at the end. Raises KoalaError if the stream was reset."""
        data: bytes | None = b""

        def is_there() -> bool:
            nonlocal data
            data = self._stream.take(MAX_CHUNK)
            return data != b""

        await self._wait_for(is_there)
        return data

    async def finish(self) -> None:
        """Wait until the program has read everything. Raises KoalaError if the stream is reset before."""
        await self._wait_for(lambda: self._stream.is_open and self._stream.is_closed)

    def abandon(self) -> None:
        """Reset the stream, unless it is over."""
        self._stream.reset("closed", "The client closed the connection.")

    async def keep(self) -> None:
        """Probe the other end, and give it up in time."""
        while not self._stream.is_closed:
            await asyncio.sleep(self._stream.tick())

    async def _wait_for(self, is_so: Callable[[], bool]) -> None:
        while True:
            self._changed.clear()
            if is_so():
                return
            await self._changed.wait()


class StreamAnswer(Response):
    """The answer that carries a stream, both ways at once."""

    def __init__(self, stream: ApiStream) -> None:
        super().__init__(media_type="application/octet-stream")
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.raw_headers = [each for each in self.raw_headers if each[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        down = asyncio.ensure_future(self._download(send))
        others = [asyncio.ensure_future(each) for each in (self._upload(receive), self._stream.keep())]
        try:
            await down
        finally:
            self._stream.abandon()
            for task in (down, *others):
                task.cancel()

    async def _upload(self, receive: Receive) -> None:
        """Pass on the body of the request. A client that goes away before the end of the answer resets the stream."""
        while (message := await receive())["type"] == "http.request":
            await self._stream.write(message.get("body", b""))
            if not message.get("more_body", False):
                self._stream.end()
        self._stream.abandon()

    async def _download(self, send: Callable[[Any], Awaitable[None]]) -> None:
        try:
            while (data := await self._stream.read()) is not None:
                await send(_body(encode(Chunk(0, 0, data))))
            await send(_body(encode(Chunk(0, 0, b""))))
            await self._stream.finish()
        except KoalaError as error:
            await send(_body(encode(Control(fields.error(error.reason)))))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}
