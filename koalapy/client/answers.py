"""The answers of `Grid`, for editors and type checkers: the JSON documents of the API as typed dictionaries.

Instants are RFC 3339 in UTC, such as 2026-01-31T12:00:00.000000Z.
"""

from typing import Any, Literal, TypedDict

JobStateName = Literal["waiting", "held", "claiming", "running", "stopping", "done", "failed", "cancelled"]
ComponentStateName = Literal[
    "waiting", "submitting", "queued", "at_barrier", "released", "running", "suspended", "unknown", "done", "failed",
    "cancelled", "not_started",
]  # fmt: skip
Ending = Literal["exited", "killed", "walltime", "output", "failed"]
RecoveryKind = Literal[
    "nothing_recovered", "queue_recovered", "sweeps_recovered", "outbox_recovered", "debts_recovered", "attempt_found",
    "attempt_ended",
    "attempt_lost", "attempt_submitted", "attempt_refused", "attempt_cancelled", "debt_settled", "job_released",
    "job_given_back", "output_collected", "directories_forgotten", "store_restored", "attempt_recalled",
    "host_slept",
]  # fmt: skip
Whose = Literal["transient", "cluster", "request", "ours"]


class Submitted(TypedDict):
    schema: Literal["koala.submit/1"]
    id: int
    accepted_s: float  # from the request, read, to its commit, as koalad measured it


class CheckedJob(TypedDict):
    """A job that was not submitted."""

    request: "JobRequest"
    parameters: int | None  # of a sweep
    fits: Literal["yes", "never", "unknown"]  # when nobody else is on its clusters
    reason: "Reason | None"  # why it would fail at once
    unseen: list[str]  # clusters on which it depends, and whose size is not known now


class Checked(TypedDict):
    """Jobs as koalad understands them, in the order in which they were given."""

    schema: Literal["koala.check/1"]
    jobs: list[CheckedJob]


class Component(TypedDict):
    """One component of a job; instants are of koalad's clock."""

    index: int
    cluster: str | None
    named_cluster: str | None  # that the user named; null: any
    processors: int
    walltime_s: float  # that was asked for
    state: ComponentStateName  # not_started: the job is over, and it never began
    attempt: int
    batch_id: str | None
    hosts: list[str]  # node names, each once
    exit_status: int | None  # 128 + N for signal N
    queued_at: str | None
    at_barrier_at: str | None
    released_at: str | None  # when its wrapper received the release
    started_at: str | None  # just before its first program was started
    ended_at: str | None
    silent_since: str | None  # nothing is heard of its wrapper since; null: it is
    reason: str | None


class Transfer(TypedDict):
    """Files on their way to a cluster, or back."""

    direction: Literal["in", "out"]
    component: int | None  # null: all components
    cluster: str
    phase: Literal["waiting", "reading", "sending", "receiving"]
    files: int  # of a sweep, those known so far
    bytes: int  # size of all files
    bytes_moved: int  # with those that were there already
    bytes_per_second: int  # over the last ten seconds
    file: str | None  # being transferred
    parameters_done: int | None  # of the sweep's parameters, those whose files have arrived
    parameters: int | None  # of the sweep


class Counts(TypedDict):
    """Of parameters."""

    parameters: int
    done: int  # with any outcome
    failed: int  # of those done, the ones that did not end with 0
    out: int  # with clusters, and not done
    preempted: int  # begun, given up when their node had to go, and to be begun anew


class SweepProgress(Counts):
    """How far a sweep is."""

    clusters: list[str]  # those that parameters are out on


class Job(TypedDict):
    id: int
    name: str
    owner: str
    state: JobStateName
    priority: int
    labels: dict[str, str]
    type: Literal["ordered", "unordered", "mixed", "sweep"]
    submitted_at: str
    started_at: str | None
    finished_at: str | None
    submission_failures: int
    completion_failures: int
    held_processor_seconds: float  # spent waiting at barriers
    reason: str | None
    reason_code: str | None
    output_home: Literal["none", "coming", "home", "lost"]  # of output and error; lost: not all, for good
    components: list[Component]  # empty for a sweep
    transfers: list[Transfer]
    sweep: SweepProgress | None  # null: not a sweep


