"""Sweeps as JSON, and their results row by row as JSON, lines of JSON or CSV, since there may be a million."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import cast

from koalapy import answers
from koalapy.api.documents.fields import optional_instant
from koalapy.model.sweep import Sweep
from koalapy.model.textfile.words import visible_json
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.runtime.sweeps import Row
from koalapy.views.sweeps import Forecast, ParameterCounts, Place, RunnerReport, count_parameters

Rows = Iterable[Row]

_AT_ONCE = 500  # rows in a piece of an answer
_BEFORE, _AFTER = ("parameter",), ("exit_status", "ending", "cluster", "host", "started_at", "ended_at")


def progress(sweep: Sweep) -> answers.SweepProgress:
    """Describe the progress of a sweep."""
    return {**_counts(count_parameters(sweep)), "clusters": [cluster for cluster, numbers in sweep.out if numbers]}


def _counts(counts: ParameterCounts) -> answers.Counts:
    return {
        "parameters": counts.parameters,
        "done": counts.done,
        "failed": counts.failed,
        "assigned": counts.assigned,
        "preempted": counts.preempted,
    }


def runners(reports: Iterable[RunnerReport], forecast: Forecast) -> answers.RunnersAnswer:
    """Answer with CS-Runners, and the forecast that admission uses."""
    return {
        "schema": "koala.runners/1",
        "runners": [runner(each) for each in reports],
        "admission": {
            "expected_nodes": round(forecast.expected, 3),
            "predicted_nodes": _rounded(forecast.predicted),
            "nodes": _rounded(forecast.came_true),
            "mean_error": _rounded(forecast.mean_error),
        },
    }


def runner(report: RunnerReport) -> answers.Runner:
    """Describe a CS-Runner."""
    sweep, counts = report.sweep, count_parameters(report.sweep)
    return {
        "id": sweep.id,
        "name": sweep.request.name,
        "owner": sweep.owner,
        "state": cast(answers.JobStateName, str(sweep.state)),
        "submitted_at": format_instant(sweep.submitted_at),
        "admitted_at": optional_instant(sweep.admitted_at),
        "finished_at": optional_instant(sweep.finished_at),
        **_counts(counts),
        "running": report.running,
        "waiting": counts.waiting,
        "parameters_per_minute": None if report.per_minute is None else round(report.per_minute, 3),
        "ends_at": optional_instant(report.ends_at),
        "charged_processor_seconds": round(report.charged / SECOND, 6),
        "reason": str(sweep.reason) if sweep.reason else None,
        "clusters": [_place(each) for each in report.places],
    }


def _place(place: Place) -> answers.RunnerCluster:
    return {
        "cluster": place.cluster,
        "nodes": place.nodes,
        "processors": place.processors,
        "starting": place.starting,
        "stopping": place.stopping,
        "suspended": place.suspended,
        "running": place.running,
        "assigned": place.assigned,
        "reclaimed": place.reclaimed,
        "black_holes": list(place.black_holes),
    }


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


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
