"""Messages from koalad to a KCM, and their values. Requests about files are in `files`."""

from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple, Type

from koalapy_adapters.messages.fields import (
    Body,
    Content,
    Count,
    Epoch,
    Flag,
    Instant,
    Json,
    LongName,
    Name,
    Ranges,
    Rows,
    Tag,
    many,
    row,
)

if TYPE_CHECKING:
    Known = List[List[str]]
    Recalled = List[List[str]]
    Staged = Rows
    Hosts = Rows
    BatchJobs = List[List[str]]
else:
    Known = many(row(Tag, Name))
    Recalled = many(row(Tag, Tag))
    Staged = many(row(Content, Name, Count))  # path, content hash, mode
    Hosts = many(row(Count, Name, Count))  # component, address, processes
    BatchJobs = many(row(Tag, Name))


class Hello(NamedTuple):
    """The first message. `known`: [tag, batch id or ""] of every attempt of this store that may live on the cluster.

    `recall`: [first tag, last tag] of ranges of attempts that koalad may have forgotten: Welcome names those of them
    that have left a trace in the shared directory.
    """

    protocol: Count
    version: Name
    epoch: Epoch
    instance: Name
    clock: Instant
    cluster: Body  # ClusterConfig's fields
    known: Known = []
    recall: Recalled = []


class ClusterConfig(NamedTuple):
    """The grid file's cluster as the cluster side needs it; durations in seconds."""

    name: str
    batch: str
    queue: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    reservation: Optional[str] = None
    constraint: Optional[str] = None
    parallel_environment: Optional[str] = None
    processors_per_node: Optional[int] = None
    exclusive: bool = False
    native: List[Content] = []
    setup: List[Content] = []
    slots: Optional[int] = None
    shared: Optional[str] = None  # absolute; None: ~/.koala
    python: str = "python3"  # on the compute nodes
    drmaa: str = "off"  # off, auto, or the path of a libdrmaa
    relay: str = "tcp"
    relay_network: List[str] = []  # networks whose wrappers the relay answers; none: private and the head's own
    poll: float = 10.0
    orphan_timeout: float = 600.0
    grace: float = 5.0
    floor: float = 2.0  # the shortest poll while Launchers are there
    launchers_environment: Optional[str] = None  # the parallel environment for them, if not that above
    power_up: bool = True  # nodes that are powered down count as idle


class Program(NamedTuple):
    """The program that the wrapper starts. It is written to component.json (mode 0600), never to a command line.

    `sweep`: of a Launcher, what it runs: this program, once for each of the parameters that it pulls. `sweep` (id),
    `space` (see launcher.space), `slots`, `limit_s` (one parameter's walltime; None: that of the Launcher),
    `output_limit` (bytes that one parameter may write; None: 1 GiB), `drain_s` (nothing is begun in the last so many
    seconds of the walltime; None: 5). `walltime` and `grace` are the Launcher's. `terminal`: what clients may attach to
    of the component's first process: its `terminal`, its `input` alone, or nothing.
    """

    job: int
    component: int
    components: int
    attempt: int
    executable: Content
    arguments: List[Content]
    environment: List[List[Content]]
    setup: List[Content]
    launch: str  # per-processor, per-node, once, mpi
    processors: int
    threads: int
    walltime: float  # seconds, from release
    barrier_timeout: float  # seconds at the barrier, after which the wrapper leaves it
    grace: float  # seconds between SIGTERM and SIGKILL
    optional: bool = False
    sweep: Optional[Json] = None
    mpi: Optional[str] = None  # the flavour that starts an MPI program; None: the one that is there
    terminal: str = ""


class Submit(NamedTuple):
    """Put one attempt into the batch system. `doubt`: it may have been sent before; look for the tag first.

    Answered by Submitted or Refused. `batch` holds the requests of BatchJob: processors, walltime_s, queue, ...
    With `probe` among them the job only looks, and does not start the wrapper (see examination.probe).
    `staged`: [path relative to the attempt's working directory, content hash, mode] of files already stored, and of
    directories, which have no hash. Where the path is empty the stored file is itself such a list, as JSON: there may
    be more files than a message has room for.
    """

    id: Count
    tag: Tag
    batch: Body
    program: Body
    staged: Staged = []
    doubt: Flag = False


