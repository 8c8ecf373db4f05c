"""koalad itself: status, maintenance, usage, disk space, unreadable records and journal."""

from typing import Any, Literal

from typing_extensions import TypedDict

from koalapy.answers.clusters import Login, UnknownTags
from koalapy.answers.fields import Instant

RecoveryKind = Literal[
    "nothing_recovered", "queue_recovered", "sweeps_recovered", "outbox_recovered", "pending_cancels_recovered",
    "attempt_found",
    "attempt_ended",
    "attempt_lost", "attempt_submitted", "attempt_refused", "attempt_cancelled", "cancel_completed", "job_released",
    "job_given_back", "output_collected", "directories_forgotten", "store_restored", "attempt_recalled",
    "host_slept",
]  # fmt: skip


class PendingCancel(TypedDict):
    """A batch job that is to be cancelled when its cluster can be reached."""

    attempt: str
    cluster: str
    batch_id: str | None
    since: Instant
    reason: str | None
    """Why the batch system does not end the job, although the cluster can be reached."""


class JobsRecovered(TypedDict):
    """How many jobs there were in each state when koalad started."""

    blocked: int
    waiting: int
    held: int
    claiming: int
    running: int
    stopping: int


class RecoveryLine(TypedDict):
    """An item that was recovered at koalad's start, or cleaned up since."""

    at: Instant
    kind: RecoveryKind
    text: str
    """A sentence."""
    job: int | None
    attempt: str | None
    """Written as job.component.number."""
    cluster: str | None


class Recovery(TypedDict):
    """The state in which koalad started, what is still open of it, and the newest lines."""

    at: Instant
    jobs: JobsRecovered
    jobs_at_barrier: int
    """Jobs with components at a barrier."""
    attempts: int
    """Attempts that may have had a batch job."""
    attempts_unreported: int
    """Attempts among them without a report since."""
    commands: int
    """Commands in the outbox; they are sent again as their clusters connect."""
    commands_unconfirmed: int
    """Commands among them that no cluster has confirmed."""
    pending_cancels: int
    lines: list[RecoveryLine]
    lines_dropped: int
    """Number of dropped lines, which are older than those in `lines`."""


class RunnersAtWork(TypedDict):
    """Numbers of sweeps that are not final."""

    active: int
    waiting: int
    """Sweeps that wait to be admitted or are held."""
    nodes: int
    """Nodes of sweeps."""


KoaladState = Literal["ready", "stopping", "store_failing", "broken", "standing_by", "taken_over"]


class KoaladFacts(TypedDict):
    """The process of koalad."""

    pid: int
    grid: str
    grid_file: str
    """Absolute path that koalad was started with."""
    grid_file_changed: bool
    """Whether the file was changed or removed since koalad's start."""
    state: KoaladState


class StatusAnswer(KoaladFacts):
    """The state of koalad."""

    schema: Literal["koala.status/1"]
    version: str
    pending_cancels: list[PendingCancel]
    troubles: list[str]
    logins_required: list[Login]
    """Logins that need a person."""
    runners: RunnersAtWork
    recovery: Recovery
    unknown_tags: UnknownTags


class DownAnswer(TypedDict):
    """The shutdown of koalad."""

    schema: Literal["koala.down/1"]
    grid: str
    cancel: bool


class MaintenanceRun(TypedDict):
    """A run of a maintenance task."""

    name: str
    task: str
    began_at: Instant
    ended_at: Instant | None
    """End of the run; null while it runs, and if koalad ended during it."""
    ok: bool
    """Whether nothing needs to be done."""
    message: str
    """Sentences."""


class MaintenanceTask(TypedDict):
    """A maintenance task of the grid file."""

    name: str
    task: str
    cron: str
    next_at: Instant | None
    last: MaintenanceRun | None


class MaintenanceAnswer(TypedDict):
    """The maintenance tasks of the grid file."""

    schema: Literal["koala.maintenance/1"]
    tasks: list[MaintenanceTask]


class MaintenanceRunAnswer(TypedDict):
    """A run of a maintenance task."""

    schema: Literal["koala.maintenance-run/1"]
    dry_run: bool
    run: MaintenanceRun


