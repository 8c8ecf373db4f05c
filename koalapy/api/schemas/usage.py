"""The answer about what was used."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import INSTANT, Answer


class Used(Answer):
    """Processor-seconds: processors times the time from the start to the end of each batch job, in four parts."""

    held: float = Field(description="before the release of the job, at the barrier")
    run: float = Field(description="after it, in the last try of the job")
    lost: float = Field(description="after it, in tries that were followed by another")
    scavenged: float = Field(description="by Launchers of sweeps")
    total: float = Field(description="the sum of the four")
    open: float = Field(description="part of attempts that still run")
    estimated: float = Field(description="part that is not confirmed by the batch system's accounting")
    attempts: int = Field(description="attempts that ended within the time, or still run")


class UsageRow(Used):
    """Keys that it is not summed by are null."""

    user: str | None
    cluster: str | None
    job: int | None = Field(description="job; for a Launcher its sweep")
    name: str | None
    day: str | None = Field(description="in UTC, as 2030-01-31")


class UsageAnswer(Answer):
    schema_: Literal["koala.usage/1"] = Field(alias="schema")
    by: Literal["user", "cluster", "job", "day"]
    since: str | None = Field(pattern=INSTANT)
    until: str | None = Field(pattern=INSTANT)
    rows: list[UsageRow]
    total: Used
