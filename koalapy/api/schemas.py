"""The answers of the API as its description has them. `documents` builds them; a test holds the two together."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from koalapy.api.answer import INSTANT, Answer
from koalapy.api.sweep_schemas import JobStateName, ResultsAnswer, RunnersAnswer, SweepProgress

ComponentStateName = Literal[
    "waiting", "submitting", "queued", "at_barrier", "released", "running", "suspended", "unknown", "done", "failed",
    "cancelled",
]  # fmt: skip
Whose = Literal["transient", "site", "request", "ours"]
RecoveryKind = Literal[
    "nothing_recovered", "queue_recovered", "sweeps_recovered", "outbox_recovered", "debts_recovered", "attempt_found",
    "attempt_ended",
    "attempt_lost", "attempt_submitted", "attempt_refused", "attempt_cancelled", "debt_settled", "job_released",
    "job_given_back", "output_collected", "directories_forgotten", "store_restored", "attempt_recalled",
]  # fmt: skip


class Reason(Answer):
    """One sentence of what is wrong and one of what to do; the batch system's words, where it had a say."""

    code: str
    whose: Whose = Field(description="whose move it is")
    message: str
    advice: str
    command: str | None
    exit_status: int | None
    words: str | None


class ErrorAnswer(Answer):
    schema_: Literal["koala.error/1"] = Field(alias="schema")
    error: Reason


class Component(Answer):
    """One component of a job; instants are of koalad's clock."""

    index: int
    cluster: str | None
    named_cluster: str | None = Field(description="by its user; null: any")
    processors: int
    walltime_s: float = Field(description="as it was asked for")
    state: ComponentStateName
    attempt: int
    batch_id: str | None
    hosts: list[str] = Field(description="node names, each once")
    exit_status: int | None = Field(description="128 + N for signal N")
    queued_at: str | None = Field(pattern=INSTANT)
    at_barrier_at: str | None = Field(pattern=INSTANT)
    released_at: str | None = Field(pattern=INSTANT, description="when its wrapper had the release")
    started_at: str | None = Field(pattern=INSTANT, description="just before its first program was started")
    ended_at: str | None = Field(pattern=INSTANT)
    reason: str | None


class Transfer(Answer):
    """Files on their way to a cluster, or back."""

    direction: Literal["in", "out"]
    component: int | None = Field(description="null: of all components")
    cluster: str
    phase: Literal["waiting", "reading", "sending", "receiving"]
    files: int = Field(description="of a sweep those that are known of yet")
    bytes: int = Field(description="of all of them")
    bytes_moved: int = Field(description="those too that needed no sending")
    bytes_per_second: int = Field(description="over the last ten seconds")
    file: str | None = Field(description="the one on its way")
    parameters_done: int | None = Field(description="of a sweep: how many's files are here")
    parameters: int | None = Field(description="of a sweep: all that it has")


class Job(Answer):
    id: int
    name: str
    owner: str
    state: JobStateName
    priority: int
    type: Literal["ordered", "unordered", "mixed", "sweep"]
    submitted_at: str = Field(pattern=INSTANT)
    started_at: str | None = Field(pattern=INSTANT)
    finished_at: str | None = Field(pattern=INSTANT)
    submission_failures: int
    completion_failures: int
    held_processor_seconds: float = Field(description="allocated, but waiting at a barrier")
    reason: str | None
    reason_code: str | None
    components: list[Component] = Field(description="none of a sweep")
    transfers: list[Transfer]
    sweep: SweepProgress | None = Field(description="null of what is none")


class Event(BaseModel):
    """One line of a job's story; further fields depend on its kind."""

    model_config = ConfigDict(extra="allow")

    at: str = Field(pattern=INSTANT)
    kind: str
    text: str = Field(description="a sentence")


class JobAnswer(Answer):
    schema_: Literal["koala.job/1"] = Field(alias="schema")
    job: Job
    events: list[Event]


