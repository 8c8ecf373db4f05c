"""A pilot: a job that holds processors for other jobs, and is a cluster of its own while it runs."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Launch, PilotTerms, Request, WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration

_PREFIX = "pilot~"  # no cluster of a grid file has a name with a tilde
SHORTEST_WALLTIME = Duration(30 * SECOND)
_MARGIN = Duration(5 * SECOND)  # so that the program ends before anything ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotRule:
    """The pilots that koalapy keeps on one cluster.

    `least`: how many there always are. `most`: how many there may be, those in a batch queue too. `size`: processors of
    each, on `nodes` nodes; None: as the batch system divides them. `waiting`: how long a job must have waited that a
    further one could run. `walltime`, `idle`: of each pilot.
    """

    least: int
    most: int
    size: int
    nodes: int | None
    walltime: Duration
    idle: Duration
    waiting: Duration


class PilotState(StrEnum):
    """The state of a pilot. The tables of its job and attempt govern the changes (`states.py`)."""

    BINDING = "binding"  # its job waits, or is in a batch queue
    BOUND = "bound"  # it is a cluster
    CLOSING = "closing"  # its batch job is being ended
    OVER = "over"
    FAILED = "failed"  # it ended before its time, or never began


class PilotCluster(NamedTuple):
    """A pilot as a cluster. `job`: the one that holds its processors, on the cluster `around` it."""

    job: JobId
    around: str
    terms: PilotTerms

    @property
    def name(self) -> str:
        return pilot_cluster(self.job)


def pilot_cluster(job: JobId) -> str:
    """Return the name of the cluster that the pilot's job is."""
    return f"{_PREFIX}{job}"


def cluster_of_pilot(job: Job) -> PilotCluster:
    """Return the cluster that a job is, which must be a pilot."""
    assert job.request.pilot is not None
    return PilotCluster(job.id, job.request.components[0].cluster or "", job.request.pilot)


def job_of_pilot(cluster: str) -> JobId | None:
    """Return the job that is this cluster; None for a cluster that is no pilot."""
    number = cluster.removeprefix(_PREFIX)
    return JobId(int(number)) if number != cluster and number.isascii() and number.isdecimal() else None


def pilot_request(component: ComponentRequest, terms: PilotTerms) -> Request:
    """Return the request of a pilot with the processors, cluster, walltime and options of this component.

    Its program waits on the first node until shortly before its walltime. It is never tried again, since the jobs on it
    would be elsewhere by then.
    """
    seconds = (max(SHORTEST_WALLTIME, component.walltime) - _MARGIN) // SECOND
    held = replace(component, executable="sleep", arguments=(str(seconds),), launch=Launch.ONCE)
    return Request(name="pilot", components=(held,), when_busy=WhenBusy.QUEUE, retry_on=(), pilot=terms)


def pilot_state(job: Job) -> PilotState:
    """Return the state of a pilot."""
    if job.state is JobState.STOPPING:
        return PilotState.CLOSING
    if job.state is JobState.FAILED:
        return PilotState.FAILED
    if job.state.final:
        return PilotState.OVER
    return PilotState.BOUND if is_bound(job) else PilotState.BINDING


def is_bound(job: Job) -> bool:
    """Return whether the pilot's program runs, so that it is a cluster."""
    return job.state is JobState.RUNNING and any(each.state.released for each in job.present)
