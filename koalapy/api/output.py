"""The part of the HTTP API that passes on what jobs have written, for as long as they write."""

from collections.abc import AsyncIterator, Iterator
from typing import Literal

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from koalapy.model.errors import KoalaError
from koalapy.model.identity import JobId
from koalapy.runtime.service import Service

_FOLLOWERS = 500  # outputs that are read at one time, each by a thread: apart from those of all other calls


class CutOff(Exception):
    """An answer that had begun cannot be finished."""


def add_output(app: FastAPI, service: Service) -> None:
    followers = anyio.CapacityLimiter(_FOLLOWERS)

    @app.get(
        "/v1/jobs/{job}/output",
        response_class=StreamingResponse,
        responses={200: {"content": {"application/octet-stream": {}}, "description": "bytes, as they were written"}},
    )
    async def output(
        job: JobId,
        stream: Literal["output", "errors"] = "output",
        component: int | None = None,
        follow: bool = False,
        parameter: int | None = None,
        prefix: bool | None = None,
    ) -> StreamingResponse:
        """What the last attempt's processes wrote; or one parameter of a sweep.

        With `follow` until the job is over: of all components as they write, whole lines each, try after try. Lines
        begin with `[component.rank] ` with `prefix`; if that is not said, when several components are followed.
        """
        if parameter is None:
            pieces = await run_in_threadpool(service.output, job, stream, component, follow, prefix)
        else:
            pieces = await run_in_threadpool(service.sweeps.output, job, parameter, stream)
        first = await _next(pieces, followers)  # what cannot be read is refused before the answer begins
        while first == b"" and not follow:
            first = await _next(pieces, followers)
        return StreamingResponse(_all(first, pieces, followers), media_type="application/octet-stream")


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


async def _next(pieces: Iterator[bytes], followers: anyio.CapacityLimiter) -> bytes | None:
    """None at the end; an empty one about every second in which nothing comes."""
    found = await anyio.to_thread.run_sync(lambda: next(pieces, None), abandon_on_cancel=True, limiter=followers)
    return found
