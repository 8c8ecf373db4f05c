"""The answer about records of the store that cannot be read."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import Answer


class UnreadableRecord(Answer):
    """A record that is set aside. Nothing is done with its job until it is repaired."""

    record: str = Field(description="as `koala repair` takes it")
    kind: Literal["job", "debt", "command", "results", "history", "learned"]
    job: int | None = Field(description="job that the record is about, if known")
    reason: str = Field(description="problem, and what to do")


class UnreadableAnswer(Answer):
    schema_: Literal["koala.unreadable/1"] = Field(alias="schema")
    records: list[UnreadableRecord]
