"""A pilot: one batch job that holds processors for other jobs, which are a cluster of their own while it runs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Launch, PilotOptions, Request, WhenBusy
from koalapy.model.states import JobState, PilotState
from koalapy.model.units import SECOND, Duration, Instant

_PREFIX = "pilot~"  # no cluster of a grid file has a name with a tilde
SHORTEST_WALLTIME = Duration(30 * SECOND)
_MARGIN = Duration(5 * SECOND)  # so that the program ends before anything ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRule:
    """The pilots that koalapy keeps on one cluster.

    `least`: how many there always are. `most`: how many there may be, those in a batch queue too. `waiting`: how long a
    job must have waited that a further one could run. `request`: of each pilot, without its cluster. `owner`: to whom
    its job belongs.
    """

    least: int
    most: int
    waiting: Duration
    request: Request
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The record of a pilot that has not ended. `id`: of the job that holds its processors, on `host_cluster`.

    `idle_since`: since when nothing is on it, though jobs could be placed there at first. `unusable_since`: since when
    nothing is on it because none could. At most one of them is set, and only while it is a cluster. `used`: something
    of a job was there. `failed`: its job has failed. `fills`: set for a filler, which has the processors of this
    attempt of a job that is held at its barrier; it serves sweeps alone, and ends before the job is released.
    `closing_since`: of a filler.
    """

    id: JobId
    host_cluster: str
    options: PilotOptions
    state: PilotState = PilotState.BINDING
    idle_since: Instant | None = None
    unusable_since: Instant | None = None
    used: bool = False
    failed: bool = False
    fills: AttemptId | None = None
    closing_since: Instant | None = None

    @property
    def name(self) -> str:
        """The name of its cluster."""
        return pilot_cluster(self.id)


def pilot_cluster(job: JobId) -> str:
    """Return the name of the cluster that the pilot's job is."""
    return f"{_PREFIX}{job}"


def first_record(job: Job) -> Pilot | None:
    """Return the first record of the pilot that a job is; None for any other job, and for one that holds a lease."""
    options = job.request.pilot
    if options is None or options.lent:
        return None
    return Pilot(id=job.id, host_cluster=job.request.components[0].cluster or "", options=options)


def job_of_pilot(cluster: str) -> JobId | None:
    """Return the job that is this cluster; None for a cluster that is no pilot."""
    number = cluster.removeprefix(_PREFIX)
    return JobId(int(number)) if number != cluster and number.isascii() and number.isdecimal() else None


def pilot_request(component: ComponentRequest, options: PilotOptions) -> Request:
    """Return the request of a pilot with the processors, cluster, walltime and options of this component.

    Its program waits on the first node until shortly before its walltime. It is never tried again, since the jobs on it
    would be elsewhere by then.
    """
    seconds = (max(SHORTEST_WALLTIME, component.walltime) - _MARGIN) // SECOND
    held = replace(component, executable="sleep", arguments=(str(seconds),), launch=Launch.ONCE)
    return Request(name="pilot", components=(held,), when_busy=WhenBusy.QUEUE, retry_on=(), pilot=options)


def is_bound(job: Job) -> bool:
    """Return whether the pilot's program runs, so that it is a cluster."""
    return job.state is JobState.RUNNING and any(each.state.released for each in job.present)


def pilots_at_start(pilots: Iterable[Pilot]) -> list[Pilot]:
    """Return the pilots of a store that must be clusters from koalad's start on.

    Their programs run or have run: one that is closing must leave the grid, since commands to it may be unconfirmed.
    """
    return [each for each in pilots if each.state is not PilotState.BINDING]
