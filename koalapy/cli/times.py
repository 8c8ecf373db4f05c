"""How commands show instants to people: local time in whole seconds, or UTC with --utc."""

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

_INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_utc = False


def use_utc(wanted: bool) -> None:
    """Decide for all that this process shows from now on."""
    global _utc
    _utc = wanted


def _also_after_the_command(wanted: bool) -> bool:
    if wanted:
        use_utc(True)
    return wanted


Utc = Annotated[bool, typer.Option("--utc", callback=_also_after_the_command, help="Show times in UTC.")]


def shown(instant: str) -> str:
    """The RFC 3339 instant 2026-01-31T12:00:00.5Z is 2026-01-31 13:00:00, or 2026-01-31 12:00:00Z with --utc.

    Raises ValueError for what is no instant.
    """
    moment = datetime.fromisoformat(instant)
    if _utc:
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def in_text(text: str, *, at: str | None = None) -> str:
    """A sentence of koalad with its instants as `shown` has them; without the date if `at` is of the same day."""
    day = shown(at)[:11] if at is not None else None

    def replaced(found: re.Match[str]) -> str:
        try:
            moment = shown(found[0])
        except ValueError:  # looks like one, such as 2026-99-99T00:00:00Z in words of others
            return found[0]
        return moment.removeprefix(day) if day else moment

    return _INSTANT.sub(replaced, text)
