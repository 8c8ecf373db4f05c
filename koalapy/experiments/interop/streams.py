"""A day's jobs for every cluster at a given load, from the Lublin-Feitelson model as the SC'07 paper uses it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy

from koalapy.experiments.interop.system import System
from koalapy.experiments.workloads.lublin import BUCKETS, UNTYPED, arrivals, draw_gaps, draw_runtimes, draw_sizes
from koalapy.model.units import DAY, SECOND, Duration, Instant

SERIAL = 0.95  # section 5.3; the rest is split evenly between powers of two and other sizes
USERS = 20  # of each cluster: DAS has 300 on 5 clusters, Grid'5000 over 600 on 15
_BLOCK = 4096


class GridJob(NamedTuple):
    """A rigid job. `home`: the cluster where it is submitted. `user`: unique over the clusters."""

    arrived: Instant
    number: int
    home: str
    user: str
    processors: int
    runtime: Duration


def draw_set(system: System, loads: Mapping[str, float], seed: int, number: int, days: int = 1) -> list[GridJob]:
    """Return one set of streams, in order of arrival.

    `loads`: for each grid; 1.0 is the use of all its processors all the time. The same seed and number give the same
    jobs at every load, closer together or farther apart.
    """
    jobs = [
        job
        for index, cluster in enumerate(system.clusters)
        for job in _stream(system, cluster, loads[system.grids[cluster]], [seed, number, index], days)
    ]
    jobs.sort()
    return [job._replace(number=place) for place, job in enumerate(jobs, 1)]


def _stream(system: System, cluster: str, load: float, seed: list[int], days: int) -> list[GridJob]:
    """Return as many jobs as come nearest to the wanted work; the model's gaps are scaled to fill the days."""
    processors = system.processors[cluster]
    model = replace(UNTYPED.for_size(processors), serial=SERIAL, power_of_two=(1 - SERIAL) / 2)
    rng = numpy.random.default_rng(seed)
    wanted = load * processors * days * DAY / SECOND
    sizes, runtimes, gaps = (numpy.empty(0, dtype) for dtype in (numpy.int64, numpy.int64, numpy.float64))
    while (sizes * runtimes).sum() <= wanted:
        more = draw_sizes(model, processors, _BLOCK, rng)
        sizes = numpy.concatenate((sizes, more))
        runtimes = numpy.concatenate((runtimes, draw_runtimes(model, more, rng)))
        gaps = numpy.concatenate((gaps, draw_gaps(model, _BLOCK, rng)))
    work = numpy.cumsum(sizes * runtimes)
    count = int(numpy.abs(work - wanted).argmin()) + 1
    points = numpy.cumsum(gaps)
    times = arrivals(model, points[:count] * (BUCKETS * days / points[count]))
    users = rng.integers(USERS, size=count)
    return [
        GridJob(Instant(at * SECOND), 0, cluster, f"{cluster}-{user}", size, Duration(runtime * SECOND))
        for at, size, runtime, user in zip(
            times.tolist(), sizes[:count].tolist(), runtimes[:count].tolist(), users.tolist(), strict=True
        )
    ]
