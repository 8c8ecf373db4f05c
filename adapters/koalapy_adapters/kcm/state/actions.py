"""Actions of the KCM's machine, and their outcomes: plain values, no I/O.

Actions are in the imperative, outcomes in the past tense; each action but Send, SendToWrapper, SendChunk, EndSubmit and
Quit has exactly one outcome. Instants are integer microseconds of the KCM's clock, an error is a `messages.Failure` as
JSON.
"""

from typing import Any, Dict, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import Capacity, JobStatus
from koalapy_adapters.frames import Chunk

Json = Dict[str, Any]
SECOND = 1000000

# ---- actions ---------------------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """To koalad."""

    message: Any


class SendToWrapper(NamedTuple):
    """To the wrapper of this tag; dropped where it is not connected."""

    tag: str
    message: Any


class SendChunk(NamedTuple):
    """A chunk of a byte stream to koalad, behind all that is control. It may be dropped."""

    chunk: Chunk


class Prepare(NamedTuple):
    """Make the attempt's directory. -> Prepared"""

    tag: str
    batch: Json
    program: Json
    staged: List[List[Any]]
    number: int = 0  # the Submit's id


class SubmitJob(NamedTuple):
    """Put the prepared attempt into the batch system. -> JobSubmitted"""

    tag: str


class EndSubmit(NamedTuple):
    """End this tag's SubmitJob if it still runs; its outcome then shows how far it came."""

    tag: str


class Look(NamedTuple):
    """Look for the attempt by its tag in the queue, then in the accounting. -> Looked

    `submitting`: asked on the attempt's way into the batch system; the outcome states that too.
    """

    tag: str
    batch_id: str
    submitting: bool = False


class TakeStartLock(NamedTuple):
    """Take the attempt's start lock, so that it is void; make its directory if it has none. -> StartLockTaken"""

    tag: str


class CancelJob(NamedTuple):
    """-> JobCancelled

    `forced`: the batch system lists it all the same, although it has ended, or its user waits for nothing that is left
    of it: the batch system is asked to forget it.
    """

    tag: str
    batch_id: str
    forced: bool = False


class SuspendJob(NamedTuple):
    """Suspend the job, or resume it. -> JobSuspended"""

    tag: str
    batch_id: str
    suspended: bool


class CheckJobs(NamedTuple):
    """Ask the queue about these jobs in one call. -> JobsChecked"""

    batch_ids: List[str]


class Inspect(NamedTuple):
    """Look into the directories of these attempts, and whether a newer KCM is there. -> Inspected

    `submitting`: as in Look.
    """

    tags: List[str]
    submitting: bool = False


class Measure(NamedTuple):
    """-> CapacityMeasured"""


class FingerprintQueue(NamedTuple):
    """See whether others wait as they did. -> QueueFingerprinted"""


class ReadJournal(NamedTuple):
    """Read what a Launcher has written down of these numbers, [first, last] each. -> JournalRead"""

    tag: str
    ranges: List[List[int]]


class Remove(NamedTuple):
    """Remove the attempt's directory. -> Removed"""

    tag: str


class ListTags(NamedTuple):
    """Name the tags in the shared directory after this one; before the first also those in the queue. -> Listed"""

    id: int
    after: str


class ExamineTags(NamedTuple):
    """List what lies in the directories of these tags, of whichever store. -> Listed"""

    id: int
    tags: List[str]


class AccountJobs(NamedTuple):
    """Ask the accounting about these jobs, (tag, batch id) each. -> Listed"""

    id: int
    jobs: List[List[str]]
    since: int


class DiagnoseHead(NamedTuple):
    """Look at one thing on the head node. -> Listed"""

    id: int
    check: str


class DissolveStore(NamedTuple):
    """Remove all that the store has in the shared directory. -> Listed"""

    id: int


class Quit(NamedTuple):
    """End this KCM."""

    why: str


# ---- outcomes --------------------------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    tag: str
    error: Optional[Json] = None


