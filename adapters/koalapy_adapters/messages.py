"""The plain messages between koalad and KCM, and between KCM and wrapper. The wire's own types, not the core's.

Each is a NamedTuple; on the wire a JSON object whose `type` is the class's name in snake case. All instants are integer
microseconds of the sender's own clock unless a field says otherwise. Requests carry an `id` and are idempotent: asked
twice, they are done once and answered twice. Batch jobs and attempts are known by their tag.
"""

import re
from typing import Any, Dict, List, NamedTuple, Optional, Type

PROTOCOL = 1

Json = Dict[str, Any]


class MessageError(ValueError):
    """A message that this side does not understand."""


# ---- koalad to KCM ---------------------------------------------------------------------------------------------------


class Hello(NamedTuple):
    """The first message. `known`: [tag, batch id or ""] of every attempt of this store that may live on the cluster.

    `recall`: [first tag, last tag] of ranges of attempts that koalad may have forgotten: Welcome names those of them
    that have left a trace in the shared directory.
    """

    protocol: int
    version: str
    epoch: int
    instance: str
    clock: int
    cluster: Json  # ClusterConfig's fields
    known: List[List[str]] = []
    recall: List[List[str]] = []


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
    native: List[str] = []
    setup: List[str] = []
    slots: Optional[int] = None
    shared: Optional[str] = None  # absolute; None: ~/.koala
    python: str = "python3"  # on the compute nodes
    drmaa: str = "off"  # off, auto, or the path of a libdrmaa
    relay: str = "tcp"
    poll: float = 10.0
    orphan_timeout: float = 600.0
    barrier_timeout: float = 300.0
    grace: float = 5.0


class Program(NamedTuple):
    """What the wrapper starts. Written to component.json (mode 0600), never to a command line."""

    job: int
    component: int
    components: int
    attempt: int
    executable: str
    arguments: List[str]
    environment: List[List[str]]
    setup: List[str]
    launch: str  # per-processor, per-node, once
    processors: int
    threads: int
    walltime: float  # seconds, from release
    barrier_timeout: float  # seconds at the barrier, after which the wrapper leaves it
    grace: float  # seconds between SIGTERM and SIGKILL
    optional: bool = False


class Submit(NamedTuple):
    """Put one attempt into the batch system. `doubt`: it may have been sent before; look for the tag first.

    Answered by Submitted or Refused. `batch` holds BatchJob's wishes: processors, walltime_s, queue, ...
    `staged`: [path relative to the attempt's working directory, content hash, mode] of files already stored.
    """

    id: int
    tag: str
    batch: Json
    program: Json
    staged: List[List[Any]] = []
    doubt: bool = False


class Release(NamedTuple):
    """Let the attempt out of its barrier. `hosts`: [component, address] of every rank of the whole job, in order."""

    id: int
    tag: str
    first_rank: int
    hosts: List[List[Any]]


class Cancel(NamedTuple):
    """Revoke the attempt and end it, wherever it stands. Answered at once by Done; then a Gone event follows.

    `force`: do not wait for the program's grace.
    """

    id: int
    tag: str
    batch_id: str = ""
    force: bool = False


class Forget(NamedTuple):
    """koalad has recorded the end: the attempt's directory may go. Answered by Done."""

    id: int
    tag: str


class Watch(NamedTuple):
    """Whether something waits on this cluster's numbers: then poll at the floor rate."""

    urgent: bool


class Acknowledge(NamedTuple):
    """Events up to this number are committed."""

    number: int


class Ping(NamedTuple):
    """Keeps the connection alive and measures the clock's offset."""

    id: int
    clock: int


class Store(NamedTuple):
    """Begin to store a file by its content hash (sha256, hex) in the staging cache; chunks follow on stream `id`.

    Answered by Done(have=True) at once if it is there already, else by Done after the last chunk was verified.
    """

    id: int
    digest: str
    size: int


class Fetch(NamedTuple):
    """Read a file of the attempt from `offset`: `where` is output (stdout of all processes), errors or work (`path`).

    Chunks come on stream `id`; then Fetched. With `follow` it goes on until the attempt has ended.
    """

    id: int
    tag: str
    where: str
    path: str = ""
    offset: int = 0
    follow: bool = False


class Stat(NamedTuple):
    """Which of these paths exist in the attempt's working directory. Answered by Done with details = {path: size}."""

    id: int
    tag: str
    paths: List[str]


class Tags(NamedTuple):
    """Which tags, of whichever store, this user has in queue and shared directory. Answered by Done.

    Its details: `queue`, [tag, batch id, state] of each batch job that is not over (on the first page only),
    `directories`, a page of tags in their order, those after the tag `after`, and `more`: whether others follow.
    """

    id: int
    after: str = ""


class Examine(NamedTuple):
    """What lies in the directories of these tags. Answered by Done.

    Its details, of each that exists: `claim` ("" nobody's), `ended` (it left a record), `age_s`, and `heartbeat_age_s`,
    None where no wrapper has been there.
    """

    id: int
    tags: List[str]


class Clean(NamedTuple):
    """End what there is of a tag that koalad does not know, of whichever store, and remove its directory.

    It is revoked first, then ended like a Cancel; the directory goes when nothing is left. Answered by Done then, which
    may take as long as an orphan lives. Asked again meanwhile, it is done once and answered twice.
    """

    id: int
    tag: str
    batch_id: str = ""


# ---- KCM to koalad ---------------------------------------------------------------------------------------------------