class SweepParameter(TypedDict):
    """What one name of a sweep, or several together, stands for: one of `loop`, `values` and `file`."""

    names: list[str]
    loop: list[str] | None  # first, last and step
    without: list[str]  # values that the loop leaves out
    values: list[str]
    file: str | None  # each of its lines is a value; it lies in the program's directory
    column: int | None  # from 0: of a file whose columns are parameters


class JobRequest(TypedDict):
    """What a job runs."""

    directory: str  # absolute; the paths of the job are relative to it
    job: dict[str, Any]  # as in a job file, without keys that have their default
    parameters: list[SweepParameter]  # of a sweep


class JobEvent(TypedDict):
    """One line of a job's story; further fields depend on its kind."""

    at: str
    kind: str
    text: str  # a sentence


class JobStory(TypedDict):
    schema: Literal["koala.job/1"]
    job: Job
    request: JobRequest
    events: list[JobEvent]


class Reason(TypedDict):
    """One sentence of what is wrong and one of what to do; the batch system's words, where it had a say."""

    code: str
    whose: Whose  # whose move it is
    message: str
    advice: str
    command: str | None
    exit_status: int | None
    words: str | None


class Refusal(TypedDict):
    id: int
    error: Reason


class Changed(TypedDict):
    schema: Literal["koala.changed/1"]
    jobs: list[Job]
    refused: list[Refusal]  # jobs that are not there, or with which it cannot be done


class Fetched(TypedDict):
    """Files that were brought once more, or are being brought: ask again to wait."""

    schema: Literal["koala.fetch/1"]
    id: int
    state: Literal["fetched", "fetching"]
    files: int | None
    bytes: int | None
    missing: list[str]  # names that no component has left; of a sweep's the first hundred
    lack: str | None  # what is missing, in a sentence; null if nothing is
    notes: list[str]  # sentences on what was left out


class Lack(Reason):
    """What a cluster lacks for a component."""

    component: int
    cluster: str


class NoMoreNodes(TypedDict):
    """A cluster that gives a sweep no more nodes now."""

    cluster: str
    why: str


class Explanation(TypedDict):
    schema: Literal["koala.explain/1"]
    id: int
    state: JobStateName
    summary: str
    notes: list[str]  # of a job that is over: sentences on files that were not brought
    reason: Reason | None
    lacks: list[Lack]
    no_more_nodes: list[NoMoreNodes]


class RunnerCluster(TypedDict):
    """What a sweep has on one cluster."""

    cluster: str
    nodes: int  # of its Launchers, those that are going or suspended included
    processors: int
    starting: int  # Launchers whose batch job waits
    going: int  # Launchers that were asked to end
    suspended: int  # of the nodes, those whose batch system lets nothing of it run now
    running: int | None  # parameters that run; null: not known
    out: int  # parameters that are there and not done
    owed: int  # nodes that were taken from it for others' jobs
    left_out: list[str]  # nodes on which everything fails at once


class Runner(Counts):
    """A sweep and its CS-Runner."""

    id: int
    name: str
    owner: str
    state: JobStateName
    submitted_at: str
    admitted_at: str | None
    finished_at: str | None
    running: int | None  # parameters that run; null: not known
    waiting: int  # parameters that are neither done nor with a cluster
    parameters_per_minute: float | None  # over the last minute
    ends_at: str | None  # estimated by that
    charged_processor_seconds: float  # of all its allocations, idle time in them included
    reason: str | None
    clusters: list[RunnerCluster]


class Admission(TypedDict):
    """Nodes of all clusters that sweeps can expect, as koalad predicts them, and how well it has predicted."""

    expected_nodes: float  # in the mean, over the next hour
    predicted_nodes: float | None  # of the last hour, when it began
    nodes: float | None  # what came true of that
    mean_error: float | None  # of all predictions whose time is over, in nodes


class Runners(TypedDict):
    schema: Literal["koala.runners/1"]
    runners: list[Runner]
    admission: Admission


