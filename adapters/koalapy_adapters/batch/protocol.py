"""The protocol of a dialect: pure functions with strings in and values out. A dialect never runs a command.

A dialect is a module that is registered under the entry point `koalapy.batch_systems`. It imports only the standard
library and `koalapy_adapters`, and runs on Python 3.6, because it is packed into the pushed file.
"""

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from koalapy_adapters.errors import Result

Argv = List[str]

# The values of `JobStatus.state`. A job that the batch system does not list is in no table: it is unknown, not ended.
QUEUED, HELD, RUNNING, SUSPENDED, ENDED = "queued", "held", "running", "suspended", "ended"

# The values of `JobStatus.ending` of a job that ended.
EXITED, KILLED, LOST, WALLTIME, MEMORY, CANCELLED, PREEMPTED = (
    "exited",
    "killed",
    "lost",
    "walltime",
    "memory",
    "cancelled",
    "preempted",
)
NOT_STARTED = "not_started"  # the batch system tried, and could not: nothing of it ran


class BatchSettings(NamedTuple):
    """The settings of the grid file with which a dialect uses a cluster's batch system. `user`: the login account."""

    user: str
    queue: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    reservation: Optional[str] = None
    constraint: Optional[str] = None
    parallel_environment: Optional[str] = None
    processors_per_node: Optional[int] = None
    exclusive: bool = False
    native: List[str] = []
    power_up: bool = True  # nodes that are powered down count as idle; Slurm only
    slots: Optional[int] = None  # local only
    directory: str = ""  # the shared directory
    command: List[str] = []  # argv that starts the pushed file on the head node
    instance: str = ""  # the store that asks


class BatchJob(NamedTuple):
    """One attempt as a batch job: the settings of the grid file, merged with the request of the attempt's owner."""

    tag: str
    directory: str  # absolute, the attempt's own, in the shared directory
    command: List[str]  # the wrapper's argv
    processors: int
    walltime_s: int
    processors_per_node: Optional[int] = None
    memory_per_processor: Optional[int] = None  # bytes
    gpus: int = 0
    exclusive: bool = False
    queue: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    reservation: Optional[str] = None
    constraint: Optional[str] = None
    parallel_environment: Optional[str] = None
    native: List[str] = []
    lowest: bool = False  # behind everybody's jobs: with the lowest priority that a user may give
    avoid: List[str] = []  # hosts that it is not to run on, by the names that the batch system has for them

    @property
    def output(self) -> str:
        """Path of the file for the wrapper's own standard output and standard error."""
        return self.directory + "/batch.out"


class JobStatus(NamedTuple):
    """The batch status of one job. `stuck` is the code of a pending reason that cannot clear, or ""."""

    batch_id: str
    name: str
    state: str
    reason: str = ""
    stuck: str = ""
    exit_status: Optional[int] = None  # 128 + N for signal N
    ending: str = ""
    restarts: int = 0


class JobSpan(NamedTuple):
    """An ended job as it is accounted for: its start and end in seconds since 1970, and its processors."""

    batch_id: str
    tag: str
    began_s: float
    ended_s: float
    processors: int


class Description(NamedTuple):
    """The version of a batch system, and the features that its dialect has found."""

    version: str
    features: List[str] = []


class Capacity(NamedTuple):
    """The capacity of a cluster in processors, each counted once.

    koalapy.model.cluster.ClusterState explains each field; `waiting_demand.wanted` computes `wanted_local`.
    """

    total: int
    idle: int
    ours: int
    others: int
    waiting_local: int
    allocated: List[str]  # tags of ours that hold processors
    pending: List[str]  # tags of ours that wait
    free_nodes: List[List[int]]  # [free processors, how many such nodes]
    statuses: Dict[str, JobStatus]  # of every job of this user that bears a tag, by batch id
    unit: str = "core"
    largest: Optional[int] = None  # what one job could ever get, and could get now; None: all of it
    largest_idle: Optional[int] = None
    wanted_local: int = 0
    others_hidden: bool = False  # other people's jobs are not shown: nobody knows whether one waits
    whole_nodes: List[List[int]] = []  # [processors, how many] of the nodes that are idle altogether
    memory: Optional[int] = None  # bytes of the node with the least memory; None if no node's is known
    walltime_limit_s: Optional[int] = None  # the longest walltime that the queue takes; None if no limit is known


class Host(NamedTuple):
    """A node of an allocation: the name by which the batch system's launcher knows it, and its processors."""

    name: str
    processors: int


class Stopped(NamedTuple):
    """Why the batch system stopped a job: `ending` is one that it decides, and `words` is its own message.

    Inside a job only MEMORY and WALLTIME are known.
    """

    ending: str
    words: str


