"""The schedule of a replay as SWF: koalapy's header lines, the header of the trace, then a line for each job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy

from koalapy.experiments.replay.record import NEVER, Column, Names, Record
from koalapy.experiments.workloads.reading import Ended, TraceJob
from koalapy.experiments.workloads.swf import write_swf
from koalapy.model.units import SECOND, Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a schedule: the trace's name and header, when its first job was submitted, and the policies.

    `note`: what else the schedule depends on; empty if there is nothing.
    """

    trace: str
    comments: Sequence[str]
    begun: Duration
    queue: str
    placement: str
    note: str = ""


def schedule(record: Record, origin: Origin) -> Iterator[str]:
    """Yield the lines, with jobs by submission. Times are whole seconds; a job on several clusters has no partition.

    A reader uses the first line of each name in a header. The lines of the replay therefore come before those of the
    trace.
    """
    users, groups, queues = (
        _Numbered("user", record.users),
        _Numbered("group", record.groups),
        _Numbered("queue", record.queues),
    )
    yield from (f";{line}\n" for line in _header(record, origin))
    yield from (f"; Note: {line}\n" for each in (users, groups, queues) for line in each.notes())
    if origin.comments:
        yield "; Note: from here on, the header of the trace as it was\n"
        yield from (f";{line}\n" for line in origin.comments)
    yield from write_swf(_jobs(record, origin.begun, users, groups, queues), {})


def _header(record: Record, origin: Origin) -> Iterator[str]:
    yield " Version: 2.2"
    yield " Computer: simulated, " + ", ".join(f"{name} {count}" for name, count in record.sizes.items())
    yield f" Note: no log, but a schedule: {origin.trace}, replayed by koalapy"
    yield f" Note: queueing policy {origin.queue}, placement policy {origin.placement}"
    if origin.note:
        yield f" Note: {origin.note}"
    yield f" MaxJobs: {len(record)}"
    yield f" MaxRecords: {len(record)}"
    yield f" MaxProcs: {sum(record.sizes.values())}"
    yield f" MaxPartitions: {len(record.sizes)}"
    yield from (f" Partition: {number} {name}" for number, name in enumerate(record.sizes, 1))


class _Numbered:
    """Names as numbers in the format: numbers stay as they are, words are numbered from 1 and explained in notes."""

    def __init__(self, what: str, names: Names) -> None:
        self._what, self._texts = what, names.texts
        self._plain = all((text.isascii() and text.isdecimal()) or not text for text in self._texts)

    def text(self, number: int) -> str:
        text = self._texts[number]
        return text if self._plain or not text else str(number + 1)

    def notes(self) -> Iterator[str]:
        if not self._plain:
            words = [(number, " ".join(text.split())) for number, text in enumerate(self._texts, 1) if text]
            yield from (f"{self._what} {number} is {text}" for number, text in words)


def _jobs(
    record: Record, begun: Duration, users: _Numbered, groups: _Numbered, queues: _Numbered
) -> Iterator[TraceJob]:
    columns = [record.job(name) for name in (
        "number", "submitted", "started", "ended", "processors", "requested", "user", "group", "queue", "killed",
    )]  # fmt: skip
    columns.append(_partitions(record))
    for row in numpy.lexsort((columns[0], columns[1])).tolist():
        number, submitted, started, ended, processors, requested, user, group, queue, killed, partition = (
            int(column[row]) for column in columns
        )
        ran = started != NEVER and ended != NEVER
        yield TraceJob(
            number=number,
            submitted=_rounded(begun + submitted),
            waited=Duration(_rounded(begun + started) - _rounded(begun + submitted)) if ran else None,
            runtime=Duration(_rounded(begun + ended) - _rounded(begun + started)) if ran else None,
            processors=processors,
            requested=Duration(requested),
            user=users.text(user),
            group=groups.text(group),
            queue=queues.text(queue),
            site=str(partition) if partition else "",
            ended=Ended.CANCELLED if not ran else Ended.FAILED if killed else Ended.COMPLETED,
        )


def _partitions(record: Record) -> Column:
    """Return the number of each job's cluster; 0 for a job on several clusters, or on none."""
    rows, clusters = record.place("row"), record.place("cluster") + 1
    lowest = numpy.full(len(record), len(record.sizes) + 1, dtype=numpy.int64)
    highest = numpy.zeros(len(record), dtype=numpy.int64)
    numpy.minimum.at(lowest, rows, clusters)
    numpy.maximum.at(highest, rows, clusters)
    return numpy.where(lowest == highest, highest, 0)


def _rounded(time: int) -> Duration:
    """Round to whole seconds, as the format requires, so that waits and run times add up."""
    return Duration(round(time / SECOND) * SECOND)
