"""The Standard Workload Format, version 2.2 (Chapin et al., JSSPP 1999; Parallel Workloads Archive): reader, writer."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from koalapy.experiments.workloads.reading import (
    LENIENT,
    Ended,
    Fields,
    TraceJob,
    TraceReader,
    needed,
    processors_of,
    whole,
)
from koalapy.model.units import SECOND, Duration

COLUMNS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
_NUMBERS = (
    "run time", "wait time", "requested time", "requested memory", "allocated processors", "requested processors",
    "job number", "submit time",
)  # fmt: skip
_STATUS = {"0": Ended.FAILED, "1": Ended.COMPLETED, "5": Ended.CANCELLED}
_WRITTEN = {ended: int(status) for status, ended in _STATUS.items()}


def read_swf(path: Path, lenient: bool = False, advice: str = LENIENT) -> TraceReader:
    """Return a reader of the file. `advice`: what to do about a line that is not valid.

    Lines may have more than the 18 fields.
    """
    return TraceReader(path, ";", _parse, lenient, advice)


def write_swf(jobs: Iterable[TraceJob], header: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a file that `read_swf` can read back."""
    for name, value in header.items():
        yield f"; {name}: {value}\n"
    for job in jobs:
        yield " ".join(map(str, _columns(job))) + "\n"


def _parse(line: str, ignored: Counter[str]) -> TraceJob:
    fields = Fields(line.split(), COLUMNS, len(COLUMNS), ignored)
    run_time, wait_time, requested_time, memory, allocated, requested, number, submit_time = fields.numbers(*_NUMBERS)
    runtime, ended = duration(run_time), _STATUS.get(fields.text("status"), Ended.UNKNOWN)
    used, wanted = whole("allocated processors", allocated), whole("requested processors", requested)
    return TraceJob(
        number=int(needed("job number", number)),
        submitted=duration(needed("submit time", submit_time)) or Duration(0),
        processors=processors_of(used, wanted, runtime, ended),
        runtime=runtime,
        waited=duration(wait_time),
        requested=duration(requested_time),
        memory_per_processor=None if memory is None else int(memory) * 1024,
        user=fields.text("user"),
        group=fields.text("group"),
        queue=fields.text("queue"),
        site=fields.text("partition"),
        ended=ended,
    )


def duration(seconds: float | None) -> Duration | None:
    return None if seconds is None else Duration(round(seconds * SECOND))


def _columns(job: TraceJob) -> list[object]:
    memory = -1 if job.memory_per_processor is None else job.memory_per_processor // 1024
    return [
        job.number, _seconds(job.submitted), _seconds(job.waited), _seconds(job.runtime), job.processors, -1, -1,
        job.processors, _seconds(job.requested), memory, _WRITTEN.get(job.ended, -1), job.user or -1, job.group or -1,
        -1, job.queue or -1, job.site or -1, -1, -1,
    ]  # fmt: skip


def _seconds(time: Duration | None) -> int:
    return -1 if time is None else round(time / SECOND)
