"""What a KCM says to koalad, and the values in it; and what passes both ways."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Type

Json = Dict[str, Any]


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
    """The end of the stream `id`; `size` bytes were sent, `mode` are the file's permission bits.

    `digest`: of a file of the working directory the sha256, in hex, of all of it, those bytes too that were passed by.
    """

    id: int
    size: int
    mode: int = 0
    digest: str = ""


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
    largest: Optional[int] = None
    largest_idle: Optional[int] = None
    wanted_local: int = 0
    others_hidden: bool = False
    whole_nodes: List[List[int]] = []


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


class Lingers(NamedTuple):
    """After a Cancel: the batch system lists a job of this tag still, though it was told to end it again and again.

    Once for each Cancel; a Gone follows if the job goes after all. `error`: see `Failure`.
    """

    tag: str
    at: int
    error: Json


class PutKey(NamedTuple):
    """A key of the attempt's key space. `space` is the tag of a component; koalad passes it on to the job's others."""

    space: str
    key: str
    value: str


class ParametersDone(NamedTuple):
    """Parameters that a Launcher has run. `results`: [number, exit status, ending, host, slot, started at, ended at,
    output at, output size, errors at, errors size] each (see koalapy.model.sweep.ParameterResult); instants of the
    KCM's clock. An event; it goes out before the end of the Launcher's attempt does."""

    sweep: int
    tag: str
    results: List[List[Any]]


class ParametersBack(NamedTuple):
    """Parameters that are out here no more: in nobody's hands, and not done; `begun` of them were begun. An event."""

    sweep: int
    ranges: List[List[int]]
    begun: List[List[int]] = []


class ParametersWanted(NamedTuple):
    """The KCM could use so many more to keep its credit. An event."""

    sweep: int
    wanted: int


class LaunchersSeen(NamedTuple):
    """[tag, parameters that run, instant of the newest pull by the KCM's clock] of Launchers, once a second at most.

    An event.
    """

    launchers: List[List[Any]]


class LauncherSuspected(NamedTuple):
    """Everything that the Launcher ran failed at once: it waits for Trust or its end. An event."""

    tag: str
    host: str


MESSAGES: Tuple[Type[Any], ...] = (
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
    Lingers,
    PutKey,
    ParametersDone,
    ParametersBack,
    ParametersWanted,
    LaunchersSeen,
    LauncherSuspected,
)
