"""The jobs of other users beside which a replay runs: for each cluster a segment of a log, scaled to a load."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from koalapy.experiments.replay.cluster import LocalJob
from koalapy.experiments.replay.jobs import Jobs
from koalapy.experiments.replay.rules import NO_GRACE, Grace, ReplayRules
from koalapy.model.errors import RequestError
from koalapy.model.units import DAY, SECOND, Duration, Instant
from koalapy.world.agenda import BEGINNING

LEAST_WARM_UP = DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundRules:
    """The log of the local jobs, and how it is read. `load`: of each cluster, 1.0 is all of it; None: as logged.

    `seed`: of the place in the log at which each cluster's jobs begin. `lenient`, `grace`: as in ReplayRules.
    """

    log: Path
    load: float | None = None
    seed: int = 1
    lenient: bool = False
    grace: Grace = NO_GRACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The local jobs of each cluster, by name: endless, in order of submission, from `begin` on.

    `counted_until`: the last submission of a local job whose wait counts; the first is at the replay's beginning.
    `patience`: how long after that the replay goes on for jobs that have not ended.
    """

    jobs: Mapping[str, Iterator[LocalJob]]
    begin: Instant
    counted_until: Instant
    patience: Duration


class LoggedJob(NamedTuple):
    submitted: Duration
    processors: int
    runtime: Duration
    walltime: Duration


class BackgroundLog(NamedTuple):
    """The jobs of a log that ran, in order of submission, and the number of lines and jobs left out, by kind."""

    jobs: tuple[LoggedJob, ...]
    left_out: Counter[str]


@cache
def read_background(path: Path, lenient: bool, grace: Grace) -> BackgroundLog:
    """Read a log. A job that ran beyond its walltime is ended there. Raises RequestError."""
    found = Jobs(path, ReplayRules(sizes={}, lenient=lenient, grace=grace))
    jobs = tuple(
        [
            LoggedJob(each.submitted, each.processors, Duration(min(each.runtime, each.walltime)), each.walltime)
            for each in found
        ]
    )
    return BackgroundLog(jobs, found.left_out)


def work_beyond(jobs: Sequence[LoggedJob], size: int) -> float:
    """Return the part of the jobs' processor time that is of jobs larger than a cluster of this size."""
    work = sum(each.processors * each.runtime for each in jobs)
    return sum(each.processors * each.runtime for each in jobs if each.processors > size) / work if work else 0.0


def background(rules: BackgroundRules, sizes: Mapping[str, int], length: Duration) -> Background:
    """Draw the local jobs for a replay that submits jobs, and counts local ones, for `length` from its beginning on.

    They begin a tenth of that time earlier, at least a day, so that the clusters are busy. Raises RequestError if the
    log is wrong, or has no job for a cluster.
    """
    log = read_background(rules.log, rules.lenient, rules.grace).jobs
    begin = Instant(BEGINNING - max(length // 10, LEAST_WARM_UP))
    span = Duration(BEGINNING + length - begin)
    drawn: dict[str, Iterator[LocalJob]] = {}
    for name, size in sizes.items():
        fitting = [each for each in log if each.processors <= size]
        if not any(each.runtime for each in fitting):
            message = f"{rules.log} has no job for {name}: none of up to {size:,} processors ran."
            raise RequestError("no_jobs", message, "Name another log with --background, or larger clusters.")
        first = Random(f"{rules.seed} {name}").randrange(len(fitting))
        stretch = 1.0 if rules.load is None else _stretch(fitting, first, rules.load * size * span, span)
        drawn[name] = _local_jobs(fitting, first, begin, stretch)
    last = Instant(BEGINNING + length)
    return Background(jobs=drawn, begin=begin, counted_until=last, patience=Duration(2 * length + 30 * DAY))


def _stretch(jobs: Sequence[LoggedJob], first: int, work: float, span: Duration) -> float:
    """Return by what times are multiplied so that jobs of so much work, from the first one on, fill the span."""
    total, lasted = 0, 0
    for number in count(first):
        lasted = _submitted(jobs, number) - jobs[first].submitted
        if total >= work and lasted:
            break
        job = jobs[number % len(jobs)]
        total += job.processors * job.runtime
    return span / lasted


def _local_jobs(jobs: Sequence[LoggedJob], first: int, begin: Instant, stretch: float) -> Iterator[LocalJob]:
    """Yield the jobs from the first one on; after the last one of the log follow those of its beginning."""
    for number in count(first):
        job = jobs[number % len(jobs)]
        after = round((_submitted(jobs, number) - jobs[first].submitted) * stretch)
        yield LocalJob(
            processors=job.processors, walltime=job.walltime, submitted=Instant(begin + after), runtime=job.runtime
        )


def _submitted(jobs: Sequence[LoggedJob], number: int) -> Duration:
    """Return when a job was submitted. `number` counts on from the log's first job, through each repetition."""
    lap, place = divmod(number, len(jobs))
    lasts = jobs[-1].submitted - jobs[0].submitted
    return Duration(jobs[place].submitted + lap * (lasts + max(SECOND, lasts // len(jobs))))
