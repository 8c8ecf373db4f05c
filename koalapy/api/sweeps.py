"""The sweeps of the HTTP API: their CS-Runners, and their results row by row, since there may be a million."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, cast

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse

from koalapy.answers import sweeps as answers
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.model.textfile.words import visible_json
from koalapy.model.units import Instant, format_instant
from koalapy.runtime.sweeps import Row, Sweeps

Rows = Iterable[Row]

_AT_ONCE = 500  # rows in a piece of an answer
_BEFORE, _AFTER = ("parameter",), ("exit_status", "ending", "cluster", "host", "started_at", "ended_at")
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
        return {"schema": "koala.runners/1", "runners": sweeps.runners(state), "admission": sweeps.forecast()}

    @app.get("/v1/sweeps/{sweep}/results", response_class=StreamingResponse, responses=_BYTES)
    def results(
        sweep: JobId, format: Literal["json", "jsonl", "csv"] = "json", failed: bool = False
    ) -> StreamingResponse:
        """Return the results of parameters in the order of their records; with `failed` only failures."""
        media, form = FORMS[format]
        pieces: Iterator[bytes] = form(sweep, sweeps.names(sweep), sweeps.results(sweep, failed))
        return StreamingResponse(pieces, media_type=media)


def result(names: Sequence[str], row: Row) -> answers.Result:
    """Describe the result of a parameter; `names` are those of its values."""
    found = row.result
    return {
        "parameter": found.number,
        "values": None if row.values is None else dict(zip(names, map(_shown, row.values), strict=True)),
        "exit_status": found.exit_status,
        "ending": cast(answers.Ending, found.ending),
        "cluster": row.cluster,
        "host": found.host,
        "started_at": format_instant(Instant(found.started_at)),
        "ended_at": format_instant(Instant(found.ended_at)),
        "output_bytes": found.output_size,
        "error_bytes": found.errors_size,
    }


# ---- results in each form, in pieces


def as_json(sweep: int, names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Yield one answer koala.results/1."""
    yield json.dumps({"schema": "koala.results/1", "id": sweep, "results": []})[:-2].encode()
    between = ""
    for piece in _pieces(rows):
        yield (between + ",\n".join(_json(names, row) for row in piece)).encode()
        between = ",\n"
    yield b"]}\n"


def as_lines(sweep: int, names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Yield a line of JSON for each result."""
    for piece in _pieces(rows):
        yield "".join(_json(names, row) + "\n" for row in piece).encode()


def as_csv(sweep: int, names: Sequence[str], rows: Rows) -> Iterator[bytes]:
    """Yield a header and a line for each result: RFC 4180, but lines end with LF. Unknown values are empty."""
    yield _csv([columns(names)])
    for piece in _pieces(rows):
        yield _csv(_cells(names, row) for row in piece)


def columns(names: Sequence[str]) -> list[str]:
    """Return the names of columns. A parameter with the name of another column gets the prefix `value_`."""
    taken = {*_BEFORE, *_AFTER}
    return [*_BEFORE, *(f"value_{name}" if name in taken else name for name in names), *_AFTER]


FORMS: dict[str, tuple[str, Callable[[int, Sequence[str], Rows], Iterator[bytes]]]] = {
    "json": ("application/json", as_json),
    "jsonl": ("application/jsonl", as_lines),
    "csv": ("text/csv; charset=utf-8", as_csv),
}


def _pieces(rows: Rows) -> Iterator[list[Row]]:
    source = iter(rows)
    while piece := list(islice(source, _AT_ONCE)):
        yield piece


def _json(names: Sequence[str], row: Row) -> str:
    return visible_json(json.dumps(result(names, row), ensure_ascii=False))


def _cells(names: Sequence[str], row: Row) -> list[object]:
    cells = result(names, row)
    values = cells["values"] or {}
    return [cells["parameter"], *(values.get(name, "") for name in names), *(cells[name] for name in _AFTER)]  # type: ignore[literal-required]


def _csv(rows: Iterable[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _shown(value: str) -> str:
    """Decode a value; bytes that are not UTF-8 are replaced."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