class JobsAnswer(Answer):
    schema_: Literal["koala.jobs/1"] = Field(alias="schema")
    jobs: list[Job]


class SubmitAnswer(Answer):
    schema_: Literal["koala.submit/1"] = Field(alias="schema")
    id: int
    accepted_s: float = Field(description="from the request, read, to its commit, as koalad measured it")


class FetchAnswer(Answer):
    """Files that were brought once more, or are being brought: ask again to wait."""

    schema_: Literal["koala.fetch/1"] = Field(alias="schema")
    id: int
    state: Literal["fetched", "fetching"]
    files: int | None
    bytes: int | None
    missing: list[str] = Field(description="names that no component has left; of a sweep's the first hundred")
    lack: str | None = Field(description="what is missing, in a sentence; null if nothing is")
    notes: list[str] = Field(description="sentences on what was left out")


class SubmitsAnswer(Answer):
    schema_: Literal["koala.submits/1"] = Field(alias="schema")
    ids: list[int] = Field(description="in the order of the jobs")


class Refusal(Answer):
    id: int
    error: Reason


class ChangedAnswer(Answer):
    schema_: Literal["koala.changed/1"] = Field(alias="schema")
    jobs: list[Job]
    refused: list[Refusal] = Field(description="jobs that are not there, or with which it cannot be done")


class Cluster(Answer):
    """Numbers are processors; null until they are known."""

    name: str
    batch: str
    version: str | None
    connection: Literal["up", "down", "connecting", "asks"] = Field(description="asks: a person has to log in")
    total: int | None
    ours: int | None
    scavenged: int | None
    others: int | None
    waiting_local: int | None = Field(description="others' jobs that wait for resources")
    idle: int | None = Field(description="what could be started now, promises taken off")
    promised: int
    unit: str | None = Field(description="core or thread")
    age_s: float | None
    reason: str | None = Field(description="why nothing is placed there")


class ClustersAnswer(Answer):
    schema_: Literal["koala.clusters/1"] = Field(alias="schema")
    clusters: list[Cluster]


class Debt(Answer):
    """A batch job that is to be cancelled when its cluster can be reached.

    `reason`: it can be, but its batch system does not end the job, for this reason.
    """

    attempt: str
    cluster: str
    batch_id: str | None
    since: str = Field(pattern=INSTANT)
    reason: str | None


class JobsRecovered(Answer):
    """How many jobs there were in each state when koalad started."""

    waiting: int
    held: int
    claiming: int
    running: int
    stopping: int


class RecoveryLine(Answer):
    """One thing that was recovered at koalad's start, or cleaned up since."""

    at: str = Field(pattern=INSTANT)
    kind: RecoveryKind
    text: str = Field(description="a sentence")
    job: int | None
    attempt: str | None = Field(description="job.component.number")
    cluster: str | None


class Recovery(Answer):
    """What koalad started from, what is still open of it, and the newest lines."""

    at: str = Field(pattern=INSTANT)
    jobs: JobsRecovered
    jobs_at_barrier: int = Field(description="jobs with components at a barrier")
    attempts: int = Field(description="those that may have had a batch job")
    attempts_unheard: int = Field(description="of them, those of which nothing has been heard since")
    commands: int = Field(description="in the outbox: sent again, in doubt, as their clusters connect")
    commands_unconfirmed: int = Field(description="of them, those that no cluster has answered yet")
    debts: int
    lines: list[RecoveryLine]
    lines_dropped: int = Field(description="older than those in `lines`")


class UnknownTag(Answer):
    """A tag on a cluster that this store does not know: a batch job, a directory or both."""

    cluster: str
    tag: str
    store: str = Field(description="the store that the tag names")
    own: bool = Field(description="it names this store: an attempt from after a backup, or of a pruned job")
    attempt: str = Field(description="job.component.number, in the store that the tag names")
    batch_id: str | None
    batch_state: str | None
    directory: bool
    wrapper: Literal["alive", "silent", "ended", "none"]
    heartbeat_age_s: float | None = Field(description="since its wrapper's last sign of life")
    age_s: float | None = Field(description="of its directory")


