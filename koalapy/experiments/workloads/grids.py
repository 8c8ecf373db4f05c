"""Analysis of a grid's log: the loads of its sites, and jobs that were submitted together (SC'07)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from koalapy.experiments.workloads.gwf import read_gwf
from koalapy.experiments.workloads.reading import TraceJob, counts_text
from koalapy.experiments.workloads.swf import read_swf
from koalapy.model.errors import RequestError
from koalapy.model.units import DAY, HOUR, SECOND, Duration

WITHIN = Duration(120 * SECOND)  # of the first job of a batch: section 5.2
SIZES = (2, 10, 50, 100, 500)  # the least number of jobs of each class of batches
_PARTITION = re.compile(r"\s*Partition:\s+(\S+)\s+(\S+)")
Counts = NDArray[numpy.int64]


class Log(NamedTuple):
    """All jobs of a log. `names`: of sites, by their identifiers in jobs. `left_out`: lines that have no valid job."""

    jobs: list[TraceJob]
    names: Mapping[str, str]
    left_out: str


def read_log(path: Path, lenient: bool) -> Log:
    """Return the jobs of a log: SWF by its name, else GWF.

    Raises RequestError if the log has an error, or no job.
    """
    reader = (read_swf if ".swf" in path.suffixes else read_gwf)(path, lenient)
    jobs = list(reader)
    if not jobs:
        raise RequestError("no_jobs", f"{path} has no job.", "Is it the right file?")
    matches = [match for line in reader.comments if (match := _PARTITION.match(line))]
    names = {match[1]: match[2] for match in matches}
    return Log(jobs, names, counts_text(reader.skipped))


# ---- imbalance


class SiteLoad(NamedTuple):
    """The load of a site. `load`: jobs per processor, or jobs if the sites' processors are unknown (0)."""

    site: str
    jobs: int
    processors: int
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """The imbalance of a grid (section 2.2). `overall`: the highest ratio of two sites' loads over the whole log.

    `temporary`: the highest ratio of two sites' arrivals in one hour, `hour`, in which both had some; 1 and 0 if there
    is no such hour. `daily` and `hourly`: arrivals of each site (rows, as in `sites`: the highest load first) by day
    and hour since the log's beginning. `others`: jobs of sites without a size.
    """

    sites: Sequence[SiteLoad]
    overall: float
    temporary: float
    hour: int
    daily: Counts
    hourly: Counts
    others: int


def imbalance(log: Log, sizes: Mapping[str, int]) -> Imbalance:
    """Return the imbalance of a log. `sizes`: processors by site; without any, loads are numbers of jobs.

    Raises RequestError for a site that the log does not have.
    """
    found = _arrivals(log)
    for name in sizes:
        if name not in found:
            known = ", ".join(list(found)[:8])
            raise RequestError("no_such_site", f"The log has no jobs of site {name}.", f"It has those of {known}, ….")
    kept = {name: times for name, times in found.items() if not sizes or name in sizes}
    loads = [
        SiteLoad(name, len(times), sizes.get(name, 0), len(times) / sizes.get(name, 1)) for name, times in kept.items()
    ]
    loads.sort(key=lambda each: (-each.load, each.site))
    begun = min(min(times) for times in found.values())
    end = max(max(times) for times in found.values())
    hourly = _counted([kept[each.site] for each in loads], begun, end, HOUR)
    hour, temporary = _temporary(hourly)
    return Imbalance(
        sites=loads,
        overall=loads[0].load / loads[-1].load,
        temporary=temporary,
        hour=hour,
        daily=_counted([kept[each.site] for each in loads], begun, end, DAY),
        hourly=hourly,
        others=len(log.jobs) - sum(each.jobs for each in loads),
    )


def _arrivals(log: Log) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for job in log.jobs:
        found.setdefault(log.names.get(job.site, job.site) or "unknown", []).append(job.submitted)
    return found


def _counted(arrivals: Sequence[Sequence[int]], begun: int, end: int, span: Duration) -> Counts:
    count = (end - begun) // span + 1
    return numpy.array([
        numpy.bincount((numpy.array(times, dtype=numpy.int64) - begun) // span, minlength=count) for times in arrivals
    ])  # fmt: skip


def _temporary(hourly: Counts) -> tuple[int, float]:
    least = numpy.where(hourly > 0, hourly, hourly.max() + 1).min(axis=0)
    ratios = hourly.max(axis=0) / least
    hour = int(ratios.argmax())
    return (hour, float(ratios[hour])) if ratios[hour] >= 1 else (0, 1.0)


# ---- batches


class BatchClass(NamedTuple):
    """Batches of at least `least` jobs, and fewer than those of the next class; shares are of all jobs and of all work.

    `spread`: the longest run time of a batch by its shortest, which counts as 1 s at least. It is given by the mean,
    the median and the mean of the decimal logarithm (orders of magnitude) over the batches.
    """

    least: int
    batches: int
    jobs: int
    share_of_jobs: float
    share_of_work: float
    spread_mean: float
    spread_median: float
    orders_of_magnitude: float


def batches(log: Log, within: Duration) -> list[BatchClass]:
    """Return the classes of batches: jobs of one user, submitted at most `within` after the first (section 5.2).

    Only jobs that ran count. Raises RequestError if the log does not give the users of its jobs.
    """
    ran = [job for job in log.jobs if job.ran]
    if not any(job.user for job in ran):
        raise RequestError("no_users", "The log does not name the users of its jobs.", "Take one that names its users.")
    work = sum(_work(job) for job in ran)
    found = list(_batches(ran, within))
    limits = [*SIZES[1:], len(ran) + 1]
    return [
        _class([batch for batch in found if least <= len(batch) < limit], least, len(ran), work)
        for least, limit in zip(SIZES, limits, strict=True)
    ]


def _batches(ran: Sequence[TraceJob], within: Duration) -> Iterator[list[TraceJob]]:
    by_user: dict[str, list[TraceJob]] = {}
    for job in sorted(ran, key=lambda each: (each.submitted, each.number)):
        batch = by_user.get(job.user)
        if batch is not None and job.submitted - batch[0].submitted <= within:
            batch.append(job)
            continue
        if batch is not None:
            yield batch
        by_user[job.user] = [job]
    yield from by_user.values()


def _class(found: Sequence[Sequence[TraceJob]], least: int, jobs: int, work: int) -> BatchClass:
    spreads = numpy.array([
        max(_seconds(job) for job in batch) / min(_seconds(job) for job in batch) for batch in found
    ])  # fmt: skip
    return BatchClass(
        least=least,
        batches=len(found),
        jobs=sum(len(batch) for batch in found),
        share_of_jobs=sum(len(batch) for batch in found) / jobs,
        share_of_work=sum(_work(job) for batch in found for job in batch) / max(work, 1),
        spread_mean=float(spreads.mean()) if found else 0.0,
        spread_median=float(numpy.median(spreads)) if found else 0.0,
        orders_of_magnitude=float(numpy.log10(spreads).mean()) if found else 0.0,
    )


def _work(job: TraceJob) -> int:
    return job.processors * (job.runtime or 0)


def _seconds(job: TraceJob) -> float:
    return max(1.0, (job.runtime or 0) / SECOND)