class Launch(NamedTuple):
    """One command that starts one node agent on each of `hosts`. The agents read the command's standard input.

    It is started in a directory that these nodes share: the attempt's, or that of an allocation's queue.
    """

    argv: Argv
    hosts: List[str]


class Surrounding(NamedTuple):
    """A batch job that this process uses as a cluster: the environment of its first process, and its end if known."""

    environment: Dict[str, str]
    ends_s: Optional[float]  # seconds since 1970, by the batch system's clock


class Chosen(NamedTuple):
    """A parallel environment. `controls`: it has `control_slaves`, so that the end of its jobs is reported later."""

    environment: str
    controls: bool


class Dialect:
    """The protocol, for type checkers: a dialect is a module with these functions, never a subclass.

    Every `parse_*` raises BatchError if the command failed or its answer cannot be read. A dialect may also have:

    - `explain_argv(batch_ids)`, `parse_explain(result)`: why jobs are stuck, by batch id, if its lists omit the reason.
    - `forget_argv(batch_ids)`: drops jobs from its lists although no daemon answers for them; see `parse_cancel`.
    - `cache_seconds(result)`: for how many seconds the answer of a capacity command stays good.
    - `JOB_LIST_QUERY`: the number, from 0, of the capacity command that lists all jobs. A change in its answer makes
      the answers of the other commands old within seconds.
    - `account_argvs(cluster, batch_ids, since_s)`, `parse_account(result)`: a JobSpan for each job that has ended.
      Each command runs only if the one before it did not cover all batch ids.
    - `queue_fingerprint_argv(cluster)`, `parse_queue_fingerprint(cluster, result)`: strings that change when a job of
      others begins or ceases to wait for processors, and only then.
    - `launchers_environment(cluster, job)`: a generator of commands that is sent each Result. It returns the best
      parallel environment for a Launcher's job (Chosen), or None to keep the job's own.
    - `drmaa`: the module on submission by DRMAA.
    - `surrounding_argv(environment)`, `parse_surrounding(environment, result)`: of a running batch job with the batch
      id in `environment`, what `hosts` and `launch` need, and when it ends (Surrounding). It raises ClusterError for a
      job that has ended.
    - `HAS_QUEUE_SERVER`: true if its commands are requests to a server of koalapy (`kcm/execution/queue_requests.py`).
      Then there are `DIRECTORY`, the place of its queues in the shared directory, and `own_slots(cluster)`.
    - `FREES_WHEN_SUSPENDED`: true if another job can have the processors of a suspended one. Then there are
      `suspend_argv(batch_id)` and `resume_argv(batch_id)`, for the job's owner, and `parse_suspend(result)` of either.
      A job that is suspended or runs already is no error; one that waits or has ended is.
    - `why_stopped(environment)`: inside a job that was stopped by a signal, the reason (Stopped), or None if unknown.
    """

    NAME: str

    describe_argv: Callable[[BatchSettings], Argv]
    parse_describe: Callable[[Result], Description]

    script: Callable[[BatchJob], str]  # the whole batch script, options as directives
    submit_argv: Callable[[BatchJob, str], Argv]  # job, path of its script
    parse_submit: Callable[[Result], str]  # the batch id

    status_argv: Callable[[Sequence[str]], Argv]  # of these batch ids, in one call
    parse_status: Callable[[Result], Dict[str, JobStatus]]  # without those no longer listed

    find_argv: Callable[[BatchSettings, str], Argv]  # by tag
    parse_find: Callable[[Result, str], Optional[JobStatus]]  # None: the queue does not list it

    # tag, batch id ("" if unknown); None: no accounting
    history_argv: Callable[[BatchSettings, str, str], Optional[Argv]]
    parse_history: Callable[[Result, str], Optional[JobStatus]]  # tag; None: the accounting does not know it (yet)

    cancel_argv: Callable[[Sequence[str]], Argv]
    parse_cancel: Callable[[Result], None]  # an unknown or ended job is no error

    hold_argv: Callable[[Sequence[str]], Optional[Argv]]  # waiting jobs; None: it cannot hold any
    release_argv: Callable[[Sequence[str]], Optional[Argv]]
    parse_hold: Callable[[Result], None]  # of either; a job that does not wait, or not any more, is an error

    capacity_argvs: Callable[[BatchSettings], List[Argv]]
    parse_capacity: Callable[[BatchSettings, List[Result]], Capacity]

    batch_id: Callable[[Mapping[str, str]], str]  # inside a job, from its environment
    restarts: Callable[[Mapping[str, str]], int]  # inside a job: how often the batch system started it before
    hosts: Callable[[Mapping[str, str], Callable[[str], str]], List[Host]]  # environment, reader of a file
    launch: Callable[[Mapping[str, str], Sequence[str], Argv], List[Launch]]  # environment, hosts, the agent's argv
