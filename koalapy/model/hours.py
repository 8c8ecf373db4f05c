"""Minutes of the year, as five cron fields define them, and whether an instant lies in them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from koalapy.model.units import Duration, Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The minutes that five cron fields name. `weekdays`: 0 is Sunday. `text`: the fields as written.

    As in cron, a day of either kind matches if both kinds are restricted (neither field begins with a star).
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool = False

    def include(self, instant: Instant, offset: Duration) -> bool:
        """Return whether a local clock, `offset` ahead of UTC, shows one of these minutes."""
        moment = _EPOCH + timedelta(microseconds=instant + offset)
        return (
            moment.minute in self.minutes
            and moment.hour in self.hours
            and moment.month in self.months
            and self._includes_day(moment.day, moment.isoweekday() % 7)
        )

    def _includes_day(self, day: int, weekday: int) -> bool:
        fits = (day in self.days, weekday in self.weekdays)
        return any(fits) if self.either_day else all(fits)


# Pairs (instant, offset), ascending: from the instant on, the local clock is ahead of UTC by the offset.
Offsets = tuple[tuple[Instant, Duration], ...]


def offset_at(instant: Instant, offsets: Offsets) -> Duration:
    """Return the offset of the last entry at or before the instant, else the first entry's; 0 without entries."""
    current = offsets[0][1] if offsets else Duration(0)
    for since, offset in offsets:
        if since <= instant:
            current = offset
    return current
