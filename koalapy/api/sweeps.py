"""The sweeps of the HTTP API: their CS-Runners and results."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from koalapy import answers
from koalapy.api.documents import sweeps as documents
from koalapy.api.documents.sweeps import FORMS
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.runtime.sweeps import Sweeps

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": answers.ResultsAnswer,
        "content": {"application/jsonl": {}, "text/csv": {}},
        "description": "one document; or a Result a line; or a line of values for each",
    }
}


def add_sweeps(app: FastAPI, sweeps: Sweeps) -> None:
    """Add the endpoints of sweeps."""

    @app.get("/v1/runners")
    def runners(state: Annotated[list[JobState] | None, Query()] = None) -> answers.RunnersAnswer:
        """List the CS-Runners of sweeps that are not final, or in these states, with the numbers behind admission."""
        return documents.runners(sweeps.runners(state), sweeps.forecast())

    @app.get("/v1/sweeps/{sweep}/results", response_class=StreamingResponse, responses=_BYTES)
    def results(
        sweep: JobId, format: Literal["json", "jsonl", "csv"] = "json", failed: bool = False
    ) -> StreamingResponse:
        """Return the results of parameters in the order of their records; with `failed` only failures."""
        media, form = FORMS[format]
        pieces: Iterator[bytes] = form(sweep, sweeps.names(sweep), sweeps.results(sweep, failed))
        return StreamingResponse(pieces, media_type=media)
