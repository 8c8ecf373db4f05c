"""Instants, durations and sizes, and their written forms.

An `Instant` is integer microseconds since 1970-01-01T00:00:00Z, a `Duration` integer microseconds. At the edges an
instant is RFC 3339 with microseconds. In files a duration is `90s`, `10m`, `2h` or `30d`, and a size is `512M` or `4G`
(binary).
"""

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

Instant = NewType("Instant", int)
Duration = NewType("Duration", int)

MILLISECOND = Duration(1_000)
SECOND = Duration(1_000_000)
MINUTE = Duration(60 * SECOND)
HOUR = Duration(60 * MINUTE)
DAY = Duration(24 * HOUR)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_DURATION_UNITS = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_SIZE = re.compile(r"(\d+)\s*([KMGT]?)i?B?", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_duration(text: str) -> Duration:
    """Return the duration that a text such as `90s`, `10m`, `2h`, `30d` or `1h30m` means.

    Raises ValueError, with a sentence, if the text is not a duration.
    """
    position, total = 0, 0.0
    compact = text.strip()
    for part in _DURATION.finditer(compact):
        if part.start() != position:
            break
        total += float(part[1]) * _DURATION_UNITS[part[2]]
        position = part.end()
    if not compact or position != len(compact):
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 10m, 2h or 30d")
    return Duration(round(total))


def format_duration(duration: Duration) -> str:
    """Return the shortest text that `parse_duration` reads back, in whole seconds from a minute on."""
    if duration < MINUTE:
        return f"{duration / SECOND:.3f}".rstrip("0").rstrip(".") + "s"
    seconds, parts = round(duration / SECOND), []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def parse_size(text: str) -> int:
    """Return the bytes that `512M` or `4G` (binary) means. Raises ValueError, with a sentence, for any other text."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a size; write it like 512M or 4G")
    return int(match[1]) * _SIZE_UNITS[match[2].upper()]


def format_instant(instant: Instant) -> str:
    """Return the instant as RFC 3339 with microseconds, in UTC."""
    moment = _EPOCH + timedelta(microseconds=instant)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> Instant:
    """Return the instant of a text that `format_instant` writes, or of any RFC 3339 text with an offset.

    Raises ValueError if the text is not an instant, or has no offset from UTC.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC; write it like 2030-01-31T12:00:00Z")
    return Instant(round((moment - _EPOCH) / timedelta(microseconds=1)))
