"""Jobs and slots of the local queue, as values: which jobs may start, and what became of those whose keeper died."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

QUEUED, RUNNING, ENDED = "queued", "running", "ended"

Instant = int  # microseconds since 1970


class Job(NamedTuple):
    """One job. `keeper` and `keeper_start` (ticks since boot) identify its keeper process while it runs."""

    id: int
    name: str
    directory: str
    output: str
    processors: int
    walltime_s: int
    submitted_at: Instant
    state: str = QUEUED
    keeper: int = 0
    keeper_start: int = 0
    started_at: Optional[Instant] = None
    ended_at: Optional[Instant] = None
    exit_status: Optional[int] = None  # 128 + N for signal N
    ending: str = ""  # exited, killed, lost, walltime, cancelled
    reason: str = ""
    lowest: bool = False  # waits behind all jobs that are not


class State(NamedTuple):
    """The whole queue: jobs by id, with those that have ended lately. `boot` identifies the boot of the machine."""

    slots: int
    boot: str
    next_id: int = 1
    jobs: Dict[int, Job] = {}


def used(state: State) -> int:
    return sum(job.processors for job in state.jobs.values() if job.state == RUNNING)


def startable(state: State) -> List[Job]:
    """The queued jobs that fit now, first come first served, those of the lowest priority behind all others.

    No job passes the first one that must wait. A job larger than the whole machine (its slots were lowered) is skipped.
    """
    idle = state.slots - used(state)
    found = []
    for job in sorted(in_order(state, QUEUED), key=lambda job: job.lowest):
        if job.processors > state.slots:
            continue
        if job.processors > idle:
            break
        idle -= job.processors
        found.append(job)
    return found


def in_order(state: State, which: str) -> List[Job]:
    return [job for _, job in sorted(state.jobs.items()) if job.state == which]


def ended(job: Job, now: Instant, ending: str, exit_status: Optional[int] = None, reason: str = "") -> Job:
    return job._replace(state=ENDED, ended_at=now, ending=ending, exit_status=exit_status, reason=reason)


def with_job(state: State, job: Job) -> State:
    jobs = dict(state.jobs)
    jobs[job.id] = job
    return state._replace(jobs=jobs)


def orphans(state: State, boot: str, start_of: Callable[[int], Optional[int]]) -> List[Job]:
    """Running jobs whose keeper no longer lives. Nobody can know how they ended."""
    return [
        job
        for job in in_order(state, RUNNING)
        if state.boot != boot or not job.keeper or start_of(job.keeper) != job.keeper_start
    ]


def without_old(state: State, before: Instant) -> Tuple[State, List[Job]]:
    """The state without jobs that ended before that instant, and those jobs."""
    old = [job for job in in_order(state, ENDED) if (job.ended_at or 0) < before]
    gone = {job.id for job in old}
    kept = {number: job for number, job in state.jobs.items() if number not in gone}
    return state._replace(jobs=kept), old


def to_json(state: State) -> Dict[str, Any]:
    data = dict(state._asdict())
    data["jobs"] = [dict(job._asdict()) for _, job in sorted(state.jobs.items())]
    return data


def from_json(data: Any) -> State:
    """The state of a JSON object. Raises TypeError or KeyError if it is none."""
    jobs = [job_of(job) for job in data["jobs"]]
    state = State(data["slots"], data["boot"], data["next_id"], {job.id: job for job in jobs})
    if type(state.slots) is not int or type(state.next_id) is not int or type(state.boot) is not str:
        raise TypeError("a field of the state has another type")
    return state


def job_of(data: Any) -> Job:
    """The job of a JSON object. Raises TypeError if it is none."""
    job = Job(**data)
    for name, value in job._asdict().items():
        if type(value) not in _TYPES[name]:
            raise TypeError("%s is %r" % (name, value))
    return job


_NONE = type(None)
_TYPES: Dict[str, Tuple[type, ...]] = {
    **dict.fromkeys(("id", "processors", "walltime_s", "submitted_at", "keeper", "keeper_start"), (int,)),
    **dict.fromkeys(("name", "directory", "output", "state", "ending", "reason"), (str,)),
    **dict.fromkeys(("started_at", "ended_at", "exit_status"), (int, _NONE)),
    "lowest": (bool,),
}
