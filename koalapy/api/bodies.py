"""The bodies of requests, and the longest time that a request may wait for its answer."""

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticCustomError

from koalapy.model.identity import JobId
from koalapy.model.request import MAX_PROCESSORS, PILOT_IDLE, Isolate
from koalapy.model.textfile.fields import is_one_line
from koalapy.model.units import SECOND

LONGEST_WAIT_S = 60.0
_LONGEST_PILOT_S = 366 * 86_400
_MOST_JOBS = 5000  # in one request

_MOST_PROCESSES = 1 << 18

Count = Annotated[int, Field(ge=0, le=1 << 53)]
Timeout = Annotated[float, Query(ge=0, allow_inf_nan=False, description="seconds; 60 at most")]


def one_line(text: str) -> str:
    """Return the text. Raises PydanticCustomError for a NUL, a line break or another control character."""
    if not is_one_line(text):
        raise PydanticCustomError("one_line", "Holds a line break or control character")
    return text


Line = Annotated[str, AfterValidator(one_line)]


class JobText(BaseModel):
    """A job as its user wrote it: the text of a job file, or the same as a mapping."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = None
    job: dict[str, Any] | None = None
    source: Line = Field(
        default="job.yaml", max_length=5000, description="name of the file, for messages and to determine its language"
    )
    directory: Line = Field(max_length=5000, description="absolute; the job's paths are relative to it")
    overrides: dict[Line, str] = Field(default_factory=dict, description="values to change, by their keys")
    labels: dict[str, str] = Field(default_factory=dict, description="labels to add to those of the job")
    notify: list[dict[str, Any]] | None = Field(
        default=None, description="entries that replace `notify` of the job; none: nobody is notified"
    )
    key: Line = Field(default="", max_length=200, description="the same key again is the same job")


class JobTexts(BaseModel):
    """Several jobs, each with its own key."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[JobText] = Field(min_length=1, max_length=_MOST_JOBS)


class Again(BaseModel):
    """How to submit a job again."""

    model_config = ConfigDict(extra="forbid")

    failed: bool = Field(
        default=False,
        description="only what failed of a finished sweep or flow",
    )
    overrides: dict[str, str] = Field(default_factory=dict, description="values to change, by their keys")
    key: str = Field(default="", max_length=200, description="the same key again is the same job")


class Ids(BaseModel):
    """Ids of jobs."""

    model_config = ConfigDict(extra="forbid")

    ids: list[JobId] = Field(min_length=1, max_length=_MOST_JOBS)


class FollowBody(BaseModel):
    """Which output to follow, and how much of it the client has already."""

    model_config = ConfigDict(extra="forbid")

    stream: Literal["output", "errors"] = "output"
    component: int | None = Field(default=None, description="only this one")
    positions: list[tuple[Count, Count, Count, Count]] | None = Field(
        default=None,
        max_length=_MOST_PROCESSES,
        description="bytes received before, as [component, attempt, rank, bytes]; null: all output is wanted",
    )

    def by_attempt(self) -> dict[tuple[int, int], dict[int, int]] | None:
        """Map (component, attempt) to the bytes of each rank; None if all output is wanted."""
        if self.positions is None:
            return None
        found: dict[tuple[int, int], dict[int, int]] = {}
        for component, attempt, rank, size in self.positions:
            found.setdefault((component, attempt), {})[rank] = size
        return found


class CancelBody(BaseModel):
    """How to cancel."""

    model_config = ConfigDict(extra="forbid")

    force: bool = Field(default=False, description="do not wait for unreachable clusters")


class FetchBody(BaseModel):
    """Which files to fetch, and where to put them."""

    model_config = ConfigDict(extra="forbid")

    paths: list[Annotated[Line, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=1000, description="patterns; by default all that the job stages out"
    )
    directory: Line | None = Field(default=None, max_length=5000, description="absolute; by default the job's own")


class CancelIds(CancelBody, Ids):
    """Jobs to cancel."""


class CleanBody(BaseModel):
    """Where to clean up a tag."""

    model_config = ConfigDict(extra="forbid")

    cluster: Line | None = Field(default=None, max_length=200, description="by default the one where it was seen last")


class ClusterBody(BaseModel):
    """A cluster to add."""

    model_config = ConfigDict(extra="forbid")

    name: Line = Field(max_length=200)
    values: dict[Line, Line] = Field(description="its values by key, such as `scavenge.hours`, as a grid file has them")


class PilotBody(BaseModel):
    """A pilot to open."""

    model_config = ConfigDict(extra="forbid")

    cluster: Line = Field(max_length=200)
    processors: int = Field(ge=1, le=MAX_PROCESSORS)
    nodes: int | None = Field(default=None, ge=1, description="by default as the batch system divides them")
    walltime_s: float = Field(default=4 * 3600, gt=0, le=_LONGEST_PILOT_S, allow_inf_nan=False)
    idle_s: float = Field(
        default=PILOT_IDLE / SECOND, ge=0, le=_LONGEST_PILOT_S, allow_inf_nan=False, description="after which it ends"
    )
    shared: bool = Field(default=False, description="place jobs there that do not name it, and sweeps")
    isolate: Isolate | None = Field(default=None, description="isolation of programs there; by default the grid file's")
    queue: Line | None = Field(default=None, max_length=200)
    account: Line | None = Field(default=None, max_length=200)
    qos: Line | None = Field(default=None, max_length=200)
    constraint: Line | None = Field(default=None, max_length=200)
    key: Line = Field(default="", max_length=200, description="the same key gives the same pilot")


class ClosePilotBody(BaseModel):
    """How to close a pilot."""

    model_config = ConfigDict(extra="forbid")

    drain: bool = Field(default=False, description="when nothing is left there")
    force: bool = Field(default=False, description="give up what is there")


class EndLeaseBody(BaseModel):
    """How to end a lease."""

    model_config = ConfigDict(extra="forbid")

    force: bool = Field(default=False, description="give up what is on a borrowed one")


class JoinBody(BaseModel):
    """A line of another site, which makes it a neighbour."""

    model_config = ConfigDict(extra="forbid")

    line: Line = Field(max_length=2000)
    replace: bool = Field(default=False, description="take its key in place of another one")


class ReloadBody(BaseModel):
    """How to read the grid file again."""

    model_config = ConfigDict(extra="forbid")

    check: bool = Field(default=False, description="only report what would change")


class ShutdownBody(BaseModel):
    """How to end koalad."""

    model_config = ConfigDict(extra="forbid")

    cancel: bool = Field(default=False, description="cancel all jobs first")


class MaintenanceBody(BaseModel):
    """How a maintenance task is to run."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool = Field(default=False, description="report what would be done, but do nothing")
    options: dict[Line, Any] = Field(default_factory=dict, description="options to replace those of the grid file")


class LoginBody(BaseModel):
    """How to log in."""

    model_config = ConfigDict(extra="forbid")

    present: bool = Field(default=True, description="a person is there to be asked")


def _secret_line(answer: SecretStr) -> SecretStr:
    """Return the answer. Raises PydanticCustomError for one with a line break, NUL or other control character."""
    one_line(answer.get_secret_value())
    return answer


class AnswersBody(BaseModel):
    """Answers to a question of a login. They are passed to the connection that asked, and stored nowhere."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(description="number of the question")
    answers: list[Annotated[SecretStr, AfterValidator(_secret_line)]] = Field(max_length=100)