class Result(TypedDict):
    """One parameter that is done."""

    parameter: int  # its number in the sweep as written, from 1
    values: dict[str, str] | None  # by name; null: their file is not there any more
    exit_status: int  # 128 + N for signal N
    ending: Ending  # output: it wrote more than it may; failed: it could not be started
    cluster: str
    host: str
    started_at: str
    ended_at: str
    output_bytes: int
    error_bytes: int


class Cluster(TypedDict):
    """Numbers are processors; null until they are known."""

    name: str
    batch: str
    version: str | None
    connection: Literal["up", "down", "connecting", "asks"]  # asks: a person must log in
    total: int | None
    ours: int | None
    scavenged: int | None
    others: int | None
    waiting_local: int | None  # others' jobs that wait for resources
    idle: int | None  # what could be started now, promises taken off
    promised: int
    unit: str | None  # core or thread
    age_s: float | None
    reason: str | None  # why nothing is placed there
    foreign: int  # reports about other clusters' attempts since koalad's start; ignored


class Prompt(TypedDict):
    text: str
    echo: bool  # whether typed text may be shown


class Question(TypedDict):
    """What a login asks, as its server words it."""

    number: int
    title: str
    instructions: str
    prompts: list[Prompt]


class Login(TypedDict):
    """How the login on a cluster stands."""

    cluster: str
    state: Literal["connected", "connecting", "asks", "unreachable"]
    trying: bool  # what a person has begun has not come to its end yet
    version: int  # grows with every change
    reason: Reason | None  # why it is not connected
    notices: list[str]  # messages of the login that need no answer
    question: Question | None  # what waits for an answer
    may_ask: bool  # a login of this kind can ask something


class Debt(TypedDict):
    """A batch job that is to be cancelled when its cluster can be reached.

    `reason`: it can be, but its batch system does not end the job, for this reason."""

    attempt: str
    cluster: str
    batch_id: str | None
    since: str
    reason: str | None


class RunnersAtWork(TypedDict):
    """Sweeps that are not over."""

    active: int
    waiting: int  # to be admitted, or held
    nodes: int  # that they have


class JobsRecovered(TypedDict):
    """How many jobs there were in each state when koalad started."""

    waiting: int
    held: int
    claiming: int
    running: int
    stopping: int


class RecoveryLine(TypedDict):
    """One thing that was recovered at koalad's start, or cleaned up since."""

    at: str
    kind: RecoveryKind
    text: str  # a sentence
    job: int | None
    attempt: str | None  # job.component.number
    cluster: str | None


class Recovery(TypedDict):
    """What koalad started from, what is still open of it, and the newest lines."""

    at: str
    jobs: JobsRecovered
    jobs_at_barrier: int  # jobs with components at a barrier
    attempts: int  # those that may have had a batch job
    attempts_unheard: int  # of them, those without a report since
    commands: int  # in the outbox: sent again, in doubt, as their clusters connect
    commands_unconfirmed: int  # of them, those that no cluster has answered yet
    debts: int
    lines: list[RecoveryLine]
    lines_dropped: int  # older than those in `lines`


class UnknownTag(TypedDict):
    """A tag on a cluster that this store does not know: a batch job, a directory or both."""

    cluster: str
    tag: str
    store: str  # the store that the tag names
    own: bool  # it names this store: an attempt from after a backup, or of a pruned job
    attempt: str  # job.component.number, in the store that the tag names
    batch_id: str | None
    batch_state: str | None
    directory: bool
    wrapper: Literal["alive", "silent", "ended", "none"]
    heartbeat_age_s: float | None  # since its wrapper's last sign of life
    age_s: float | None  # of its directory


class UnknownTags(TypedDict):
    """As they were seen when their clusters connected, or when they were last asked for."""

    count: int
    first: list[UnknownTag]


class DiskPlace(TypedDict):
    """A cluster's shared directory, as far as it is this store's, or koalad's state directory."""

    place: str  # the cluster's name, or here
    here: bool  # koalad's state directory
    at: str | None  # when it was counted; null: it never was
    bytes: int  # on disk
    whole: bool  # false: there was too much to count, and there are more bytes
    directories: int  # of attempts, on a cluster; of jobs whose output is at home, here
    parts: dict[str, int]  # bytes: attempts and staged; here: store, output, staged and log
    reason: str | None  # why it could not be counted now


