"""The files of jobs in the HTTP API: fetch files, read output, and follow output while it is written."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from koalapy.answers import jobs as answers
from koalapy.api.bodies import LONGEST_WAIT_S, FetchBody, FollowBody, Timeout
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.identity import JobId
from koalapy.model.textfile.words import valid_text
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.following import Ended, OutputEnds
from koalapy.runtime.service import Service
from koalapy.views.fields import error as error_of

T = TypeVar("T")
_FOLLOWERS = 500  # outputs that are read at one time, each by a thread other than those of all other calls
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "bytes, as they were written"}
}
_FRAMES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "lines of JSON, and bytes as they were written"}
}


class CutOff(Exception):
    """An answer that had begun cannot be finished."""


def add_files(app: FastAPI, service: Service) -> None:
    """Add the endpoints of a job's files and output."""
    followers = anyio.CapacityLimiter(_FOLLOWERS)

    @app.post("/v1/jobs/{job}/fetch")
    def fetch(job: JobId, body: FetchBody | None = None, timeout: Timeout = LONGEST_WAIT_S) -> answers.FetchAnswer:
        """Fetch files that the job's last attempts left on the clusters. A repeated request waits for it."""
        wanted = body or FetchBody()
        directory = wanted.directory or service.work(job).request.directory
        _must_be_absolute(directory)
        return _fetched(job, service.fetch(job, wanted.paths, directory, min(timeout, LONGEST_WAIT_S)))

    @app.get("/v1/jobs/{job}/output", response_class=StreamingResponse, responses=_BYTES)
    async def output(
        job: JobId,
        stream: Literal["output", "errors"] = "output",
        component: int | None = None,
        parameter: int | None = None,
        prefix: bool = False,
    ) -> StreamingResponse:
        """Return what the processes of the last attempt, or one parameter of a sweep, have written by now.

        With `prefix` each line begins with `[component.rank] `.
        """
        if parameter is None:
            pieces = await run_in_threadpool(service.output, job, stream, component, prefix)
        else:
            pieces = await run_in_threadpool(service.sweeps.output, job, parameter, stream)
        first = await _next(pieces, followers)  # an error of the first piece is answered as an error
        while first == b"":
            first = await _next(pieces, followers)
        return StreamingResponse(_all(first, pieces, followers), media_type="application/octet-stream")

    @app.post("/v1/jobs/{job}/follow", response_class=StreamingResponse, responses=_FRAMES)
    async def follow(job: JobId, body: FollowBody) -> StreamingResponse:
        """Return what all processes write, as they write it, attempt after attempt, until the job is final.

        The answer is a sequence of frames. Each begins with a line of JSON:

        - `{"components": [[INDEX, PROCESSORS], ...]}` is the first frame.
        - `[COMPONENT, ATTEMPT, RANK, SIZE]` is followed by SIZE bytes of output.
        - `[COMPONENT, ATTEMPT]` means that all output of the attempt has been sent.
        - `{"end": null}`, or `{"end": {...}}` with an answer koala.error/1, is the last frame.

        A blank line means that nothing was written. To continue an answer that broke off, add up the sizes of each
        process and send the sums as `positions`.
        """
        processors, pieces = await run_in_threadpool(
            service.follow, job, body.stream, body.component, body.by_attempt()
        )
        return StreamingResponse(_frames(processors, pieces, followers), media_type="application/octet-stream")


def _fetched(job_id: int, home: Collected | None) -> answers.FetchAnswer:
    """Answer with the fetched files of a job, or that they are being fetched (`home` is None)."""
    return {
        "schema": "koala.fetch/1",
        "id": job_id,
        "state": "fetching" if home is None else "fetched",
        "files": home.files if home else None,
        "bytes": home.size if home else None,
        "missing": [valid_text(each) for each in home.missing] if home else [],
        "lack": valid_text(home.lack) or None if home else None,
        "notes": [valid_text(each) for each in home.notes] if home else [],
    }


def _must_be_absolute(directory: str) -> None:
    """Raises RequestError for a relative directory, which would be relative to koalad's own."""
    if not directory.startswith("/"):
        message = f"The directory {directory!r} is not absolute."
        raise RequestError("bad_directory", message, "Name the one that the paths are relative to.")


async def _frames(
    processors: Mapping[int, int],
    pieces: Iterator[Sequence[OutputEnds | Ended]],
    followers: anyio.CapacityLimiter,
) -> AsyncIterator[bytes]:
    yield _line({"components": [[*each] for each in processors.items()]})
    try:
        while (some := await _next(pieces, followers)) is not None:
            yield b"".join(map(frame, some)) or b"\n"
    except KoalaError as error:
        yield _line({"end": error_of(error.reason)})
    else:
        yield _line({"end": None})


def frame(piece: OutputEnds | Ended) -> bytes:
    """Encode a piece of followed output as a frame; a blank line if nothing was written."""
    if isinstance(piece, Ended):
        return _line([*piece])
    return _line([*piece[:3], len(piece.data)]) + piece.data if piece.data else b"\n"


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


async def _all(first: bytes | None, pieces: Iterator[bytes], followers: anyio.CapacityLimiter) -> AsyncIterator[bytes]:
    """Yield all pieces. An error cuts the answer off, so that a client does not take it for complete."""
    piece = first
    while piece is not None:
        if piece:
            yield piece
        try:
            piece = await _next(pieces, followers)
        except KoalaError as error:
            raise CutOff(str(error)) from error


async def _next(pieces: Iterator[T], followers: anyio.CapacityLimiter) -> T | None:
    """Return the next piece, or None at the end. A piece is empty if nothing was written for about a second."""
    return await anyio.to_thread.run_sync(lambda: next(pieces, None), abandon_on_cancel=True, limiter=followers)
