"""The part of the HTTP API that passes on what jobs have written, for as long as they write."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from koalapy.api import documents
from koalapy.api.bodies import FollowBody
from koalapy.model.errors import KoalaError
from koalapy.model.identity import JobId
from koalapy.model.job import Component
from koalapy.runtime.following import Ended, Written
from koalapy.runtime.service import Service

T = TypeVar("T")
_FOLLOWERS = 500  # outputs that are read at one time, each by a thread: apart from those of all other calls
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "bytes, as they were written"}
}
_FRAMES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "lines of JSON, and bytes as they were written"}
}


class CutOff(Exception):
    """An answer that had begun cannot be finished."""


def add_output(app: FastAPI, service: Service) -> None:
    followers = anyio.CapacityLimiter(_FOLLOWERS)

    @app.get("/v1/jobs/{job}/output", response_class=StreamingResponse, responses=_BYTES)
    async def output(
        job: JobId,
        stream: Literal["output", "errors"] = "output",
        component: int | None = None,
        parameter: int | None = None,
        prefix: bool = False,
    ) -> StreamingResponse:
        """What the last attempt's processes have written by now; or one parameter of a sweep.

        With `prefix` lines begin with `[component.rank] `.
        """
        if parameter is None:
            pieces = await run_in_threadpool(service.output, job, stream, component, prefix)
        else:
            pieces = await run_in_threadpool(service.sweeps.output, job, parameter, stream)
        first = await _next(pieces, followers)  # what cannot be read is refused before the answer begins
        while first == b"":
            first = await _next(pieces, followers)
        return StreamingResponse(_all(first, pieces, followers), media_type="application/octet-stream")

    @app.post("/v1/jobs/{job}/follow", response_class=StreamingResponse, responses=_FRAMES)
    async def follow(job: JobId, body: FollowBody) -> StreamingResponse:
        """What all processes write until the job is over, as they write it, try after try.

        The answer is a sequence of frames, each a line of JSON: first `{"components": [[INDEX, PROCESSORS], ...]}`;
        then `[COMPONENT, ATTEMPT, RANK, SIZE]`, with so many bytes after the line, and `[COMPONENT, ATTEMPT]` when all
        is read that it wrote; last `{"end": null}`, or `{"end": {...}}` with a document koala.error/1. A blank line
        means that nothing came. Whoever adds up the sizes, and gives the sums as `positions`, goes on where an answer
        broke off.
        """
        components, pieces = await run_in_threadpool(
            service.follow, job, body.stream, body.component, body.by_attempt()
        )
        return StreamingResponse(_frames(components, pieces, followers), media_type="application/octet-stream")


async def _frames(
    components: Sequence[Component],
    pieces: Iterator[Sequence[Written | Ended]],
    followers: anyio.CapacityLimiter,
) -> AsyncIterator[bytes]:
    yield _line({"components": [[each.index, each.processors] for each in components]})
    try:
        while (some := await _next(pieces, followers)) is not None:
            yield b"".join(map(frame, some)) or b"\n"
    except KoalaError as error:
        yield _line({"end": documents.error(error.reason)})
    else:
        yield _line({"end": None})


def frame(piece: Written | Ended) -> bytes:
    if isinstance(piece, Ended):
        return _line([*piece])
    return _line([*piece[:3], len(piece.data)]) + piece.data if piece.data else b"\n"


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


async def _all(first: bytes | None, pieces: Iterator[bytes], followers: anyio.CapacityLimiter) -> AsyncIterator[bytes]:
    """An error cuts the answer off, so that nobody takes it for whole."""
    piece = first
    while piece is not None:
        if piece:
            yield piece
        try:
            piece = await _next(pieces, followers)
        except KoalaError as error:
            raise CutOff(str(error)) from error


async def _next(pieces: Iterator[T], followers: anyio.CapacityLimiter) -> T | None:
    """None at the end; an empty one about every second in which nothing comes."""
    return await anyio.to_thread.run_sync(lambda: next(pieces, None), abandon_on_cancel=True, limiter=followers)
