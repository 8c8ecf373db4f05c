"""A user's request: a job of one or more components, as every job language expresses it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from koalapy.model.identity import JobId
from koalapy.model.labels import Labels
from koalapy.model.notification import Notify
from koalapy.model.parameters import Space
from koalapy.model.units import HOUR, MINUTE, Duration, Instant, format_duration, format_instant

MAX_PROCESSORS = 1_000_000
LOWEST_PRIORITY = 20
DEFAULT_PRIORITY = 10
PILOT_IDLE = Duration(10 * MINUTE)
LEAST_OF_PILOT = Duration(2 * MINUTE)
"""Walltime that must be left of a pilot for a component that takes what is left."""
FOREVER = 1 << 30
"""Retrials of a job that is tried again without bound."""


class Launch(StrEnum):
    """The number of processes that a component starts, or the mpirun that starts one for each processor."""

    PER_PROCESSOR = "per-processor"
    PER_NODE = "per-node"
    ONCE = "once"
    MPI = "mpi"


_PER_NODE, _ONCE = Launch.PER_NODE, Launch.ONCE


class MpiFlavour(StrEnum):
    """An implementation of MPI, whose mpirun starts a component's processes."""

    OPENMPI = "openmpi"
    MPICH = "mpich"


class WhenBusy(StrEnum):
    """The conduct of a job that does not fit: it waits for idle processors, or goes into a batch queue."""

    WAIT = "wait"
    QUEUE = "queue"


class RetryOn(StrEnum):
    """An ending that counts as a completion failure."""

    LOST = "lost"
    KILLED = "killed"
    EXIT = "exit"


class KeepOutput(StrEnum):
    """The place where the output of a final job's processes is kept: its clusters alone, or home too."""

    CLUSTER = "cluster"
    HOME = "home"


class Interactive(StrEnum):
    """A part of a job's first process to which a person may attach: its terminal, or its standard input alone."""

    TERMINAL = "terminal"
    INPUT = "input"


class Fill(StrEnum):
    """The use of processors that are held at a barrier: by sweeps of the job's user, or none."""

    SWEEPS = "sweeps"
    NONE = "none"


class OnFailure(StrEnum):
    """The conduct of a flow once a job of it has failed for good: jobs that do not depend on it go on, or all stop."""

    CONTINUE = "continue"
    STOP = "stop"


