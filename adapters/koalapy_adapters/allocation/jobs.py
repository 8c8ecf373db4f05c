"""Jobs on the nodes of a queue, as a queue without clock, process or file: which may start, where; their ends.

First come, first served; jobs of the lowest priority wait behind all others. No job passes the first one that waits for
processors. A suspended job has given up its processors, but not its nodes. Once it is resumed, it goes on before any
job is started on processors that it needs.
"""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

QUEUED, RUNNING, SUSPENDED, ENDED = "queued", "running", "suspended", "ended"
KILL_WAIT_S = 30.0  # between SIGTERM and SIGKILL, as Slurm's KillWait
REMEMBERED_S = 600.0  # for which an ended job is listed
MOST_REMEMBERED = 5000  # ended jobs that are listed; `find` reads the others from the journal

_TERM, _KILL, _SUSPEND, _RESUME = 15, 9, 20, 18  # signals of Linux, to the job's first process
_BEGUN = (RUNNING, SUSPENDED)
_KILLED = 128 + _KILL
_NEVER = float("inf")

Instant = float  # seconds since 1970


class Job(NamedTuple):
    """One job. `hosts`: its nodes and the processors on each, the first of which runs its first process.

    `suspended_at`: since when it is suspended; None if it is not. `suspended_s`: how long it was, before that, or the
    machine slept. `resuming`: it goes on as soon as its processors are free.
    """

    id: int
    name: str
    directory: str
    output: str
    command: List[str]
    processors: int
    walltime_s: int
    submitted_at: Instant
    per_node: int = 0  # processors on each node; 0: any
    lowest: bool = False
    state: str = QUEUED
    hosts: List[List[Any]] = []
    started_at: Optional[Instant] = None
    ended_at: Optional[Instant] = None
    exit_status: Optional[int] = None  # 128 + N for signal N
    ending: str = ""  # exited, killed, lost, walltime, cancelled
    reason: str = ""
    suspended_at: Optional[Instant] = None
    suspended_s: float = 0.0
    resuming: bool = False


class Signal(NamedTuple):
    """Send this signal to the job's processes on its first node."""

    job: Job
    number: int