class Disk(TypedDict):
    schema: Literal["koala.disk/1"]
    places: list[DiskPlace]


class JournalBatch(TypedDict):
    """Events that were handled together, and what came of them."""

    now: int  # microseconds since 1970
    events: list[Any]
    commands: list[Any] | None  # None: the engine failed
    words: list[Any]  # hints, which no store keeps


class Journal(TypedDict):
    schema: Literal["koala.journal/1"]
    koalapy: str  # the release that wrote it, which can replay it
    error: str  # how the last batch failed; empty: it did not
    settings: list[Any]  # what the grid file says for decisions
    start: list[Any]  # the engine before the first batch
    batches: list[JournalBatch]
    values: list[Any]  # what the others name as `#` with its place here


class Status(TypedDict):
    schema: Literal["koala.status/1"]
    pid: int
    version: str
    grid: str
    grid_file: str  # the absolute path that koalad was started with
    grid_file_changed: bool  # it has another text than koalad read at its start, or is gone
    state: Literal["ready", "stopping", "store_failing", "broken", "standing_by", "taken_over"]
    debts: list[Debt]
    troubles: list[str]
    asks: list[Login]  # logins that wait for a person
    runners: RunnersAtWork
    recovery: Recovery
    unknown_tags: UnknownTags


class Surveyed(TypedDict):
    cluster: str
    at: str
    reason: str | None  # why it could not be asked; its tags are then those seen before


class Unknown(TypedDict):
    schema: Literal["koala.unknown/1"]
    tags: list[UnknownTag]
    clusters: list[Surveyed]


class Cleaned(TypedDict):
    schema: Literal["koala.clean/1"]
    cluster: str
    tag: str
    state: Literal["cleaned", "cleaning"]


class UnreadableRecord(TypedDict):
    """A record that is set aside. Nothing is done with its job until it is repaired."""

    record: str  # as `koala repair` takes it
    kind: Literal["job", "debt", "command", "results", "history", "learned"]
    job: int | None  # that it is about, if that is known
    reason: str  # what is wrong with it, and what to do


class Unreadable(TypedDict):
    schema: Literal["koala.unreadable/1"]
    records: list[UnreadableRecord]


class Used(TypedDict):
    """Processor-seconds: processors times the time from the start to the end of each batch job, in four parts."""

    held: float  # before the release of the job, at the barrier
    run: float  # after it, in the last try of the job
    lost: float  # after it, in tries that were followed by another
    scavenged: float  # by Launchers of sweeps
    total: float  # the sum of the four
    open: float  # the part of attempts that go on
    estimated: float  # the part of attempts of which no batch system's accounting has told
    attempts: int  # that ended within, or go on


class UsageRow(Used):
    """Keys that it is not summed by are null."""

    user: str | None
    cluster: str | None
    job: int | None  # of a Launcher its sweep
    name: str | None
    day: str | None  # in UTC, as 2030-01-31


class Usage(TypedDict):
    schema: Literal["koala.usage/1"]
    by: Literal["user", "cluster", "job", "day"]
    since: str | None
    until: str | None
    rows: list[UsageRow]
    total: Used


class MaintenanceRun(TypedDict):
    """One run of a task. `ended_at` is null while it runs, and if koalad's end cut it off."""

    name: str
    task: str
    began_at: str
    ended_at: str | None
    well: bool  # nothing needs to be done
    message: str  # sentences


class MaintenanceTask(TypedDict):
    """One entry of the grid file."""

    name: str
    task: str
    cron: str
    next_at: str | None
    last: MaintenanceRun | None


class Maintenance(TypedDict):
    schema: Literal["koala.maintenance/1"]
    tasks: list[MaintenanceTask]


class Maintained(TypedDict):
    schema: Literal["koala.maintenance-run/1"]
    dry_run: bool
    run: MaintenanceRun