class Used(TypedDict):
    """Processor-seconds: processors times the time from the start to the end of each batch job, in four parts."""

    held: float
    """Time at the barrier, before the release of the job."""
    run: float
    """Time after the release, in the last try of the job."""
    lost: float
    """Time after the release, in tries that were followed by another."""
    scavenged: float
    """Time of Launchers of sweeps."""
    total: float
    """Sum of the four."""
    open: float
    """Part of attempts that still run."""
    estimated: float
    """Part that is not confirmed by the batch system's accounting."""
    attempts: int
    """Attempts that ended within the time, or still run."""
    on_pilots: float
    """Time of attempts on pilots; it is within the pilots' own, and therefore not in `total`."""
    used: float
    """Part of the pilots' time that attempts on them used."""


class Leased(TypedDict):
    """Processor-seconds of leases, as their lenders have charged them."""

    lent: float
    borrowed: float
    difference: float
    """The part of `borrowed` beyond what this site has measured; negative if it was charged less."""
    leases: int
    """Leases that ended within the time."""
    lent_now: float
    """Of leases that go on; it is not charged yet."""
    borrowed_now: float


class UsageRow(Used):
    """A sum. Keys that it is not summed by are null."""

    user: str | None
    cluster: str | None
    job: int | None
    """Job; the sweep for a Launcher."""
    name: str | None
    day: str | None
    """Day in UTC, such as 2030-01-31."""
    site: str | None
    """Neighbour on whose processors it ran, or for which it held some here; null for neither."""
    leased: Leased | None
    """Only by site, and of a neighbour."""


class UsageAnswer(TypedDict):
    """Sums of processor-seconds."""

    schema: Literal["koala.usage/1"]
    by: Literal["user", "cluster", "job", "day", "site"]
    since: Instant | None
    until: Instant | None
    rows: list[UsageRow]
    total: Used
    leased: Leased | None
    """Of all neighbours; null unless by site."""


class DiskPlace(TypedDict):
    """Disk space of this store in a cluster's shared directory, or of koalad's state directory."""

    place: str
    """Name of the cluster, or `here`."""
    here: bool
    """Whether this is koalad's state directory."""
    at: Instant | None
    """Time of the count; null: it was never counted."""
    bytes: int
    """Bytes on disk."""
    complete: bool
    """Whether all was counted; if not, there are more bytes."""
    directories: int
    """Number of directories: of attempts on a cluster, of jobs with fetched output here."""
    parts: dict[str, int]
    """Bytes by part: attempts and staged on a cluster; store, output, staged and log here."""
    reason: str | None
    """Why it could not be counted now."""


class DiskAnswer(TypedDict):
    """The disk space that koalapy uses."""

    schema: Literal["koala.disk/1"]
    places: list[DiskPlace]


class UnreadableRecord(TypedDict):
    """A record that is set aside. Nothing is done with its job until it is repaired."""

    record: str
    """Name of the record for `koala repair`."""
    kind: Literal["job", "attempt", "pilot", "command", "results", "history", "learned"]
    job: int | None
    """Job that the record is about, if known."""
    reason: str
    """The problem, and what to do."""


class UnreadableAnswer(TypedDict):
    """Records of the store that cannot be read."""

    schema: Literal["koala.unreadable/1"]
    records: list[UnreadableRecord]


class JournalBatch(TypedDict):
    """Events that were handled together, and the commands that followed."""

    now: int
    """Microseconds since 1970."""
    events: list[Any]
    commands: list[Any] | None
    """Commands; null if the engine failed."""
    hints: list[Any]
    """Hints, which are not stored."""


class JournalAnswer(TypedDict):
    """The last batches of events and commands."""

    schema: Literal["koala.journal/1"]
    koalapy: str
    """Release that wrote the journal, and can replay it."""
    error: str
    """Error of the last batch; empty if it did not fail."""
    settings: list[Any]
    """Settings of the grid file that decisions use."""
    start: list[Any]
    """The engine before the first batch."""
    batches: list[JournalBatch]
    values: list[Any]
    """Values that the other fields name as `#` and an index of this list."""
