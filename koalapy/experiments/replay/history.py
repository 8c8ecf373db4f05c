"""koalad's own history as a trace, from the output of `koala jobs --json`."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from koalapy.experiments.replay.record import ReplayJob, Unfit
from koalapy.experiments.workloads.lines import bad_line, read_whole
from koalapy.model.errors import RequestError
from koalapy.model.request import LOWEST_PRIORITY
from koalapy.model.textfile.words import shown
from koalapy.model.units import SECOND, Duration, parse_instant

_BEGINNING = re.compile(r'\s*\{\s*"schema"\s*:\s*"koala\.jobs/1"\s*,\s*"jobs"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_LARGEST = 10**12  # seconds, processors or jobs: larger than any real value
_CUT = "It may be truncated; have `koala jobs --json` print it anew."
Document = dict[str, Any]


class HistoryReader:
    """A reader of the jobs by submission. Times count from the submission of the first job.

    Like a TraceReader, it has `line`, that of the last job, and `header` and `comments`, those of a log of these jobs.
    `pinned`: components keep the clusters where they ran, not only those that their user named. A wrong job is yielded
    as an Unfit.
    """

    def __init__(self, path: Path, pinned: bool) -> None:
        self.header: dict[str, str] = {}
        self.comments: list[str] = []
        self.line = 0
        self.skipped: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()
        self._path, self._pinned = path, pinned

    def __iter__(self) -> Iterator[ReplayJob | Unfit]:
        found = sorted(self._found(), key=lambda each: each[:2])
        begun = next((submitted for submitted, _, job in found if isinstance(job, ReplayJob)), 0)
        self._begin(begun)
        for _, self.line, job in found:
            yield replace(job, submitted=Duration(job.submitted - begun)) if isinstance(job, ReplayJob) else job

    def _found(self) -> Iterator[tuple[int, int, ReplayJob | Unfit]]:
        """Yield (submitted, line, job) for each job."""
        for line, document in _documents(self._path):
            try:
                job = _made(document, self._pinned)
                yield job.submitted, line, job
            except Unfit as unfit:
                yield 0, line, unfit

    def _begin(self, begun: int) -> None:
        self.header["UnixStartTime"] = str(begun // SECOND)
        self.comments.append(f" UnixStartTime: {begun // SECOND}")


def _documents(path: Path) -> Iterator[tuple[int, Document]]:
    """Yield (line, job) for each job. Raises RequestError, with the line, if the file has another format."""
    text = read_whole(path)
    start = _BEGINNING.match(text)
    if start is None:
        message = f"{path} does not begin as what `koala jobs --json` prints."
        raise RequestError("no_history", message, "Write it by `koala jobs --json > history.json`.")
    decoder, line, counted, position = json.JSONDecoder(), 1, 0, _skip(text, start.end())
    while not text.startswith("]", position):
        line, counted = line + text.count("\n", counted, position), position
        try:
            document, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise bad_line(path, error.lineno, f"is not JSON: {error.msg.lower()}", _CUT) from error
        yield line, document
        position = _skip(text, position)


def _skip(text: str, position: int) -> int:
    found = _BETWEEN.match(text, position)
    assert found is not None
    return found.end()


def _made(job: Document, pinned: bool) -> ReplayJob:
    """Return the job; times count from 1970. Raises Unfit."""
    try:
        return _job(job, pinned)
    except (KeyError, TypeError, AttributeError) as error:
        what = f"without {error.args[0]}" if isinstance(error, KeyError) else "in another form than koalad's"
        raise Unfit(f"begins a job {what}", "with missing fields") from None
    except ValueError as error:
        if isinstance(error, Unfit):
            raise
        raise Unfit(f"begins a job whose times are none: {error}", "with missing fields") from None


def _job(job: Document, pinned: bool) -> ReplayJob:
    components = [each for each in job["components"] if each["started_at"] is not None]
    _check_ran(job, components)
    began = min(parse_instant(each["started_at"]) for each in components)
    runtime = max(parse_instant(each["ended_at"]) for each in components) - began
    if runtime < 0 or began < parse_instant(job["submitted_at"]):
        raise Unfit(f"begins job {job['id']}, which ended or started before it could", "with negative times")
    where = "cluster" if pinned else "named_cluster"
    return ReplayJob(
        number=_whole(job, "id"),
        submitted=Duration(parse_instant(job["submitted_at"])),
        components=tuple((_whole(each, "processors", least=1), _text(each, where)) for each in components),
        runtime=Duration(runtime),
        waited=Duration(began - parse_instant(job["submitted_at"])),
        walltime=Duration(max(round(_seconds(each, "walltime_s") * SECOND) for each in components)),
        user=_text(job, "owner") or "",
        priority=_whole(job, "priority", most=LOWEST_PRIORITY),
    )


def _whole(document: Document, key: str, least: int = 0, most: int = _LARGEST) -> int:
    value = document[key]
    if type(value) is not int or not least <= value <= most:
        raise _unfit(document, key)
    return value


def _seconds(document: Document, key: str) -> float:
    value = document[key]
    if type(value) not in (int, float) or not 0 < value <= _LARGEST:  # also refuses not-a-number
        raise _unfit(document, key)
    return float(value)


def _text(document: Document, key: str) -> str | None:
    value = document[key]
    if not (value is None or isinstance(value, str)):
        raise _unfit(document, key)
    return value


def _unfit(document: Document, key: str) -> Unfit:
    return Unfit(f"begins a job with {shown(document[key])} for {key}, which is impossible", "with impossible values")


def _check_ran(job: Document, components: list[Document]) -> None:
    if job["sweep"] is not None:
        raise Unfit("begins a sweep", "that are sweeps", common=True)
    if job["finished_at"] is None:
        raise Unfit("begins a job that is not over", "that were not over", common=True)
    if not components or any(each["ended_at"] is None for each in components):
        raise Unfit("begins a job that never ran", "that never ran", common=True)
