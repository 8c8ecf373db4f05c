"""The answers about tags that the store does not know."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import INSTANT, Answer


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
