"""Jobs: submitted, checked, listed, explained and changed ones."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from koalapy.answers.clusters import Choice
from koalapy.answers.errors import Reason
from koalapy.answers.fields import Instant
from koalapy.answers.koalad import UnreadableRecord
from koalapy.answers.sweeps import JobStateName, SweepProgress

ComponentStateName = Literal[
    "waiting", "submitting", "queued", "allocated", "at_barrier", "released", "running", "suspended", "unknown", "done",
    "failed", "cancelled", "not_started",
]  # fmt: skip
KeptOutput = Literal["none", "pending", "kept", "lost"]


class Component(TypedDict):
    """One component of a job. Instants are of koalad's clock."""

    index: int
    cluster: str | None
    named_cluster: str | None
    """Cluster that the user named; null: any."""
    processors: int
    walltime_s: float
    """Walltime that was asked for."""
    state: ComponentStateName
    """`not_started`: the job is final, and the component never started."""
    attempt: int
    batch_id: str | None
    hosts: list[str]
    """Node names, each once."""
    exit_status: int | None
    """128 + N if signal N ended it."""
    queued_at: Instant | None
    at_barrier_at: Instant | None
    released_at: Instant | None
    """When its wrapper received the release."""
    started_at: Instant | None
    """Just before its first program was started."""
    ended_at: Instant | None
    silent_since: Instant | None
    """Time of the wrapper's last sign of life; null while signs arrive."""
    reason: str | None


class Transfer(TypedDict):
    """A transfer of files to a cluster, or back."""

    direction: Literal["in", "out"]
    component: int | None
    """Null: all components."""
    cluster: str
    phase: Literal["waiting", "reading", "sending", "receiving"]
    files: int
    """Files in all; of a sweep, those known so far."""
    bytes: int
    """Size of all files."""
    bytes_moved: int
    """Bytes transferred, with those that were there already."""
    bytes_per_second: int
    """Mean over the last ten seconds."""
    file: str | None
    """File being transferred."""
    parameters_done: int | None
    """Number of parameters of the sweep whose files have arrived; null: not a sweep."""
    parameters: int | None
    """Number of parameters of the sweep; null: not a sweep."""


class FlowProgress(TypedDict):
    """How many jobs of a flow have ended; the others wait, are held or run. Their ids follow that of the flow."""

    jobs: int
    """Jobs in all."""
    done: int
    failed: int
    cancelled: int


class SentJob(TypedDict):
    """A job as the neighbouring site that runs it has reported it."""

    job: int | None
    """Its id there; null before the site has answered."""
    state: JobStateName
    jobs: int
    """Jobs in all; 1 if it is no flow."""
    done: int


class Job(TypedDict):
    """A job or a sweep; the fields that only jobs have are 0, empty or null for a sweep."""

    id: int
    name: str
    owner: str
    state: JobStateName
    priority: int
    labels: dict[str, str]
    type: Literal["ordered", "unordered", "mixed", "sweep", "flow", "pilot", "sent"]
    submitted_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    submission_failures: int
    completion_failures: int
    held_processor_seconds: float
    """Processors times seconds spent waiting at barriers."""
    reason: str | None
    reason_code: str | None
    kept_output: KeptOutput
    """Whether koalad's state directory has standard output and error (see keep_output). `lost`: a part is missing."""
    components: list[Component]
    """Components; none for a sweep or a flow."""
    transfers: list[Transfer]
    sweep: SweepProgress | None
    """Null: not a sweep."""
    flow: FlowProgress | None
    """Null: not a flow."""
    part_of: int | None
    """Flow whose job it is; null: it was submitted by itself."""
    site: str | None
    """Neighbouring site that runs it; null: this one."""
    sent: SentJob | None
    """What that site has reported of it; null before it was sent."""
    after: list[int]
    """Jobs that must be done before it may begin."""
    choices: list[Choice]
    """Clusters or groups of clusters on which it can run, in the order in which they are tried; none without a list."""
    choice: int | None
    """Place of the choice that it has now, from 0; null without a list."""
    suspended_for: int | None
    """Job of higher priority that has its processors meanwhile; null: it is not suspended for another."""


class JobEvent(TypedDict):
    """One line of a job's history; further fields depend on its kind."""

    at: Instant
    kind: str
    text: str
    """A sentence."""


class SweepParameter(TypedDict):
    """The values of one name of a sweep, or of several together, as one of `loop`, `values` and `file`."""

    names: list[str]
    loop: list[str] | None
    """First, last and step."""
    without: list[str]
    """Values that the loop leaves out."""
    values: list[str]
    file: str | None
    """File in the program's directory; each of its lines is a value."""
    column: int | None
    """Column of a file whose columns are parameters, from 0."""


class JobRequest(TypedDict):
    """The request of a job."""

    directory: str
    """Absolute path to which the paths of the job are relative."""
    job: dict[str, Any]
    """Job in the form of a job file, without keys that have their default."""
    parameters: list[SweepParameter]
    """Parameters of a sweep."""


class Notify(TypedDict):
    """A recipient of notifications."""

    to: str
    """Recipient, without the secrets that a URL or a command may hold."""
    on: list[Literal["started", "done", "failed", "cancelled"]]
    """Changes of which it is notified."""


class Candidate(TypedDict):
    """One of the attempts of a component that waited in several batch queues at once."""

    component: int
    attempt: int
    cluster: str
    batch_id: str | None
    """Null before the batch system has accepted it."""
    queued_at: Instant
    """When koalad decided that it enters the queue."""
    ended: Literal["won", "lost", "cancelled"] | None
    """Null: it waits. `won`: it was the first to start. `lost`: it was refused, or ended by itself."""


