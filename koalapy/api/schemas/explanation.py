"""The answer to why a job is where it is."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import Answer
from koalapy.api.schemas.reasons import Reason
from koalapy.api.schemas.sweeps import JobStateName


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
    notes: list[str] = Field(description="of a job that is over: sentences on files that were not brought")
    reason: Reason | None
    lacks: list[Lack]
    no_more_nodes: list[NoMoreNodes]
