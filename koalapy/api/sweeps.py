"""The part of the HTTP API that is about sweeps."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from koalapy.api.documents import Document
from koalapy.api.documents import sweeps as documents
from koalapy.api.documents.sweeps import FORMS
from koalapy.api.schemas.answer import answering
from koalapy.api.schemas.sweeps import ResultsAnswer, RunnersAnswer
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.runtime.sweeps import Sweeps

_BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ResultsAnswer,
        "content": {"application/jsonl": {}, "text/csv": {}},
        "description": "one document; or a Result a line; or a line of values for each",
    }
}


def add_sweeps(app: FastAPI, sweeps: Sweeps) -> None:
    @app.get("/v1/runners", **answering(RunnersAnswer))
    def runners(state: Annotated[list[JobState] | None, Query()] = None) -> Document:
        """The runners of sweeps that are not over, or of those in these states; and what admission goes by."""
        return documents.runners(sweeps.runners(state), sweeps.forecast())

    @app.get("/v1/sweeps/{sweep}/results", response_class=StreamingResponse, responses=_BYTES)
    def results(
        sweep: JobId, format: Literal["json", "jsonl", "csv"] = "json", failed: bool = False
    ) -> StreamingResponse:
        """Each parameter that is done, in the order in which they were recorded; with `failed` those that failed."""
        media, form = FORMS[format]
        pieces: Iterator[bytes] = form(sweep, sweeps.names(sweep), sweeps.results(sweep, failed))
        return StreamingResponse(pieces, media_type=media)
