"""Hours of the week and days of the year, as five cron fields say them, and whether an instant lies in them."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from koalapy.model.units import Duration, Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The minutes that the fields name. `weekdays`: 0 is Sunday. `text`: as it was written.

    As cron has it: where both kinds of days are restricted (neither begins with a star), a day of either kind will do.
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool = False

    def include(self, instant: Instant, offset: Duration) -> bool:
        """Whether the clock on the wall, `offset` ahead of UTC, shows one of these minutes."""
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


# From each of these instants on the clock on the wall is so far ahead of UTC; ascending.
Offsets = tuple[tuple[Instant, Duration], ...]


def offset_at(instant: Instant, offsets: Offsets) -> Duration:
    """The last one's, or the first one's before all of them; none: UTC."""
    current = offsets[0][1] if offsets else Duration(0)
    for since, offset in offsets:
        if since <= instant:
            current = offset
    return current