class RequestType(StrEnum):
    """The type of a request (DCS, section 2.3): ordered names every cluster, unordered none."""

    ORDERED = "ordered"
    UNORDERED = "unordered"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An instant, or else a time `after` the submission of a job."""

    instant: Instant | None = None
    after: Duration = Duration(0)

    def of(self, submitted_at: Instant) -> Instant:
        """Return the instant that it is for a job that was submitted then."""
        return Instant(submitted_at + self.after) if self.instant is None else self.instant

    def __str__(self) -> str:
        return f"+{format_duration(self.after)}" if self.instant is None else format_instant(self.instant)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRequest:
    """Processors of one cluster and the program on them.

    `requirements`: a checked ClassAd expression that its cluster's ad must make true. `rank`: one whose value orders
    the clusters, the largest first. `spread`: its processors may be those of a group of clusters. `most` and `least`:
    set if `processors` may be lowered, from the first to the second. `mpi`: whose mpirun starts an MPI program, None
    for the one that the cluster has. `until_end`: once it is placed on the pilot that it names, its walltime is what is
    left of that; until then `walltime` is the least that it needs.
    """

    processors: int
    executable: str
    arguments: tuple[str, ...] = ()
    cluster: str | None = None
    walltime: Duration = HOUR
    launch: Launch = Launch.PER_PROCESSOR
    processors_per_node: int | None = None
    threads_per_process: int = 1
    memory_per_processor: int | None = None  # bytes
    gpus: int = 0
    exclusive: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()
    account: str | None = None
    queue: str | None = None
    qos: str | None = None
    constraint: str | None = None
    native: tuple[str, ...] = ()
    optional: bool = False
    most: int | None = None
    least: int | None = None
    requirements: str = ""
    rank: str = ""
    spread: bool = False
    mpi: MpiFlavour | None = None
    until_end: bool = False

    def lowered(self) -> "ComponentRequest":
        """Return the component with half of its processors, or as few as it allows; itself if it allows no fewer.

        Processes and nodes stay whole.
        """
        if self.least is None or self.processors <= self.least:
            return self
        return replace(self, processors=max(self.least, self.processors // 2 // self.unit * self.unit))

    def smallest(self) -> "ComponentRequest":
        """Return the component with as few processors as it allows; itself if it allows no fewer."""
        return self if self.least is None or self.processors <= self.least else replace(self, processors=self.least)

    @property
    def sizes(self) -> range:
        """The numbers of processors that it may get, the least first. Processes and nodes stay whole."""
        return range(self.least or self.processors, self.processors + 1, self.unit)

    @property
    def unit(self) -> int:
        """The processors of a node, or else of a process, none of which is divided."""
        return self.processors_per_node or self.threads_per_process

    @property
    def queue_walltime(self) -> Duration | None:
        """The walltime to which the limit of its cluster's own queue applies.

        None if it names another queue or quality of service, or may do so by a native option.
        """
        return None if self.queue or self.qos or self.native else self.walltime

    def processes(self, nodes: int) -> int:
        """Return the number of processes that the component starts on so many nodes."""
        if self.launch is _PER_NODE:
            return nodes
        return 1 if self.launch is _ONCE else max(1, self.processors // self.threads_per_process)


class Isolate(StrEnum):
    """The means by which programs on a pilot are isolated from the account that runs them."""

    NONE = "none"
    AUTO = "auto"  # the first of the others that all nodes of the pilot have
    BWRAP = "bwrap"
    UNSHARE = "unshare"


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotOptions:
    """The options of a pilot: a job whose processors are a cluster of their own for as long as it runs.

    `idle`: it ends after so long without anything to run. `shared`: jobs that do not name it are placed there too.
    `automatic`: koalapy opened it by itself, by the grid file. `lent`: it holds a lease of a neighbouring site, and is
    no cluster here. `isolate`: how programs there are isolated; `visible`: the directories that they see nevertheless,
    read-only.
    """

    idle: Duration = PILOT_IDLE
    shared: bool = False
    automatic: bool = False
    lent: bool = False
    isolate: Isolate = Isolate.NONE
    visible: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A job as its user wrote it. `directory` is absolute: the paths of the job are relative to it.

    `stage_out_to`: (pattern, place) of files that are staged out to another place than the job's directory. `files`:
    the name of the list of staged-in files, as it was at submission; '' if there is none. `parameters`: set for a
    sweep of its one component; in arguments, environment and paths `{name}` stands for a parameter's value. `order`:
    the name of the policy that chooses the parameters that run next, '' for the grid file's. `keep_output`: None,
    until the job is submitted, for the grid file's; so is `notify`. `labels`: (key, value), each key once. `after`:
    the jobs that must be done before it may begin, each once. `relax_after`: how long it waits after a failed claim
    before it asks for fewer processors, None for the grid's `queue_after`. `retrials`: how often a claim that
    failed is tried again, None for the grid file's maximum. `jobs`: set for a flow, which has no components of its
    own. `pilot`: set for a pilot, whose program only waits. `interactive`: set for a job to whose first process a
    person may attach. `site`: the neighbour that runs the job, or the flow of its `jobs`; None for this site.
    `dttl`: over how many links neighbouring sites are asked for processors for it; None for the grid file's.
    `barrier_wait`: how long components that came through queues wait at their barriers, None for the grid file's time.
    `held_limit`: the processor-microseconds that they may wait there in all, None for the grid file's. `fill`: what
    runs on their processors meanwhile, None for the grid file's.
    `begin`: it is released no sooner. `claim_before`: so long before that it enters the wait queue, so that its
    components are claimed and held until then; None: it enters at that instant. `expires`: when it fails if it was
    never released; None: it waits for ever. `race`: in how many batch queues each component may wait at once; None for
    the grid file's number.
    """

    name: str
    components: tuple[ComponentRequest, ...]
    priority: int = DEFAULT_PRIORITY
    when_busy: WhenBusy = WhenBusy.WAIT
    retry_on: tuple[RetryOn, ...] = (RetryOn.LOST, RetryOn.KILLED)
    communication: bool = True
    stage_in: tuple[str, ...] = ()
    stage_out: tuple[str, ...] = ()
    directory: str = "/"
    stage_out_to: tuple[tuple[str, str], ...] = ()
    files: str = ""
    parameters: Space | None = None
    order: str = ""
    keep_output: KeepOutput | None = None
    labels: Labels = ()
    notify: tuple[Notify, ...] | None = None
    pilot: PilotOptions | None = None
    after: tuple[JobId, ...] = ()
    retrials: int | None = None
    relax_after: Duration | None = None
    jobs: tuple["FlowJob", ...] = ()
    on_failure: OnFailure = OnFailure.CONTINUE
    interactive: Interactive | None = None
    site: str | None = None
    dttl: int | None = None
    barrier_wait: Duration | None = None
    held_limit: int | None = None
    fill: Fill | None = None
    begin: Moment | None = None
    claim_before: Duration | None = None
    expires: Moment | None = None
    race: int | None = None

    @property
    def type(self) -> RequestType:
        named = [component.cluster is not None for component in self.components]
        if all(named):
            return RequestType.ORDERED
        return RequestType.MIXED if any(named) else RequestType.UNORDERED

    @property
    def processors(self) -> int:
        return sum(component.processors for component in self.components)

    def smallest(self) -> "Request":
        """Return the request with as few processors as each component allows; itself if none allows fewer."""
        components = tuple([each.smallest() for each in self.components])
        return self if components == self.components else replace(self, components=components)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowJob:
    """A job of a flow. `after`: the places in the flow, from 0, of jobs that must be done before it may begin."""

    request: Request
    after: tuple[int, ...] = ()
