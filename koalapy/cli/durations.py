"""Durations on the command line."""

from koalapy.model.errors import RequestError
from koalapy.model.units import SECOND, parse_duration


def seconds_of(duration: str) -> float:
    """Return the seconds of a duration such as 90s. Raises RequestError for a text that is none."""
    try:
        return parse_duration(duration) / SECOND
    except ValueError as error:
        raise RequestError("bad_duration", f"{duration!r} is no duration.", "Write 90s, 10m, 2h or 1d.") from error