class Release(NamedTuple):
    """Let the attempt out of its barrier. `hosts`: [component, address, processes] of the whole job, by rank."""

    id: Count
    tag: Tag
    first_rank: Count
    hosts: Hosts


class Cancel(NamedTuple):
    """Make the attempt void and end it, in any state. Answered at once by Done; a CleanedUp event follows.

    `force`: do not wait for the program's grace.
    """

    id: Count
    tag: Tag
    batch_id: Name = ""
    force: Flag = False


class Forget(NamedTuple):
    """koalad has recorded the end: the attempt's directory may go. Answered by Done."""

    id: Count
    tag: Tag


class SetSuspended(NamedTuple):
    """Suspend the attempt's batch job, whose processors are then free for others, or resume it.

    It has no answer: BatchStatus shows what has become of it. The newest of these messages counts.
    """

    tag: Tag
    suspended: Flag


class WatchCluster(NamedTuple):
    """Set whether something waits for this cluster's measurements. If so, the KCM polls at the floor rate."""

    urgent: Flag


class FeedSweep(NamedTuple):
    """Parameters for a sweep's Launchers: `ranges` of numbers, [first, last] each, both included.

    `anew`: these are all parameters of the sweep on this cluster, whoever holds them. `launchers`: tags of Launchers
    that may hold some of them, or have left a journal. The KCM distributes those that no Launcher holds or has done.
    The first feed of a sweep in a session is of this kind; the KCM ignores any other before it.
    """

    sweep: Count
    ranges: Ranges
    anew: Flag = False
    launchers: List[Tag] = []


class RecallParameters(NamedTuple):
    """Return at most `most` parameters that no Launcher holds. A ParametersReturned event answers, perhaps empty."""

    sweep: Count
    most: Count


class TrustLauncher(NamedTuple):
    """Let a Launcher go on that suspected its node to be a black hole."""

    tag: Tag


class Acknowledge(NamedTuple):
    """Confirm that events up to this number are committed."""

    number: Count


class Ping(NamedTuple):
    """Keeps the connection alive and measures the clock's offset."""

    id: Count
    clock: Instant


class Tags(NamedTuple):
    """List the tags of any store that this user has in the queue and the shared directory. Answered by Done.

    Its details: `queue`, [tag, batch id, state] of each batch job that has not ended, on the first page only.
    `directories`: a page of tags in order, from the first tag after `after`. `more`: whether others follow.
    """

    id: Count
    after: Tag = ""


class Examine(NamedTuple):
    """Examine the directories of these tags. Answered by Done.

    Its details, of each that exists: `start_lock` (taken, void, or "" for neither), `ended` (it left an exit record),
    `age_s`, and `heartbeat_age_s`, None where no wrapper has been there.
    """

    id: Count
    tags: List[Tag]


class Account(NamedTuple):
    """Ask the batch system's accounting about batch jobs that have ended. Answered by Done, see `Accounted`.

    `jobs`: [tag, batch id] each. `since`: none of them began before, by the head node's clock.
    """

    id: Count
    jobs: BatchJobs
    since: Instant


class Clean(NamedTuple):
    """End the attempt of a tag of any store that koalad does not know, and remove its directory.

    It is made void first, then ended like a Cancel; the directory is removed when nothing else is left. Answered by
    Done then, which may take as long as an orphan lives. Asked again meanwhile, it is done once and answered twice.
    """

    id: Count
    tag: Tag
    batch_id: Name = ""


class Diagnose(NamedTuple):
    """Look at one thing on the head node, by its name (see examination.head). Answered by Done.

    Its details: what was found; or `failure` (see Failure), and `value`, what the grid file should have instead.
    """

    id: Count
    check: LongName


class Dissolve(NamedTuple):
    """Remove all that the store has in the shared directory, for a store that is given up.

    Answered by Done; refused while the store has an attempt there, which Forget removes.
    """

    id: Count


MESSAGES: Tuple[Type[Any], ...] = (
    Hello,
    Submit,
    Release,
    Cancel,
    Forget,
    SetSuspended,
    WatchCluster,
    FeedSweep,
    RecallParameters,
    TrustLauncher,
    Acknowledge,
    Ping,
    Tags,
    Examine,
    Account,
    Clean,
    Diagnose,
    Dissolve,
)
