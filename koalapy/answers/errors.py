"""Errors: what is wrong, and who can act."""

from typing import Literal

from typing_extensions import TypedDict

Whose = Literal["transient", "cluster", "request", "ours"]


class Reason(TypedDict):
    """A sentence that names the problem and one that names the remedy; the batch system's output if it failed."""

    code: str
    whose: Whose
    """Who can act: nobody (transient), the administrator, the user or koalapy."""
    message: str
    advice: str
    command: str | None
    exit_status: int | None
    output: str | None
    """The batch system's own words, or those of a process that failed."""


class ErrorAnswer(TypedDict):
    """A request that failed."""

    schema: Literal["koala.error/1"]
    error: Reason
