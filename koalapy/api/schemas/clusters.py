"""The answer about clusters."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import Answer


class Cluster(Answer):
    """Numbers are processors; null until they are known."""

    name: str
    batch: str
    version: str | None
    connection: Literal["up", "down", "connecting", "asks"] = Field(description="asks: a person must log in")
    total: int | None
    ours: int | None
    scavenged: int | None
    others: int | None
    waiting_local: int | None = Field(description="others' jobs that wait for resources")
    idle: int | None = Field(description="processors that a job can have now")
    promised: int
    unit: str | None = Field(description="core or thread")
    age_s: float | None
    reason: str | None = Field(description="why no job is placed there")
    foreign: int = Field(description="reports about other clusters' attempts since koalad's start; ignored")


class ClustersAnswer(Answer):
    schema_: Literal["koala.clusters/1"] = Field(alias="schema")
    clusters: list[Cluster]
