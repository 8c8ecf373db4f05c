"""Ports of running jobs in the HTTP API: a connection of the client becomes one of the job's program."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from koalapy_adapters.frames import MAX_CHUNK, Chunk, Control, encode
from starlette.types import Receive, Scope, Send

from koalapy import answers
from koalapy.api import documents
from koalapy.model.errors import KoalaError
from koalapy.model.identity import JobId
from koalapy.runtime.service import Service
from koalapy.runtime.streams import Stream

Port = Annotated[int, Query(ge=1, le=65535, description="of 127.0.0.1 on the node")]
Rank = Annotated[int, Query(ge=0, description="whose node it is; counted from 0 in the component")]
FORWARDED = re.compile(r"/v1/jobs/[0-9]+/forward")
"""Paths of requests whose body is never held in memory."""
_FRAMES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "frames: bytes, and a document at a failure"}
}

_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}


def add_forward(app: FastAPI, service: Service) -> None:
    """Add the endpoints of jobs' ports."""

    @app.get("/v1/jobs/{job}/forward")
    def where(job: JobId, port: Port, component: int | None = None, rank: Rank = 0) -> answers.PortAnswer:
        """Return where a port of a running job is. Whether the program listens there is not known."""
        chosen = service.where_forwarded(job, component, rank)
        assert chosen.cluster is not None
        return documents.port(job, chosen.index, chosen.cluster, rank, port)

    @app.post("/v1/jobs/{job}/forward", response_class=Response, responses=_FRAMES, openapi_extra=_BODY)
    async def forward(job: JobId, port: Port, component: int | None = None, rank: Rank = 0) -> Response:
        """Connect to a port of a running job, for as long as both sides wish.

        The body of the request is what the program reads, and its end is the end of that direction. The answer begins
        when the program has taken the connection. It is a sequence of frames: a byte `C`, the length of the rest (4
        bytes, big endian), 16 bytes without meaning, and what the program wrote. A frame without bytes of the program
        is the end of that direction. A frame with the byte `J` has, after its length, an answer koala.error/1: the
        connection was reset.
        """
        stream = _Stream(await run_in_threadpool(service.open_stream, job, component, rank, port))
        await stream.opened()
        return _Connection(stream)


class _Stream:
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
        await self._wait_for(lambda: self._stream.is_open)

    async def write(self, data: bytes) -> None:
        """Send these bytes, as fast as the program reads."""
        for start in range(0, len(data), MAX_CHUNK):
            piece = data[start : start + MAX_CHUNK]
            await self._wait_for(lambda: self._stream.is_over or self._stream.room >= len(piece))  # noqa: B023
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

    async def over(self) -> None:
        """Wait until the program has read everything. Raises KoalaError if the stream is reset before."""
        await self._wait_for(lambda: self._stream.is_open and self._stream.is_over)

    def abandon(self) -> None:
        """Reset the stream, unless it is over."""
        self._stream.reset("closed", "The client closed the connection.")

    async def keep(self) -> None:
        """Probe the other end, and give it up in time."""
        while not self._stream.is_over:
            await asyncio.sleep(self._stream.tick())

    async def _wait_for(self, is_so: Callable[[], bool]) -> None:
        while True:
            self._changed.clear()
            if is_so():
                return
            await self._changed.wait()


class _Connection(Response):
    """The answer that carries a stream, both ways at once."""

    def __init__(self, stream: _Stream) -> None:
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
            await self._stream.over()
        except KoalaError as error:
            await send(_body(encode(Control(documents.error(error.reason)))))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}