class JobSubmitted(NamedTuple):
    """`error` with `doubt`: a batch job may exist all the same; without: surely none does."""

    tag: str
    batch_id: str = ""
    error: Optional[Json] = None
    doubt: bool = False


class Looked(NamedTuple):
    """`listed` by the queue, else `accounted` as over; neither: not there, if there is no error.

    `unaccounted`: the queue does not list it, and the error is that of the accounting.
    """

    tag: str
    listed: Optional[JobStatus] = None
    accounted: Optional[JobStatus] = None
    error: Optional[Json] = None
    submitting: bool = False
    unaccounted: bool = False


class StartLockTaken(NamedTuple):
    """`won`: no wrapper has the attempt and none can get it. Not won, without an error: a wrapper holds it."""

    tag: str
    won: bool = False
    error: Optional[Json] = None


class JobCancelled(NamedTuple):
    tag: str
    error: Optional[Json] = None


class JobSuspended(NamedTuple):
    """`suspended`: what was asked for."""

    tag: str
    suspended: bool
    error: Optional[Json] = None


class JobsChecked(NamedTuple):
    """The queue's view; a job that it no longer lists is not in `statuses`. `cost`: CPU time of it, microseconds."""

    batch_ids: List[str]
    statuses: Dict[str, JobStatus]
    error: Optional[Json] = None
    cost: int = 0


class DirectoryStatus(NamedTuple):
    """An attempt's directory: who holds the claim ("" nobody), the record, the heartbeat's time of change.

    `directory`: its path, if it exists. `output`: if nobody holds the claim, the batch job's output; None if that
    left no file.
    """

    start_lock: str = ""
    record: Optional[Json] = None
    heartbeat: int = 0
    directory: str = ""
    output: Optional[str] = None


class Inspected(NamedTuple):
    """`statuses` has an entry for every directory that exists; `epoch` is the newest KCM's."""

    tags: List[str]
    statuses: Dict[str, DirectoryStatus]
    epoch: int = 0
    error: Optional[Json] = None
    submitting: bool = False


class CapacityMeasured(NamedTuple):
    """`cost`: CPU time of the commands and of the KCM for them, microseconds."""

    started_at: int
    capacity: Optional[Capacity] = None
    error: Optional[Json] = None
    cost: int = 0


class QueueFingerprinted(NamedTuple):
    """`seen`: the same while the same jobs of others wait; None if that is unknown. `cost` as above."""

    seen: Optional[List[str]] = None
    cost: int = 0


class JournalRead(NamedTuple):
    """`results` as in messages.ParametersEnded, instants of the node's clock; `there`: whether there is a journal."""

    tag: str
    results: List[List[Any]] = []
    there: bool = True
    error: Optional[Json] = None


class Removed(NamedTuple):
    tag: str
    error: Optional[Json] = None


class Listed(NamedTuple):
    """The answer to the request `id`, as it goes to koalad."""

    id: int
    details: Json
    error: Optional[Json] = None


class WrapperConnected(NamedTuple):
    """`clock`: the wrapper's own, now."""

    tag: str
    clock: int


class OtherVersion(NamedTuple):
    """A wrapper of another version of koalapy asked to be let in, and cannot be. `released`: its program may run."""

    tag: str
    released: bool


class WrapperReported(NamedTuple):
    """A Report as JSON, its instants of the node's clock."""

    tag: str
    report: Json


class WrapperPut(NamedTuple):
    tag: str
    key: str
    value: str


class StreamFrameReceived(NamedTuple):
    """A wrapper passed on a frame of a byte stream: see streams.FRAMES."""

    tag: str
    frame: Any


class LauncherReported(NamedTuple):
    """A message of messages.launcher as JSON, its instants of the node's clock."""

    tag: str
    body: Json


class WrapperDisconnected(NamedTuple):
    """`closed`: by the wrapper or its node's kernel, so that the node was within reach; else it only fell silent."""

    tag: str
    closed: bool = False


class Woken(NamedTuple):
    """Something ended in the batch system: look soon."""