class UnknownTags(Answer):
    """As they were seen when their clusters connected, or when they were last asked for."""

    count: int
    first: list[UnknownTag]


class Surveyed(Answer):
    cluster: str
    at: str = Field(pattern=INSTANT)
    reason: str | None = Field(description="why it could not be asked; its tags are then those seen before")


class UnknownAnswer(Answer):
    schema_: Literal["koala.unknown/1"] = Field(alias="schema")
    tags: list[UnknownTag]
    clusters: list[Surveyed]


class CleanAnswer(Answer):
    schema_: Literal["koala.clean/1"] = Field(alias="schema")
    cluster: str
    tag: str
    state: Literal["cleaned", "cleaning"]


class Prompt(Answer):
    text: str
    echo: bool = Field(description="what is typed may be seen")


class Question(Answer):
    """What a login asks, as its server words it."""

    number: int
    title: str
    instructions: str
    prompts: list[Prompt]


class Login(Answer):
    """How the login on a cluster stands."""

    cluster: str
    state: Literal["connected", "connecting", "asks", "unreachable"]
    trying: bool = Field(description="what a person has begun has not come to its end yet")
    version: int = Field(description="grows with every change")
    reason: Reason | None = Field(description="why it is not connected")
    notices: list[str] = Field(description="what the login said that wants no answer")
    question: Question | None = Field(description="what waits for an answer")
    may_ask: bool = Field(description="a login of this kind can ask something")


class RunnersAtWork(Answer):
    """Sweeps that are not over."""

    active: int
    waiting: int = Field(description="to be admitted, or held")
    nodes: int = Field(description="that they have")


class StatusAnswer(Answer):
    schema_: Literal["koala.status/1"] = Field(alias="schema")
    pid: int
    version: str
    grid: str
    state: Literal["ready", "stopping", "store_failing", "broken", "standing_by", "taken_over"]
    debts: list[Debt]
    troubles: list[str]
    asks: list[Login] = Field(description="logins that wait for a person")
    runners: RunnersAtWork
    recovery: Recovery
    unknown_tags: UnknownTags


class Lack(Reason):
    """What a cluster lacks for a component."""

    component: int
    cluster: str


class NoMoreNodes(Answer):
    """A cluster that gives a sweep no more nodes now."""

    cluster: str
    why: str


class ExplainAnswer(Answer):
    schema_: Literal["koala.explain/1"] = Field(alias="schema")
    id: int
    state: JobStateName
    summary: str
    reason: Reason | None
    lacks: list[Lack]
    no_more_nodes: list[NoMoreNodes]


class LoginAnswer(Answer):
    schema_: Literal["koala.login/1"] = Field(alias="schema")
    login: Login


class LoginsAnswer(Answer):
    schema_: Literal["koala.logins/1"] = Field(alias="schema")
    logins: list[Login]


class DownAnswer(Answer):
    schema_: Literal["koala.down/1"] = Field(alias="schema")
    grid: str
    cancel: bool


ANSWERS: dict[str, type[BaseModel]] = {
    model.model_fields["schema_"].annotation.__args__[0]: model  # type: ignore[union-attr]
    for model in (
        ErrorAnswer, JobAnswer, JobsAnswer, SubmitAnswer, ClustersAnswer, StatusAnswer, UnknownAnswer, CleanAnswer,
        ExplainAnswer, DownAnswer, FetchAnswer, LoginAnswer, LoginsAnswer, SubmitsAnswer, ChangedAnswer,
        RunnersAnswer, ResultsAnswer,
    )
}  # fmt: skip


def check(document: dict[str, Any]) -> None:
    """Raises ValidationError for a document that is not as its schema has it."""
    ANSWERS[document["schema"]].model_validate(document)
