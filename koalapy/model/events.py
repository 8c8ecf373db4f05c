"""What the engine is told, each named in the past tense. All instants are koalad's clock."""

from dataclasses import dataclass

from koalapy.model.cluster import ClusterState, Node
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.sweep import ParameterResult
from koalapy.model.units import Instant
from koalapy.model.usage import BatchSpan

# ---- from users


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """`key` is the client's own; a job of that key that exists already is not made again."""

    request: Request
    owner: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """`force`: do not wait for a cluster out of reach; what may be left there becomes a debt."""

    job: JobId
    force: bool = False


@dataclass(frozen=True, slots=True)
class HoldRequested:
    job: JobId


@dataclass(frozen=True, slots=True)
class ReleaseRequested:
    job: JobId


# ---- from links to clusters: `cluster` is the one that says so, and speaks for itself only (coallocation.event_origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRestored:
    """The clusters were told more than this store knows: it was restored from a backup, and koalad went on after it.

    `epoch` and `last_number` lie beyond all that were used.
    """

    epoch: int
    last_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnected:
    """`recalled`: attempts of doubtful jobs (see Counters) that have left a trace there; None if it cannot be said."""

    cluster: str
    version: str
    recalled: tuple[AttemptId, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLost:
    """The connection is gone, or could not be made; `reason` says why in one sentence."""

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
    """What the attempt needs is on its way to its cluster, and has come on since the last time."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class FilesStaged:
    """All that the attempt needs is there: `files`, of `size` bytes; `version` is a hash of all that it finds."""

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
    """The batch system's own view: queued, held, running, suspended, ended or missing (no longer listed).

    `stuck`: the code of a pending reason that cannot clear. `ending`, once ended: exited, killed, lost, walltime,
    memory, cancelled or "" where the batch system does not tell. `silent_since`: though it runs by this view, its
    wrapper has given no sign of life since then.
    """

    attempt: AttemptId
    batch_id: str
    at: Instant
    state: str
    words: str = ""
    stuck: str = ""
    exit_status: int | None = None
    ending: str = ""
    cluster: str = ""
    silent_since: Instant | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class WrapperReported:
    """All that the wrapper knows of its attempt; the same may be told again, and steps may be skipped.

    `phase`: started (the batch job runs), at_barrier, released, running, ended. `ending`, once ended: exited, killed,
    walltime, left_barrier, void, restarted, cancelled, or failed (could not start; `reason` says why).
    """

    attempt: AttemptId
    batch_id: str
    phase: str
    nodes: tuple[Node, ...] = ()
    at_barrier_at: Instant | None = None
    released_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    exit_status: int | None = None
    ending: str = ""
    reason: Reason | None = None
    cluster: str = ""
    began_at: Instant | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCleanedUp:
    """After a cancel: no batch job of this attempt is left, and none that comes late can run its program."""

    attempt: AttemptId
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStuck:
    """After a cancel: its batch system lists it still, and will until its administrator helps. It is cancelled on."""

    attempt: AttemptId
    reason: Reason
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsAccounted:
    """What the accounting of a batch system says of attempts that have ended."""

    cluster: str
    spans: tuple[BatchSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCollected:
    """The job's staged-out files are where its user wanted them; `reason` if not all of them are.

    `notes`: sentences on what was left out all the same.
    """

    job: JobId
    reason: Reason | None = None
    files: int = 0
    size: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputKept:
    """Standard output and error of the components of a job that is over are at home; `reason` if not all of them are.

    `job`: its record, which the engine has forgotten. `size`: bytes that are here; `left_out`: bytes that are not,
    since there were too many. `notes`: sentences on what was not there.
    """

    job: Job
    reason: Reason | None = None
    size: int = 0
    left_out: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptForgotten:
    """The answer to ForgetAttempt: its directory is removed, or the KCM `refused` to remove it."""

    cluster: str
    attempt: AttemptId
    refused: Reason | None = None


# ---- from maintenance


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRequested:
    """Jobs, sweeps and Launchers as the store has them: what was final before this instant of them is to go.

    First the directories of their attempts; then, with `records`, the record, the history and the results. A sweep is
    named only when the store has none of its Launchers any more. `without`: clusters whose directories stay.
    """

    jobs: tuple[Job, ...]
    before: Instant
    records: bool
    without: tuple[str, ...] = ()


# ---- from Launchers, through their KCMs


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersEnded:
    """Parameters that a Launcher has run; the same may be told again. A Launcher's end is told after all of its."""

    cluster: str
    sweep: JobId
    attempt: AttemptId
    results: tuple[ParameterResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersReturned:
    """Parameters that were out there and are in nobody's hands any more, unfinished; `begun` of them had been begun."""

    cluster: str
    sweep: JobId
    numbers: Intervals
    begun: Intervals = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersWanted:
    """The KCM could use so many more to keep its credit; it asks again when it has less."""

    cluster: str
    sweep: JobId
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchersSeen:
    """Of each Launcher, once a second at most: (attempt, parameters that run, instant of the newest pull)."""

    cluster: str
    launchers: tuple[tuple[AttemptId, int, Instant], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherSuspected:
    """All its first parameters failed at once: it keeps their results to itself and pulls no more until it is trusted,
    or gives them back when it is ended."""

    cluster: str
    attempt: AttemptId
    host: str


Event = (
    JobSubmitted
    | CancelRequested
    | HoldRequested
    | ReleaseRequested
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
    | PruneRequested
    | OutputKept
    | ParametersEnded
    | ParametersReturned
    | ParametersWanted
    | LaunchersSeen
    | LauncherSuspected
)
