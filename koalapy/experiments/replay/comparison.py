"""The measures by which replays are compared: waits, slowdown, utilisation, makespan, backlog."""

from array import array
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from koalapy.experiments.replay.record import NEVER, Column, Record
from koalapy.model.units import HOUR, SECOND

BOUND = 10 * SECOND  # of the bounded slowdown: shorter jobs count as this long
SMALL, MEDIUM = 64, 8  # a small job has up to 1/64 of the largest cluster's processors, a medium one up to 1/8


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The measures of one replay. Waits and slowdown concern jobs that have run, also those killed at their walltime.

    `utilisation`: the part of all processors that ran jobs, over the makespan: from the trace's beginning to the last
    end. `backlog` is in processors that are waited for, on average over the makespan and at most. `small`, `medium` and
    `large`: the jobs that have run by their size, which is a part of the largest cluster (see `SMALL`, `MEDIUM`).
    """

    jobs: int
    ran: int
    killed: int
    wait_mean_s: float
    wait_median_s: float
    wait_95_s: float
    bounded_slowdown: float
    utilisation: float
    makespan_s: float
    backlog_mean: float
    backlog_most: int
    small_ran: int
    small_wait_mean_s: float
    medium_ran: int
    medium_wait_mean_s: float
    large_ran: int
    large_wait_mean_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyFigures:
    """The measures of a replay beside local jobs. Hours are processor-hours.

    `failed`: the jobs that never started. `held`: by components at their barriers, also of those jobs; `used`: by the
    programs. `local_jobs`: those submitted between the trace's first job and its last; the waits are theirs.
    """

    failed: int
    held_hours: float
    used_hours: float
    local_jobs: int
    local_never_started: int
    local_wait_mean_s: float
    local_wait_median_s: float
    local_wait_95_s: float


def busy_figures(record: Record, local_waits: "array[int]", local_waiting: int) -> BusyFigures:
    """Return the measures of a replay beside local jobs. `local_waits`, `local_waiting`: see Replay."""
    started, ended = record.job("started"), record.job("ended")
    ran = (started != NEVER) & (ended != NEVER)
    waits = numpy.array(local_waits, dtype=numpy.int64)
    return BusyFigures(
        failed=int((~ran).sum()),
        held_hours=float(record.job("held").sum()) / HOUR,
        used_hours=float(((ended - started) * record.job("processors"))[ran].sum()) / HOUR,
        local_jobs=len(waits) + local_waiting,
        local_never_started=local_waiting,
        local_wait_mean_s=_mean(waits) / SECOND,
        local_wait_median_s=_quantile(waits, 0.5) / SECOND,
        local_wait_95_s=_quantile(waits, 0.95) / SECOND,
    )


def figures(record: Record) -> Figures:
    """Return the measures of a replay; means are 0 if no job has run."""
    submitted, started, ended = (record.job(name) for name in ("submitted", "started", "ended"))
    processors = record.job("processors")
    ran = (started != NEVER) & (ended != NEVER)
    waits, runtimes = (started - submitted)[ran], (ended - started)[ran]
    makespan = int(max(ended.max(initial=0), submitted.max(initial=0)))
    slowdowns = numpy.maximum(1.0, (waits + runtimes) / numpy.maximum(runtimes, BOUND))
    times, waiting = backlog(record)
    total = makespan * sum(record.sizes.values())
    small, medium, large = _by_size(waits, processors[ran], max(record.sizes.values(), default=0))
    return Figures(
        jobs=len(record),
        ran=int(ran.sum()),
        killed=int(record.job("killed").sum()),
        wait_mean_s=_mean(waits) / SECOND,
        wait_median_s=_quantile(waits, 0.5) / SECOND,
        wait_95_s=_quantile(waits, 0.95) / SECOND,
        bounded_slowdown=_mean(slowdowns),
        utilisation=float((runtimes * processors[ran]).sum()) / total if total else 0.0,
        makespan_s=makespan / SECOND,
        backlog_mean=float((numpy.diff(times) * waiting[:-1]).sum()) / makespan if makespan else 0.0,
        backlog_most=int(waiting.max(initial=0)),
        small_ran=len(small),
        small_wait_mean_s=_mean(small) / SECOND,
        medium_ran=len(medium),
        medium_wait_mean_s=_mean(medium) / SECOND,
        large_ran=len(large),
        large_wait_mean_s=_mean(large) / SECOND,
    )


def backlog(record: Record) -> tuple[Column, Column]:
    """Return (times, processors that are waited for from each time on). Jobs that never start wait to the end."""
    started, processors = record.job("started"), record.job("processors")
    end = record.job("ended").max(initial=0)
    left = numpy.where(started == NEVER, max(end, record.job("submitted").max(initial=0)), started)
    times, where = numpy.unique(numpy.concatenate((record.job("submitted"), left)), return_inverse=True)
    changes = numpy.zeros(len(times), dtype=numpy.int64)
    numpy.add.at(changes, where, numpy.concatenate((processors, -processors)))
    return times, numpy.cumsum(changes)


def _by_size(waits: Column, processors: Column, largest: int) -> tuple[Column, Column, Column]:
    """Return the waits of small, medium and large jobs."""
    small, medium = processors * SMALL <= largest, processors * MEDIUM <= largest
    return waits[small], waits[medium & ~small], waits[~medium]


def _mean(values: NDArray[numpy.float64] | Column) -> float:
    return float(values.mean()) if len(values) else 0.0


def _quantile(values: Column, part: float) -> float:
    return float(numpy.quantile(values, part)) if len(values) else 0.0
