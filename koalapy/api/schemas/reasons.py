"""Errors as the API reports them: what is wrong, and who can act."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import Answer

Whose = Literal["transient", "cluster", "request", "ours"]


class Reason(Answer):
    """One sentence of what is wrong and one of what to do; the batch system's words, where it had a say."""

    code: str
    whose: Whose = Field(description="who can act: nobody (transient), the administrator, the user or koalapy")
    message: str
    advice: str
    command: str | None
    exit_status: int | None
    words: str | None


class ErrorAnswer(Answer):
    schema_: Literal["koala.error/1"] = Field(alias="schema")
    error: Reason
