"""The answers about jobs, and to what is done with them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from koalapy.api.schemas.answer import INSTANT, Answer
from koalapy.api.schemas.reasons import Reason
from koalapy.api.schemas.sweeps import JobStateName, SweepProgress
from koalapy.api.schemas.unreadable import UnreadableRecord

ComponentStateName = Literal[
    "waiting", "submitting", "queued", "at_barrier", "released", "running", "suspended", "unknown", "done", "failed",
    "cancelled", "not_started",
]  # fmt: skip


class Component(Answer):
    """One component of a job; instants are of koalad's clock."""

    index: int
    cluster: str | None
    named_cluster: str | None = Field(description="cluster that the user named; null: any")
    processors: int
    walltime_s: float = Field(description="walltime that was asked for")
    state: ComponentStateName = Field(description="not_started: the job is over, and it never began")
    attempt: int
    batch_id: str | None
    hosts: list[str] = Field(description="node names, each once")
    exit_status: int | None = Field(description="128 + N for signal N")
    queued_at: str | None = Field(pattern=INSTANT)
    at_barrier_at: str | None = Field(pattern=INSTANT)
    released_at: str | None = Field(pattern=INSTANT, description="when its wrapper received the release")
    started_at: str | None = Field(pattern=INSTANT, description="just before its first program was started")
    ended_at: str | None = Field(pattern=INSTANT)
    silent_since: str | None = Field(pattern=INSTANT, description="nothing is heard of its wrapper since; null: it is")
    reason: str | None


class Transfer(Answer):
    """Files on their way to a cluster, or back."""

    direction: Literal["in", "out"]
    component: int | None = Field(description="null: all components")
    cluster: str
    phase: Literal["waiting", "reading", "sending", "receiving"]
    files: int = Field(description="files in all; of a sweep, those known so far")
    bytes: int = Field(description="size of all files")
    bytes_moved: int = Field(description="bytes transferred, with those that were there already")
    bytes_per_second: int = Field(description="over the last ten seconds")
    file: str | None = Field(description="file being transferred")
    parameters_done: int | None = Field(
        description="number of parameters of the sweep whose files have arrived; null: not a sweep"
    )
    parameters: int | None = Field(description="number of parameters of the sweep; null: not a sweep")


class Job(Answer):
    id: int
    name: str
    owner: str
    state: JobStateName
    priority: int
    labels: dict[str, str]
    type: Literal["ordered", "unordered", "mixed", "sweep"]
    submitted_at: str = Field(pattern=INSTANT)
    started_at: str | None = Field(pattern=INSTANT)
    finished_at: str | None = Field(pattern=INSTANT)
    submission_failures: int
    completion_failures: int
    held_processor_seconds: float = Field(description="processors times seconds spent waiting at barriers")
    reason: str | None
    reason_code: str | None
    output_home: Literal["none", "coming", "home", "lost"] = Field(
        description="whether standard output and error are at home (see keep_output); lost: not all, for good"
    )
    components: list[Component] = Field(description="empty for a sweep")
    transfers: list[Transfer]
    sweep: SweepProgress | None = Field(description="null: not a sweep")


class Event(BaseModel):
    """One line of a job's story; further fields depend on its kind."""

    model_config = ConfigDict(extra="allow")

    at: str = Field(pattern=INSTANT)
    kind: str
    text: str = Field(description="a sentence")


class Parameter(Answer):
    """What one name of a sweep, or several together, stands for: one of `loop`, `values` and `file`."""

    names: list[str]
    loop: list[str] | None = Field(description="first, last and step")
    without: list[str] = Field(description="values that the loop leaves out")
    values: list[str]
    file: str | None = Field(description="each of its lines is a value; it lies in the program's directory")
    column: int | None = Field(description="from 0: of a file whose columns are parameters")


class Request(Answer):
    """What a job runs."""

    directory: str = Field(description="absolute; the paths of the job are relative to it")
    job: dict[str, Any] = Field(description="the job in the form of a job file, without keys that have their default")
    parameters: list[Parameter] = Field(description="parameters of a sweep")


class JobAnswer(Answer):
    schema_: Literal["koala.job/1"] = Field(alias="schema")
    job: Job
    request: Request
    events: list[Event]


class JobsAnswer(Answer):
    schema_: Literal["koala.jobs/1"] = Field(alias="schema")
    jobs: list[Job]
    unreadable: list[UnreadableRecord] = Field(default=[], description="only in `koala jobs --json`")


class SubmitAnswer(Answer):
    schema_: Literal["koala.submit/1"] = Field(alias="schema")
    id: int
    accepted_s: float = Field(description="time from reading the request to its commit, measured by koalad")


class SubmitsAnswer(Answer):
    schema_: Literal["koala.submits/1"] = Field(alias="schema")
    ids: list[int] = Field(description="in the order of the jobs")


class CheckedJob(Answer):
    """A job that was not submitted."""

    request: Request
    parameters: int | None = Field(description="how many parameters a sweep has; null for all other jobs")
    fits: Literal["yes", "never", "unknown"] = Field(
        description="whether it fits on its clusters when nobody else is there"
    )
    reason: Reason | None = Field(description="why it would fail at once")
    unseen: list[str] = Field(description="clusters on which it depends, and whose size is not known now")


class CheckAnswer(Answer):
    schema_: Literal["koala.check/1"] = Field(alias="schema")
    jobs: list[CheckedJob] = Field(description="in the order of the jobs")


class FetchAnswer(Answer):
    """Files that were brought once more, or are being brought: ask again to wait."""

    schema_: Literal["koala.fetch/1"] = Field(alias="schema")
    id: int
    state: Literal["fetched", "fetching"]
    files: int | None
    bytes: int | None
    missing: list[str] = Field(description="names that no component has left; of a sweep, the first hundred")
    lack: str | None = Field(description="what is missing, in a sentence; null if nothing is")
    notes: list[str] = Field(description="sentences on what was left out")


class Refusal(Answer):
    id: int
    error: Reason


class ChangedAnswer(Answer):
    schema_: Literal["koala.changed/1"] = Field(alias="schema")
    jobs: list[Job]
    refused: list[Refusal] = Field(description="jobs that do not exist or are in a state that does not allow it")
