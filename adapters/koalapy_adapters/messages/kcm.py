"""Messages from a KCM to koalad, and their values; and the messages that both send."""

from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Tuple, Type

from koalapy_adapters.messages.fields import (
    Body,
    Check,
    Cost,
    Count,
    Details,
    Epoch,
    Flag,
    Instant,
    Json,
    Line,
    Name,
    Number,
    Processors,
    Ranges,
    Rows,
    Status,
    Tag,
    Whole,
    Words,
    fields_of,
    many,
    row,
    sized,
)


class Failure(NamedTuple):
    """A BatchError on the wire."""

    code: Name
    whose: Name  # transient, cluster, request, ours
    message: Line
    advice: Line = ""
    command: Line = ""
    exit_status: Optional[Status] = None
    words: Words = ""


# Number, exit status, ending, host, slot, started at, ended at, output at, output size, errors at, errors size.
RESULT: Check = row(Number, Status, Name, Name, Count, Instant, Instant, Count, Count, Count, Count)

if TYPE_CHECKING:
    FailureFields = Json
    Nodes = Rows
    Results = Rows
    Launchers = Rows
    FreeNodes = List[List[int]]
    Key = str
    Value = str
else:
    FailureFields = fields_of(Failure)
    Nodes = many(row(Name, Name, Processors))  # name, address, processes: none on some, perhaps
    Results = many(RESULT)
    Launchers = many(row(Tag, Count, Instant))
    FreeNodes = many(row(Processors, Processors))
    Key = sized(1 << 10)
    Value = sized(1 << 16)


class Welcome(NamedTuple):
    """Answers Hello. `error` (see `Failure`) if the batch system cannot be used; the KCM stays and tries again.

    `newest_epoch`: where the error is `stale`, that of the KCM at work. `newest_number`: the highest id of a Submit of
    this store that the cluster has ever received; None while the shared directory cannot be used. `recalled`: tags, see
    Hello. `system`, `release`, `architecture`: those of the head node, by uname(2). `mpi`: the flavours
    of MPI on its PATH, by name. `speed`: of one of its processors (see host.speed); 0 if it is unknown.
    """

    protocol: Count
    version: Name
    clock: Instant
    python: Line
    host: Line
    batch_version: Line = ""
    features: List[Name] = []
    error: Optional[FailureFields] = None
    newest_epoch: Epoch = 0
    newest_number: Optional[Count] = None
    recalled: List[Tag] = []
    system: Line = ""
    release: Line = ""
    architecture: Line = ""
    mpi: List[Name] = []
    speed: Count = 0


class Submitted(NamedTuple):
    """The attempt is in the batch system under this id."""

    id: Count
    tag: Tag
    batch_id: Name


class Refused(NamedTuple):
    """The request `id` was not done, and nothing of it is left (a Submit: no batch job exists)."""

    id: Count
    error: FailureFields


class Done(NamedTuple):
    """The request `id` was done."""

    id: Count
    have: Flag = False
    details: Details = {}


class Fetched(NamedTuple):
    """The end of the stream `id`; `size` bytes were sent, `mode` are the file's permission bits.

    `digest`: of a file of the working directory the sha256, in hex, of all of it, those bytes too that were passed by.
    """

    id: Count
    size: Count
    mode: Count = 0
    digest: Name = ""


class Pong(NamedTuple):
    """Answers Ping with the KCM's clock and what its polling has cost: CPU seconds of batch commands so far."""

    id: Count
    clock: Instant
    cost: Cost = 0.0


class Event(NamedTuple):
    """An event on the cluster, numbered per epoch from 1 and repeated until acknowledged. `body` is a message."""

    number: Number
    body: Body