class Welcome(NamedTuple):
    """Answers Hello. `error` (see `Failure`) if the batch system cannot be used; the KCM stays and tries again.

    `newest_epoch`: where the error is `stale`, that of the KCM at work. `newest_number`: the highest id of a Submit of
    this store that the cluster has ever heard; None while the shared directory cannot be used. `recalled`: tags, see
    Hello.
    """

    protocol: int
    version: str
    clock: int
    python: str
    host: str
    batch_version: str = ""
    features: List[str] = []
    error: Optional[Json] = None
    newest_epoch: int = 0
    newest_number: Optional[int] = None
    recalled: List[str] = []


class Failure(NamedTuple):
    """A BatchError on the wire."""

    code: str
    whose: str  # transient, site, request, ours
    message: str
    advice: str = ""
    command: str = ""
    exit_status: Optional[int] = None
    words: str = ""


class Submitted(NamedTuple):
    """The attempt is in the batch system under this id."""

    id: int
    tag: str
    batch_id: str


class Refused(NamedTuple):
    """The request `id` was not done, and nothing of it is left (a Submit: no batch job exists)."""

    id: int
    error: Json


class Done(NamedTuple):
    """The request `id` was done."""

    id: int
    have: bool = False
    details: Json = {}


class Fetched(NamedTuple):
    """The end of the stream `id`; `size` bytes were sent, `mode` are the file's permission bits."""

    id: int
    size: int
    mode: int = 0


class Pong(NamedTuple):
    """Answers Ping with the KCM's clock and what its polling has cost: CPU seconds of batch commands so far."""

    id: int
    clock: int
    cost: float = 0.0


class Event(NamedTuple):
    """What happened on the cluster, numbered per epoch from 1; sent again until acknowledged. `body` is a message."""

    number: int
    body: Json


class Measured(NamedTuple):
    """One measurement: Capacity's numbers, taken when the command was started."""

    measured_at: int
    total: int
    idle: int
    ours: int
    others: int
    waiting_local: int
    allocated: List[str]
    pending: List[str]
    free_nodes: List[List[int]]
    unit: str = "core"


class MeasureFailed(NamedTuple):
    """The batch system did not answer."""

    at: int
    error: Json


class BatchSeen(NamedTuple):
    """The batch system's own view of an attempt changed: queued, held, running, suspended, ended or missing."""

    tag: str
    batch_id: str
    at: int
    state: str
    reason: str = ""
    stuck: str = ""
    exit_status: Optional[int] = None
    ending: str = ""
    restarts: int = 0


class Report(NamedTuple):
    """All that the wrapper knows of its attempt, on every change and after every reconnect. Instants: the KCM's clock.

    `phase`: started (the batch job runs), at_barrier, released, running or ended. `ending`, once ended: exited, killed
    (by a signal from outside), walltime, left_barrier, revoked, restarted, failed (could not start: `error` says why).
    `nodes`: [name, address, processes].
    """

    tag: str
    batch_id: str
    phase: str
    nodes: List[List[Any]]
    at_barrier_at: Optional[int] = None
    released_at: Optional[int] = None
    started_at: Optional[int] = None
    ended_at: Optional[int] = None
    exit_status: Optional[int] = None
    ending: str = ""
    error: Optional[Json] = None


class Gone(NamedTuple):
    """After a Cancel: no batch job of this tag is left, and none that comes late can run its program."""

    tag: str
    at: int


# ---- both ways: rendezvous


class PutKey(NamedTuple):
    """A key of the attempt's key space. `space` is the tag of a component; koalad passes it on to the job's others."""

    space: str
    key: str
    value: str


# ---- wrapper to KCM, over the relay


class Knock(NamedTuple):
    """The wrapper's first message to the relay."""

    protocol: int
    tag: str
    token: str
    clock: int


class Enter(NamedTuple):
    """The relay lets the wrapper in."""

    protocol: int
    clock: int


class Say(NamedTuple):
    """A Report with instants of the node's clock; the KCM maps them to its own and sends it on."""

    report: Json


class Stop(NamedTuple):
    """KCM to wrapper: end the program (SIGTERM, grace, SIGKILL), write the record, and leave."""

    force: bool = False


class Beat(NamedTuple):
    """Either way, so that each side notices when the other is gone."""


MESSAGES: Dict[str, Type[Any]] = {
    re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower(): kind
    for kind in (
        Hello,
        Submit,
        Release,
        Cancel,
        Forget,
        Watch,
        Acknowledge,
        Ping,
        Store,
        Fetch,
        Stat,
        Tags,
        Examine,
        Clean,
        Welcome,
        Submitted,
        Refused,
        Done,
        Fetched,
        Pong,
        Event,
        Measured,
        MeasureFailed,
        BatchSeen,
        Report,
        Gone,
        PutKey,
        Knock,
        Enter,
        Say,
        Stop,
        Beat,
    )
}
_NAMES = {kind: name for name, kind in MESSAGES.items()}


def to_json(message: Any) -> Json:
    """The message as a JSON object."""
    fields = dict(message._asdict())
    fields["type"] = _NAMES[type(message)]
    return fields


def from_json(data: Any) -> Any:
    """The message of a JSON object. Raises MessageError for whatever is none."""
    if not isinstance(data, dict) or data.get("type") not in MESSAGES:
        raise MessageError("not a message: %.80r" % (data,))
    kind = MESSAGES[data["type"]]
    fields = {name: value for name, value in data.items() if name != "type"}
    try:
        return kind(**fields)
    except TypeError as error:
        raise MessageError("%s: %s" % (data["type"], error)) from error
