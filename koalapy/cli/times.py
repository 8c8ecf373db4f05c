"""Formats times for people: instants in local time and whole seconds, or in UTC with --utc, and ages in one unit."""

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

_INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_utc = False


def use_utc(wanted: bool) -> None:
    """Choose UTC or local time for all later output of this process."""
    global _utc
    _utc = wanted


def _also_after_the_command(wanted: bool) -> bool:
    if wanted:
        use_utc(True)
    return wanted


Utc = Annotated[bool, typer.Option("--utc", callback=_also_after_the_command, help="Show times in UTC.")]


def shown(instant: str) -> str:
    """Format an RFC 3339 instant: 2026-01-31T12:00:00.5Z as 2026-01-31 13:00:00, or with --utc 2026-01-31 12:00:00Z.

    Raises ValueError if it is not an instant.
    """
    moment = datetime.fromisoformat(instant)
    if _utc:
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def in_text(text: str, *, at: str | None = None) -> str:
    """Return koalad's sentence with its instants formatted by `shown`; without the date if it is that of `at`."""
    day = shown(at)[:11] if at is not None else None

    def replaced(found: re.Match[str]) -> str:
        try:
            moment = shown(found[0])
        except ValueError:  # no valid instant, such as 2026-99-99T00:00:00Z in a quotation
            return found[0]
        return moment.removeprefix(day) if day else moment

    return _INSTANT.sub(replaced, text)


def in_one_unit(seconds: float) -> str:
    """Format a time in its largest unit, rounded down, such as 5d, 3h, 20m or 4s."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{max(0, int(seconds))}s"


def ago(instant: str | None) -> str | None:
    """Return how long ago an RFC 3339 instant was, such as `5m ago`; None for None."""
    if instant is None:
        return None
    return f"{in_one_unit((datetime.now(UTC) - datetime.fromisoformat(instant)).total_seconds())} ago"