class JobAnswer(TypedDict):
    """A job, its request and its history."""

    schema: Literal["koala.job/1"]
    job: Job
    request: JobRequest
    notify: list[Notify]
    candidates: list[Candidate]
    """Of its last try, in the order in which they were queued; none if no component waited in several queues."""
    events: list[JobEvent]
    jobs: NotRequired[list[Job]]
    """Jobs of a flow; present in `koala show --json` only."""


class JobsAnswer(TypedDict):
    """Several jobs."""

    schema: Literal["koala.jobs/1"]
    jobs: list[Job]
    unreadable: NotRequired[list[UnreadableRecord]]
    """Present in `koala jobs --json` only."""


class SubmitAnswer(TypedDict):
    """An accepted job."""

    schema: Literal["koala.submit/1"]
    id: int
    accepted_s: float
    """Time from reading the request to its commit, measured by koalad."""


class SubmitsAnswer(TypedDict):
    """Several accepted jobs."""

    schema: Literal["koala.submits/1"]
    ids: list[int]
    """In the order of the jobs."""


class Lack(Reason):
    """Something that a cluster lacks for a component."""

    component: int
    cluster: str


class CheckedJob(TypedDict):
    """A job that was checked, but not submitted."""

    request: JobRequest
    parameters: int | None
    """Number of parameters of a sweep; null for all other jobs."""
    fits: Literal["yes", "never", "unknown"]
    """Whether it fits on its clusters when nobody else is there."""
    reason: Reason | None
    """Why it would fail at once."""
    unknown_clusters: list[str]
    """Clusters on which it depends, and whose size is not known now."""
    lacks: list[Lack]
    """Why it would wait, if too few clusters meet its requirements now: what each of the others lacks."""


class CheckAnswer(TypedDict):
    """Several checked jobs."""

    schema: Literal["koala.check/1"]
    jobs: list[CheckedJob]
    """In the order of the jobs."""


class FetchAnswer(TypedDict):
    """Files that were fetched, or are being fetched: repeat the request to wait."""

    schema: Literal["koala.fetch/1"]
    id: int
    state: Literal["fetched", "fetching"]
    files: int | None
    bytes: int | None
    missing: list[str]
    """Names that no component has left; of a sweep, the first hundred."""
    lack: str | None
    """Sentence that names what is missing; null if nothing is."""
    notes: list[str]
    """Sentences on files that were not fetched."""


class PortAnswer(TypedDict):
    """Where a port of a running job is."""

    schema: Literal["koala.port/1"]
    id: int
    component: int
    cluster: str
    rank: int
    """Rank in the component, on whose node the port is."""
    port: int
    """Port of 127.0.0.1 there."""


class TerminalAnswer(TypedDict):
    """Where the terminal of a running interactive job is."""

    schema: Literal["koala.terminal/1"]
    id: int
    cluster: str
    kind: Literal["terminal", "input"]
    """`input`: a standard input without a terminal."""
    attached: bool
    """Whether a client is attached."""
    slow: bool
    """Whether its bytes travel in files, for up to seconds each way."""


class Refusal(TypedDict):
    """A job that could not be changed, and why."""

    id: int
    error: Reason


class ChangedAnswer(TypedDict):
    """Jobs after a change of many."""

    schema: Literal["koala.changed/1"]
    jobs: list[Job]
    refused: list[Refusal]
    """Jobs that do not exist or are in a state that does not allow it."""


class NoMoreNodes(TypedDict):
    """A cluster that gives a sweep no more nodes now."""

    cluster: str
    reason: str


class NotBorrowed(TypedDict):
    """A neighbouring site that lends nothing for a waiting job now."""

    site: str
    reason: str


class Held(TypedDict):
    """A component whose processors wait at its barrier."""

    component: int
    cluster: str
    processors: int
    since: Instant
    processor_seconds: float
    """What the wait has cost so far."""


class ExplainAnswer(TypedDict):
    """Why a job is in its state."""

    schema: Literal["koala.explain/1"]
    id: int
    state: JobStateName
    summary: str
    notes: list[str]
    """Sentences on files of a final job that were not fetched."""
    reason: Reason | None
    lacks: list[Lack]
    not_borrowed: list[NotBorrowed]
    no_more_nodes: list[NoMoreNodes]
    held: list[Held]
    """Components of a claiming job that wait at their barriers."""
    gives_back_at: Instant | None
    """When a claiming job gives back what is held; null if no such time runs."""


class TreeJob(TypedDict):
    """A job of a flow, in its tree."""

    id: int
    name: str
    state: JobStateName
    level: int
    """Level in the tree, from 0: one below that of the last job that it waits for."""
    others: int
    """How many further jobs of the flow it waits for."""
    other_names: list[str]
    """Names of the first few of these."""
    site: str | None
    sent: SentJob | None
    reason: str | None


class TreeAnswer(TypedDict):
    """A part of the tree of a flow: a bounded answer for any number of jobs."""

    schema: Literal["koala.tree/1"]
    id: int
    levels: int
    """Levels of the whole tree."""
    states: dict[JobStateName, int]
    """Jobs of the whole tree by state."""
    jobs: list[TreeJob]
    """Jobs in the order of the tree: each is followed by those below it."""
    more: int
    """Jobs behind these."""
