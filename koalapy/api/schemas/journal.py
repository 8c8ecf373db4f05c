"""The answer with what koalad was given and has decided of late."""

from typing import Any, Literal

from pydantic import Field

from koalapy.api.schemas.answer import Answer


class JournalBatch(Answer):
    """Events that were handled together, and what came of them."""

    now: int = Field(description="microseconds since 1970")
    events: list[Any]
    commands: list[Any] | None = Field(description="null: the engine failed")
    words: list[Any] = Field(description="hints, which no store keeps")


class JournalAnswer(Answer):
    schema_: Literal["koala.journal/1"] = Field(alias="schema")
    koalapy: str = Field(description="the release that wrote it, which can replay it")
    error: str = Field(description="how the last batch failed; empty: it did not")
    settings: list[Any] = Field(description="what the grid file says for decisions")
    start: list[Any] = Field(description="the engine before the first batch")
    batches: list[JournalBatch]
    values: list[Any] = Field(description="what the others name as `#` with its place here")