class Queue:
    """All jobs, and the nodes with their processors. `ends_at`: when the allocation ends, if that is known."""

    def __init__(
        self, nodes: Dict[str, int], ends_at: Optional[Instant], jobs: Iterable[Job] = (), unknown_to: int = 0
    ) -> None:
        """`unknown_to`: the highest number that a job may have of which nothing is known any more."""
        self.nodes = dict(nodes)
        self.up: Dict[str, bool] = {}  # nodes that take jobs
        self.ends_at = ends_at
        self.jobs: Dict[int, Job] = {}
        self._queued: Dict[int, Job] = {}  # those of them that are
        self._begun: Dict[int, Job] = {}  # those of them that run or are suspended
        for job in jobs:
            self._keep(job)
        self.changed: List[Job] = []  # since they were written down last
        self.unknown_to = unknown_to
        self.memory: Optional[int] = None  # in bytes, of a machine whose own queue this is
        self._next_id = max(unknown_to, max(self.jobs, default=0)) + 1
        self._free = dict(nodes)
        self._stopping: Dict[int, Tuple[str, Instant]] = {}  # of running jobs: why, and when they are killed
        for job in self._begun.values():
            if job.state == RUNNING:
                self._take(job.hosts, 1)

    @property
    def total(self) -> int:
        return sum(self.nodes[name] for name in self.up)

    def free(self) -> Dict[str, int]:
        """The free processors of each node that takes jobs."""
        return {name: self._free[name] for name in self.nodes if name in self.up}

    def unreserved(self) -> Dict[str, int]:
        """The free processors of each node that takes jobs, without those that its suspended jobs need to go on."""
        left = self.free()
        for job in self._begun.values():
            if job.state == SUSPENDED:
                for name, processors in job.hosts:
                    if name in left:
                        left[name] = max(0, left[name] - processors)
        return left

    def waiting(self) -> List[Job]:
        return sorted(self._queued.values(), key=lambda job: (job.lowest, job.id))

    def running(self) -> List[Job]:
        """The jobs that have begun and not ended; some may be suspended."""
        return list(self._begun.values())

    def hindrance(self, job: Job, now: Instant) -> Tuple[str, str]:
        """Code and reason for which the job can never start here; empty if it can."""
        sizes = list(self.nodes.values())
        room = sum(size // job.per_node for size in sizes) * job.per_node if job.per_node else sum(sizes)
        if job.per_node and job.processors % job.per_node:
            return "too_many_processors", "%d processors are no multiple of %d a node" % (job.processors, job.per_node)
        if job.per_node:
            room = sum(1 for size in sizes if size >= job.per_node) * job.per_node
        if job.processors > room:
            return "too_many_processors", "it asks for %d processors, and the queue has %d" % (job.processors, room)
        if self.ends_at is not None and now + job.walltime_s > self.ends_at:
            return "allocation_too_short", "the allocation ends in %d s, before the job's walltime of %d s" % (
                max(0, self.ends_at - now),
                job.walltime_s,
            )
        return "", ""

    def resize(self, name: str, processors: int) -> None:
        """Set the processors of a node. What runs there goes on, even if it has more."""
        self._free[name] += processors - self.nodes[name]
        self.nodes[name] = processors

    def add(self, job: Job) -> Job:
        """Take a new job, and return it with its number."""
        job = job._replace(id=self._next_id)
        self._next_id += 1
        self._put(job)
        return job

    def start(self, now: Instant) -> List[Job]:
        """Start the jobs that fit now. Returns them with their nodes.

        A job gets processors that a suspended one needs to go on only if it does not fit without them; and no job does
        while a resumed one waits for its own.
        """
        started: List[Job] = []
        resuming = any(job.resuming for job in self._begun.values())
        for job in self.waiting():
            if self.hindrance(job, now)[0]:
                continue  # it is reported as stuck
            hosts = _placed(job, self.unreserved())
            if hosts is None and not resuming:
                hosts = _placed(job, self.free())
            if hosts is None:
                break
            self._take(hosts, 1)
            job = job._replace(state=RUNNING, hosts=hosts, started_at=now)
            self._put(job)
            started.append(job)
        return started

    def suspend(self, number: int, now: Instant) -> List[Signal]:
        """Stop a job's program and free its processors. Raises KeyError for a job that does not run."""
        job = self.jobs[number]
        if job.state not in _BEGUN or job.id in self._stopping:
            raise KeyError(number)
        if job.state == SUSPENDED:
            self._put(job._replace(resuming=False))
            return []
        self._take(job.hosts, -1)
        job = job._replace(state=SUSPENDED, suspended_at=now)
        self._put(job)
        return [Signal(job, _SUSPEND)]

    def resume(self, number: int) -> None:
        """Let a suspended job go on once its processors are free. Raises KeyError for one that has not begun."""
        job = self.jobs[number]
        if job.state not in _BEGUN:
            raise KeyError(number)
        if job.state == SUSPENDED:
            self._put(job._replace(resuming=True))

    def go_on(self, now: Instant) -> List[Signal]:
        """Let those resumed jobs go on whose processors are free on all their nodes, the one first suspended first."""
        signals = []
        resuming = [job for job in self._begun.values() if job.state == SUSPENDED and job.resuming]
        for job in sorted(resuming, key=lambda job: (job.suspended_at or 0, job.id)):
            if job.id in self._stopping or any(self._free[name] < processors for name, processors in job.hosts):
                continue
            self._take(job.hosts, 1)
            stood = max(0.0, now - (job.suspended_at or now))
            job = job._replace(state=RUNNING, suspended_at=None, suspended_s=job.suspended_s + stood, resuming=False)
            self._put(job)
            signals.append(Signal(job, _RESUME))
        return signals

    def cancel(self, number: int, now: Instant) -> List[Signal]:
        """End a job. An unknown or ended one is no error."""
        job = self.jobs.get(number)
        if job is None or job.state == ENDED:
            return []
        if job.state == QUEUED:
            self._end(job, now, "cancelled", None, "")
            return []
        return self._stop(job, "cancelled", now)

    def due(self, now: Instant) -> List[Signal]:
        """The signals to jobs whose walltime or whose wait for the end is over. Forgets what ended long ago."""
        signals: List[Signal] = []
        for job in self.running():
            stopping = self._stopping.get(job.id)
            if stopping is None and now >= self._due_of(job):
                signals += self._stop(job, "walltime", now)
            elif stopping is not None and now >= stopping[1]:
                self._stopping[job.id] = (stopping[0], now + KILL_WAIT_S)
                signals.append(Signal(job, _KILL))
        self._forget(now)
        return signals

    def slept(self, seconds: float) -> None:
        """Add no time to the walltime of running jobs for which the machine slept."""
        for job in self.running():
            if job.state == RUNNING:
                self._put(job._replace(suspended_s=job.suspended_s + seconds))

    def next_due(self) -> Optional[Instant]:
        """When to call `due`."""
        return min((self._due_of(job) for job in self.running()), default=None)

    def ended(self, number: int, exit_status: int, signalled: bool, now: Instant) -> None:
        """The first process of a job has ended, and nothing of it is left on that node."""
        job = self.jobs.get(number)
        if job is not None and job.state in _BEGUN:
            why = self._stopping.get(number, ("killed" if signalled else "exited", 0))[0]
            self._end(job, now, why, exit_status, "")

    def node_down(self, name: str) -> List[Job]:
        """Take no jobs on the node, until it is put back in `up`. Returns the jobs whose first process ran there."""
        self.up.pop(name, None)
        return [job for job in self.running() if job.hosts[0][0] == name]

    def lose(self, number: int, now: Instant, reason: str, sure: bool) -> None:
        """End a job without its exit status, unless it has ended: as killed if `sure`, when nothing of it can run.

        Else it is lost: something of it may run on.
        """
        job = self.jobs.get(number)
        if job is not None and job.state != ENDED:
            self._end(job, now, "killed" if sure else "lost", _KILLED if sure else None, reason)

    def lose_all(self, now: Instant, reason: str, sure: bool) -> None:
        """End every job: the allocation is over. A job that never began has surely nothing left."""
        for job in [*self.running(), *self.waiting()]:
            self.lose(job.id, now, reason, sure or job.state == QUEUED)

    def _stop(self, job: Job, why: str, now: Instant) -> List[Signal]:
        if job.id in self._stopping:
            return []
        self._stopping[job.id] = (why, now + KILL_WAIT_S)
        return [Signal(job, _TERM)]

    def _due_of(self, job: Job) -> Instant:
        if job.id in self._stopping:
            return self._stopping[job.id][1]
        if job.state == SUSPENDED:
            return _NEVER
        return (job.started_at or 0) + job.walltime_s + job.suspended_s

    def _end(self, job: Job, now: Instant, ending: str, exit_status: Optional[int], reason: str) -> None:
        if job.state == RUNNING:
            self._take(job.hosts, -1)
        self._stopping.pop(job.id, None)
        job = job._replace(suspended_at=None, resuming=False)
        self._put(job._replace(state=ENDED, ended_at=now, ending=ending, exit_status=exit_status, reason=reason))

    def _forget(self, now: Instant) -> None:
        ended = [job for job in self.jobs.values() if job.state == ENDED]
        surplus = len(ended) - MOST_REMEMBERED
        for index, job in enumerate(sorted(ended, key=lambda job: job.ended_at or 0)):
            if index < surplus or now >= (job.ended_at or 0) + REMEMBERED_S:
                del self.jobs[job.id]

    def _take(self, hosts: List[List[Any]], sign: int) -> None:
        for name, processors in hosts:
            if name in self._free:
                self._free[name] -= sign * processors

    def _put(self, job: Job) -> None:
        self._keep(job)
        self.changed.append(job)

    def _keep(self, job: Job) -> None:
        self.jobs[job.id] = job
        for group, states in ((self._queued, (QUEUED,)), (self._begun, _BEGUN)):
            if job.state in states:
                group[job.id] = job
            else:
                group.pop(job.id, None)


def job_of(data: Any) -> Job:
    """The job of a JSON object. Raises TypeError if it is none."""
    job = Job(**data)
    for name, value in job._asdict().items():
        if type(value) not in _TYPES[name]:
            raise TypeError("%s is %r" % (name, value))
    return job


_INSTANT = (int, float)
_TYPES: Dict[str, Tuple[type, ...]] = {
    **dict.fromkeys(("id", "processors", "walltime_s", "per_node"), (int,)),
    **dict.fromkeys(("name", "directory", "output", "state", "ending", "reason"), (str,)),
    **dict.fromkeys(("submitted_at", "suspended_s"), _INSTANT),
    **dict.fromkeys(("started_at", "ended_at", "suspended_at"), (*_INSTANT, type(None))),
    **dict.fromkeys(("command", "hosts"), (list,)),
    **dict.fromkeys(("lowest", "resuming"), (bool,)),
    "exit_status": (int, type(None)),
}


def _placed(job: Job, free: Dict[str, int]) -> Optional[List[List[Any]]]:
    """The nodes for a job: the fullest one that holds it whole, else as few as possible. None while it does not fit."""
    if job.per_node:
        fitting = sorted((name for name in free if free[name] >= job.per_node), key=lambda name: free[name])
        wanted = job.processors // job.per_node
        return [[name, job.per_node] for name in fitting[:wanted]] if len(fitting) >= wanted else None
    whole = [name for name in free if free[name] >= job.processors]
    if whole:
        return [[min(whole, key=lambda name: free[name]), job.processors]]
    hosts: List[List[Any]] = []
    left = job.processors
    for name in sorted(free, key=lambda name: -free[name]):
        taken = min(left, free[name])
        if taken > 0:
            hosts.append([name, taken])
            left -= taken
    return hosts if left == 0 else None
