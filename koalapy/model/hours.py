"""Minutes of the year, as five cron fields define them, and whether an instant lies in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from koalapy.model.units import DAY, HOUR, MINUTE, Duration, Instant

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

    def alike_for(self, instant: Instant, offset: Duration) -> Duration:
        """Return a local day, hour or minute around the instant, whose minutes are all named, or all not."""
        moment = _EPOCH + timedelta(microseconds=instant + offset)
        every_minute, every_hour = len(self.minutes) == 60, len(self.hours) == 24
        if moment.month not in self.months or not self._includes_day(moment.day, moment.isoweekday() % 7):
            return DAY
        if every_minute and every_hour:
            return DAY
        return HOUR if every_minute or moment.hour not in self.hours else MINUTE

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


def is_within(hours: Sequence[Hours], instant: Instant, offsets: Offsets) -> bool:
    """Return whether the instant is in any of the hours by the local clock; always without hours."""
    offset = offset_at(instant, offsets)
    return not hours or any(each.include(instant, offset) for each in hours)


def next_change(hours: Sequence[Hours], since: Instant, offsets: Offsets, until: Instant) -> Instant | None:
    """Return when the hours end or begin next after `since`; None if they do not before `until`."""
    before, instant = is_within(hours, since, offsets), since
    while hours and instant < until:
        offset = offset_at(instant, offsets)
        alike = min(each.alike_for(instant, offset) for each in hours)
        following = ((instant + offset) // alike + 1) * alike - offset
        instant = Instant(min([following, *(at for at, _ in offsets if instant < at)]))
        if instant < until and is_within(hours, instant, offsets) is not before:
            return instant
    return None
