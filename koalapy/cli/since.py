"""The instants of --since and --until."""

from datetime import UTC, datetime, timedelta

from koalapy.model.errors import RequestError
from koalapy.model.units import Instant, format_instant, parse_duration, parse_instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_or_ago(text: str | None, now: Instant) -> str | None:
    """Return the instant in RFC 3339. Raises RequestError unless it is a date, an instant or a duration before now."""
    if text is None:
        return None
    try:
        return format_instant(Instant(now - parse_duration(text)))
    except ValueError:
        pass
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return format_instant(Instant((day - _EPOCH) // timedelta(microseconds=1)))
    except ValueError:
        pass
    try:
        return format_instant(parse_instant(text))
    except ValueError as error:
        message = f"{text!r} is not a date, an instant or a duration."
        raise RequestError("bad_instant", message, "Write it like 2030-01-31, 2030-01-31T12:00:00Z or 7d.") from error