class Measured(NamedTuple):
    """One measurement: Capacity's numbers, taken when the command was started."""

    measured_at: Instant
    total: Processors
    idle: Processors
    ours: Processors
    others: Processors
    waiting_local: Processors
    allocated: List[Tag]
    pending: List[Tag]
    free_nodes: FreeNodes
    unit: Name = "core"
    largest: Optional[Processors] = None
    largest_idle: Optional[Processors] = None
    wanted_local: Processors = 0
    others_hidden: Flag = False
    whole_nodes: FreeNodes = []
    memory: Optional[Whole] = None
    walltime_limit_s: Optional[Count] = None


class MeasureFailed(NamedTuple):
    """A measurement that failed: the batch system did not answer."""

    at: Instant
    error: FailureFields


class BatchStatus(NamedTuple):
    """The batch system's own view of an attempt changed: queued, held, running, suspended, ended or missing.

    `silent_since`: though it runs by this view, its wrapper has given no sign of life since then; None: it has.
    """

    tag: Tag
    batch_id: Name
    at: Instant
    state: Name
    reason: Line = ""
    stuck: Name = ""
    exit_status: Optional[Status] = None
    ending: Name = ""
    restarts: Count = 0
    silent_since: Optional[Instant] = None


class Report(NamedTuple):
    """All that the wrapper knows of its attempt, on every change and after every reconnect. Instants: the KCM's clock.

    `phase`: started (the batch job runs), at_barrier, released, running or ended. `ending`, once ended: exited, killed
    (by a signal from outside), walltime, left_barrier, restarted, failed (could not start: `error` states why).
    `nodes`: [name, address, processes]. `began_at`: when the wrapper, and so the batch job, began.
    """

    tag: Tag
    batch_id: Name
    phase: Name
    nodes: Nodes
    at_barrier_at: Optional[Instant] = None
    released_at: Optional[Instant] = None
    started_at: Optional[Instant] = None
    ended_at: Optional[Instant] = None
    exit_status: Optional[Status] = None
    ending: Name = ""
    error: Optional[FailureFields] = None
    began_at: Optional[Instant] = None


class CleanedUp(NamedTuple):
    """After a Cancel: no batch job of this tag is left, and none that comes late can run its program."""

    tag: Tag
    at: Instant


class Stuck(NamedTuple):
    """After a Cancel: the batch system still lists a job of this tag after repeated cancels.

    Sent once for each Cancel; CleanedUp follows if the job ends after all. `error`: see `Failure`.
    """

    tag: Tag
    at: Instant
    error: FailureFields


class PutKey(NamedTuple):
    """A key of the attempt's key space. `space` is the tag of a component; koalad passes it on to the job's others."""

    space: Tag
    key: Key
    value: Value


class ParametersEnded(NamedTuple):
    """Parameters that a Launcher has run. `results`: [number, exit status, ending, host, slot, started at, ended at,
    output at, output size, errors at, errors size] each (see koalapy.model.sweep.ParameterResult); instants of the
    KCM's clock. An event; it goes out before the end of the Launcher's attempt does."""

    sweep: Count
    tag: Tag
    results: Results


class ParametersReturned(NamedTuple):
    """Parameters that come back undone: nobody on the cluster holds them. `begun` of them were begun. An event."""

    sweep: Count
    ranges: Ranges
    begun: Ranges = []


class ParametersWanted(NamedTuple):
    """The KCM could use so many more to keep its credit. An event."""

    sweep: Count
    wanted: Count


class LaunchersSeen(NamedTuple):
    """[tag, parameters that run, instant of the newest pull by the KCM's clock] of Launchers, once a second at most.

    An event.
    """

    launchers: Launchers


class LauncherSuspected(NamedTuple):
    """Everything that the Launcher ran failed at once: it waits for TrustLauncher or its end. An event."""

    tag: Tag
    host: Name


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
    BatchStatus,
    Report,
    CleanedUp,
    Stuck,
    PutKey,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    LaunchersSeen,
    LauncherSuspected,
)
EVENTS: Tuple[Type[Any], ...] = (  # what the body of an Event may be
    Measured,
    MeasureFailed,
    BatchStatus,
    Report,
    CleanedUp,
    Stuck,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    LaunchersSeen,
    LauncherSuspected,
)
