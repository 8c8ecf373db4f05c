"""Events for the engine, each named in the past tense. All instants are of koalad's clock."""

from dataclasses import dataclass

from koalapy.model.attempt import Attempt
from koalapy.model.cluster import UNKNOWN_MACHINE, ClusterSettings, ClusterState, Machine, Node
from koalapy.model.commands import NeighbourCommand
from koalapy.model.ended_lease import LeaseKey
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.job import Job
from koalapy.model.matching import Answer
from koalapy.model.neighbour import Relation
from koalapy.model.notification import NotificationId, Outcome
from koalapy.model.parameters import ParameterResult
from koalapy.model.request import Request
from koalapy.model.states import BatchState, ReportedEnding, WrapperPhase
from koalapy.model.units import Instant
from koalapy.model.usage import BatchSpan
from koalapy.model.work import Work

# ---- from users


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSubmitted:
    """A user has submitted a job, a flow or a sweep. `key` is the client's own: each makes one of them at most.

    `done`: those of the request's prerequisites that are known to be done; the engine may know nothing of them.
    """

    request: Request
    owner: str
    key: str = ""
    done: tuple[JobId, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user has cancelled a job, flow or sweep, or koalapy has, which then gives its `reason`.

    `force`: do not wait for a cluster out of reach; what may be left there becomes a pending cancel.
    """

    work: JobId
    force: bool = False
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class HoldRequested:
    work: JobId


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    work: JobId


# ---- about the grid itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJoined:
    """A cluster has become a part of the grid: of a grid file, by command, or made by koalapy for its own use."""

    settings: ClusterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChanged:
    """The settings of a cluster of the grid have changed; its name and what runs there have not."""

    settings: ClusterSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLeft:
    """A cluster is no part of the grid any more, and koalapy never reaches it again. Attempts there are lost."""

    name: str


# ---- about neighbours, and from links to them: `neighbour` is the origin, and reports about itself only


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourJoined:
    """A site has become a neighbour of this one, or its relation has changed."""

    neighbour: str
    relation: Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourLeft:
    """A site is no neighbour any more. What was not sent to it is dropped."""

    neighbour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourConnected:
    """A session with a neighbour has begun. `instance`: that of its store."""

    neighbour: str
    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourLost:
    neighbour: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotCloseRequested:
    """A person has closed a pilot. `force`: with whatever is there; without it one that is in use stays."""

    pilot: JobId
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEndRequested:
    """A person has ended a lease: a lent one is taken back, a borrowed one is returned.

    `at_once`: the borrower of a lent one is given no time.
    """

    neighbour: str
    lease: int
    lent: bool
    reason: Reason
    at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseExamined:
    """The nodes of a lease that is to be lent were examined, or the disk use of one that is lent.

    `reason`: why it is not lent, or not any longer.
    """

    neighbour: str
    lease: int
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUnreadable:
    """The content of a SendJob that this site cannot read or run. `job`: its id at the neighbour."""

    neighbour: str
    job: JobId
    reason: Reason


NeighbourMessage = NeighbourCommand | JobUnreadable


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """A message of a neighbour's outbox has come. The engine reacts to the `message`, whose neighbour is its sender.

    `instance`: that of the neighbour's store. `number`: the message's there, by which one that is repeated is known.
    """

    neighbour: str
    instance: str
    number: int
    message: NeighbourMessage


# ---- from links to clusters: `cluster` is the origin, and reports only on itself (coallocation.event_origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRestored:
    """The clusters know more than this store: it was restored from a backup, and koalad goes on after it.

    `epoch` and `last_number` are greater than all that were used.
    """

    epoch: int
    last_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnected:
    """A session has begun.

    `recalled`: attempts of doubtful jobs (see Counters) that have left a trace on the cluster; None if that is unknown.
    `machine`: the head node's.
    """

    cluster: str
    version: str
    recalled: tuple[AttemptId, ...] | None = None
    machine: Machine = UNKNOWN_MACHINE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLost:
    """The connection was lost, or could not be made; `reason` states why in one sentence."""

    cluster: str
    reason: Reason


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMeasured:
    cluster: str
    state: ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFailed:
    """The connection stands, but the batch system did not answer."""

    cluster: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class FilesMoved:
    """Staging in of the attempt's files has made progress since the last event."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class FilesStaged:
    """All files of the attempt are staged in: `files` of them, `size` bytes. `version` is a hash over all of them."""

    attempt: AttemptId
    files: int
    size: int
    version: str


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSubmitted:
    attempt: AttemptId
    batch_id: str
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionFailed:
    """No batch job of this attempt exists, and none will."""

    attempt: AttemptId
    reason: Reason
    cluster: str = ""


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatusSeen:
    """The batch status of an attempt.

    `stuck`: the code of a pending reason that cannot clear. `ending`: NONE if the batch system does not report it.
    `silent_since`: the wrapper has given no sign of life since then, though the batch system lists the job as running.
    """

    attempt: AttemptId
    batch_id: str
    at: Instant
    state: BatchState
    words: str = ""
    stuck: str = ""
    exit_status: int | None = None
    ending: ReportedEnding = ReportedEnding.NONE
    cluster: str = ""
    silent_since: Instant | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class WrapperReported:
    """All that the wrapper knows of its attempt. The same report may be repeated, and phases may be skipped.

    `reason`: why it could not start, or how its program failed.
    """

    attempt: AttemptId
    batch_id: str
    phase: WrapperPhase
    nodes: tuple[Node, ...] = ()
    at_barrier_at: Instant | None = None
    released_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    exit_status: int | None = None
    ending: ReportedEnding = ReportedEnding.NONE
    reason: Reason | None = None
    cluster: str = ""
    began_at: Instant | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCleanedUp:
    """After a cancel, no batch job of this attempt is left, and no late batch job can run its program."""

    attempt: AttemptId
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStuck:
    """After a cancel, the batch system still lists the attempt, and will until its administrator helps.

    The cancel is repeated.
    """

    attempt: AttemptId
    reason: Reason
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsAccounted:
    """A batch system's accounting of attempts that have ended."""

    cluster: str
    spans: tuple[BatchSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCollected:
    """The job's staged-out files are where its user wanted them; `reason` is set if not all of them are.

    `notes`: sentences on what was left out nevertheless.
    """

    job: JobId
    reason: Reason | None = None
    files: int = 0
    size: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputKept:
    """koalad keeps the standard output and error of a final job's components; `reason` is set if it has not all.

    `job`: its record, which the engine has dropped. `size`: bytes that are kept. `omitted_bytes`: bytes that are not,
    since there were too many. `notes`: sentences on what did not exist.
    """

    job: Job
    reason: Reason | None = None
    size: int = 0
    omitted_bytes: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptForgotten:
    """The answer to ForgetAttempt: its directory is removed, or the KCM `refused` to remove it."""

    cluster: str
    attempt: AttemptId
    refused: Reason | None = None


# ---- from matchmaking


@dataclass(frozen=True, slots=True)
class AdsCompared:
    """The answers to the questions of one CompareAds."""

    answers: tuple[Answer, ...]


# ---- from the sender of notifications


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationDue:
    """The time of a try has come, and its sender is ready. `number`: of the try."""

    notification: NotificationId
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTried:
    """A try was made, or may have been made. `number`: of the try. `reason`: set unless it was sent."""

    notification: NotificationId
    number: int
    outcome: Outcome
    reason: Reason | None = None


# ---- from maintenance


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRequested:
    """Jobs, sweeps and Launchers are to be pruned, as far as they were over before an instant.

    The directories of their attempts are removed first; then, with `records`, record, history and results. A sweep is
    named only when the store has none of its pilots any more. `without`: clusters whose directories stay. `leases`:
    those that were over before, whose accounts are summed up by day.
    """

    work: tuple[Work, ...]
    before: Instant
    records: bool
    without: tuple[str, ...] = ()
    launchers: tuple[Attempt, ...] = ()
    leases: tuple[LeaseKey, ...] = ()


# ---- from Launchers, through their KCMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersEnded:
    """Parameters that a Launcher has run.

    The same may be reported again. A Launcher's end is reported after all of its parameters.
    """

    cluster: str
    sweep: JobId
    attempt: AttemptId
    results: tuple[ParameterResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersReturned:
    """Parameters that were out on the cluster, and came back unfinished; `begun`: those of them that had been begun."""

    cluster: str
    sweep: JobId
    numbers: Intervals
    begun: Intervals = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersWanted:
    """The KCM could use `wanted` more parameters to keep its credit; it asks again when it has fewer."""

    cluster: str
    sweep: JobId
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchersSeen:
    """Launchers as their KCM sees them, once a second at most.

    `launchers`: (attempt, parameters that run, instant of the newest pull).
    """

    cluster: str
    launchers: tuple[tuple[AttemptId, int, Instant], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSuspected:
    """All first parameters of a Launcher failed at once.

    The Launcher keeps their results and pulls no more until it is trusted; when it is ended, it gives the parameters
    back.
    """

    cluster: str
    attempt: AttemptId
    host: str


Event = (
    WorkSubmitted
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
    | PilotCloseRequested
    | ClusterJoined
    | ClusterChanged
    | ClusterLeft
    | StoreRestored
    | ClusterConnected
    | ClusterLost
    | ClusterMeasured
    | MeasurementFailed
    | FilesMoved
    | FilesStaged
    | AttemptSubmitted
    | SubmissionFailed
    | BatchStatusSeen
    | WrapperReported
    | AttemptCleanedUp
    | AttemptStuck
    | AttemptsAccounted
    | OutputCollected
    | AttemptForgotten
    | AdsCompared
    | PruneRequested
    | OutputKept
    | NotificationDue
    | NotificationTried
    | ParametersEnded
    | ParametersReturned
    | ParametersWanted
    | LaunchersSeen
    | LauncherSuspected
    | NeighbourJoined
    | NeighbourLeft
    | NeighbourConnected
    | NeighbourLost
    | LeaseEndRequested
    | LeaseExamined
    | MessageReceived
)

NeighbourEvent = (
    NeighbourJoined
    | NeighbourLeft
    | NeighbourConnected
    | NeighbourLost
    | LeaseEndRequested
    | LeaseExamined
    | MessageReceived
)
