"""Ports and terminals of running jobs in the HTTP API: a connection of the client becomes one of the job's program."""

import re
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from koalapy.answers import jobs as answers
from koalapy.api.streaming import BODY, FRAMES, ApiStream, StreamAnswer
from koalapy.model.identity import JobId
from koalapy.runtime.service import Service

Port = Annotated[int, Query(ge=1, le=65535, description="of 127.0.0.1 on the node")]
Rank = Annotated[int, Query(ge=0, description="whose node it is; counted from 0 in the component")]
FORWARDED = re.compile(r"/v1/jobs/[0-9]+/(forward|terminal)")
"""Paths of requests whose body is never held in memory."""


def add_forward(app: FastAPI, service: Service) -> None:
    """Add the endpoints of jobs' ports."""

    @app.get("/v1/jobs/{job}/forward")
    def where(job: JobId, port: Port, component: int | None = None, rank: Rank = 0) -> answers.PortAnswer:
        """Return where a port of a running job is. Whether the program listens there is not known."""
        found = service.where_forwarded(job, component, rank)
        return {
            "schema": "koala.port/1",
            "id": job,
            "component": found.id.component,
            "cluster": found.cluster,
            "rank": rank,
            "port": port,
        }

    @app.post("/v1/jobs/{job}/forward", response_class=Response, responses=FRAMES, openapi_extra=BODY)
    async def forward(job: JobId, port: Port, component: int | None = None, rank: Rank = 0) -> Response:
        """Connect to a port of a running job, for as long as both sides wish.

        The body of the request is what the program reads, and its end is the end of that direction. The answer begins
        when the program has taken the connection. It is a sequence of frames: a byte `C`, the length of the rest (4
        bytes, big endian), 16 bytes without meaning, and what the program wrote. A frame without bytes of the program
        is the end of that direction. A frame with the byte `J` has, after its length, an answer koala.error/1: the
        connection was reset.
        """
        stream = ApiStream(await run_in_threadpool(service.open_stream, job, component, rank, port))
        await stream.opened()
        return StreamAnswer(stream)

    @app.get("/v1/jobs/{job}/terminal")
    def terminal(job: JobId) -> answers.TerminalAnswer:
        """Return where the terminal of a running interactive job is, and whether a client is attached to it."""
        return service.where_terminal(job)

    @app.post("/v1/jobs/{job}/terminal", response_class=Response, responses=FRAMES, openapi_extra=BODY)
    async def attach(job: JobId, take: bool = False) -> Response:
        """Attach to the terminal of a running interactive job, for as long as both sides wish.

        The answer is as that of a job's port: what the terminal shows, first again what it showed last. The body is a
        sequence of frames too. Those with the byte `C` have keys; one without any is the end of a standard input that
        is no terminal. One with the byte `J` has the size of the window, `{"rows": 24, "columns": 80}`. The end of the
        body detaches, and the program runs on. One client may be attached; with `take`, the new one.
        """
        stream = ApiStream(await run_in_threadpool(service.attach, job, take))
        await stream.opened()
        return StreamAnswer(stream)
