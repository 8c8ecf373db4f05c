"""The answers about koalad itself."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import INSTANT, Answer
from koalapy.api.schemas.logins import Login
from koalapy.api.schemas.unknown import UnknownTags

RecoveryKind = Literal[
    "nothing_recovered", "queue_recovered", "sweeps_recovered", "outbox_recovered", "debts_recovered", "attempt_found",
    "attempt_ended",
    "attempt_lost", "attempt_submitted", "attempt_refused", "attempt_cancelled", "debt_settled", "job_released",
    "job_given_back", "output_collected", "directories_forgotten", "store_restored", "attempt_recalled",
    "host_slept",
]  # fmt: skip


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
    attempts_unheard: int = Field(description="of them, those without a report since")
    commands: int = Field(description="commands in the outbox; they are sent again as their clusters connect")
    commands_unconfirmed: int = Field(description="of them, those that no cluster has confirmed")
    debts: int
    lines: list[RecoveryLine]
    lines_dropped: int = Field(description="older than those in `lines`")


class RunnersAtWork(Answer):
    """Sweeps that are not over."""

    active: int
    waiting: int = Field(description="sweeps that wait to be admitted or are held")
    nodes: int = Field(description="nodes of sweeps")


class StatusAnswer(Answer):
    schema_: Literal["koala.status/1"] = Field(alias="schema")
    pid: int
    version: str
    grid: str
    grid_file: str = Field(description="the absolute path that koalad was started with")
    grid_file_changed: bool = Field(description="the file was changed or removed since koalad's start")
    state: Literal["ready", "stopping", "store_failing", "broken", "standing_by", "taken_over"]
    debts: list[Debt]
    troubles: list[str]
    asks: list[Login] = Field(description="logins that need a person")
    runners: RunnersAtWork
    recovery: Recovery
    unknown_tags: UnknownTags


class DownAnswer(Answer):
    schema_: Literal["koala.down/1"] = Field(alias="schema")
    grid: str
    cancel: bool
