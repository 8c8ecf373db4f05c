"""Types of fields."""

from typing import Annotated, Any


class Pattern:
    """A regular expression that a text must match. pydantic reads it; nothing here imports pydantic."""

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "pattern": self.expression}


Instant = Annotated[str, Pattern(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
"""An instant as RFC 3339 writes it, in UTC, such as 2026-01-31T12:00:00.000000Z."""
