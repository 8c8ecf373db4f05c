"""Parses cron's five fields: minute, hour, day of the month, month, day of the week."""

import re
from dataclasses import dataclass

from koalapy.model.hours import Hours

_PART = re.compile(r"(?:(?P<star>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>[0-9]{1,4}))?", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class HoursError(ValueError):
    """A text that is not five cron fields. `what`: what is wrong; `advice`: what to do."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.what, self.advice = what, advice


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, ("", *_MONTHS)),
    _Field("day of the week", 0, 7, (*_WEEKDAYS, "sun")),
)


def parse_hours(text: str) -> Hours:
    """Parse cron fields: `* 20-23,0-7 * * *` is every minute from 20:00 to 07:59. Raises HoursError."""
    parts = text.split()
    if len(parts) != len(_FIELDS):
        advice = "Write minute, hour, day of the month, month and day of the week: `* 20-23,0-7 * * *` is every night."
        count = "1 field" if len(parts) == 1 else f"{len(parts)} fields"
        raise HoursError(f"has {count}, not cron's five", advice)
    minutes, hours, days, months, weekdays = (_values(part, field) for part, field in zip(parts, _FIELDS, strict=True))
    return Hours(
        text=" ".join(parts),
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),  # 7 is Sunday too
        either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )


def _values(text: str, field: _Field) -> frozenset[int]:
    return frozenset(number for part in text.split(",") for number in _range(part, field))


def _range(part: str, field: _Field) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise HoursError(f"has {part!r} for its {field.name}", "Write *, a number, a range 8-17, or a step */2.")
    if match["star"]:
        first, last = field.least, field.most
    else:
        first = _number(match["first"], field)
        last = _number(match["last"], field) if match["last"] else field.most if match["step"] else first
    step = int(match["step"] or 1)
    if step == 0:
        raise HoursError(f"has a step of 0 for its {field.name}", "Write a step of 1 or more.")
    if first > last:
        advice = f"Write two ranges: {first}-{field.most},{field.least}-{last}."
        raise HoursError(f"has {part!r} for its {field.name}, which ends before it begins", advice)
    return range(first, last + 1, step)


def _number(text: str, field: _Field) -> int:
    word = text.casefold()
    if word and word in field.words:
        return field.words.index(word)
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 4 else -1
    if not field.least <= number <= field.most:
        raise HoursError(f"has {text!r} for its {field.name}", f"Write a number from {field.least} to {field.most}.")
    return number
