"""The instants of a cron line on this host's clock, by APScheduler."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.cron import CronTrigger

from koalapy.model.hours import Hours
from koalapy.model.units import SECOND, Instant

_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")  # by name: APScheduler counts from Monday
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WallClock(BaseTrigger):  # type: ignore[misc]
    """The minutes of `hours` in a time zone, as cron has them.

    A time that the change to summer time skips is an hour later. A time that the change back repeats counts once,
    unless the line names every hour.
    """

    def __init__(self, hours: Hours, zone: tzinfo) -> None:
        fields = {"minute": _listed(hours.minutes), "hour": _listed(hours.hours), "month": _listed(hours.months)}
        day, weekday = _listed(hours.days), ",".join(_WEEKDAYS[each] for each in sorted(hours.weekdays))
        either: list[dict[str, str]] = [{"day": day}, {"day_of_week": weekday}]
        days = either if hours.either_day else [{"day": day, "day_of_week": weekday}]
        self._triggers = [CronTrigger(second="0", timezone=zone, **fields, **each) for each in days]
        self._zone = zone
        self._every_hour = len(hours.hours) == 24

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> Any:
        """Return the first time after the previous one, or from `now` on; None if there is none.

        Times are compared in UTC: in local time a repeated time equals nothing, or the wrong one.
        """
        start = now if previous_fire_time is None else _just_after(previous_fire_time)
        while True:
            found = [each.get_next_fire_time(None, start.astimezone(self._zone)) for each in self._triggers]
            first: datetime | None = min((each for each in found if each is not None), key=_utc, default=None)
            if first is None or self._every_hour or not first.fold:
                return first
            start = _just_after(first)

    def after(self, instant: Instant) -> Instant | None:
        """Return the first instant after this one."""
        moment = _EPOCH + timedelta(microseconds=instant)
        found = self.get_next_fire_time(moment, moment)
        return None if found is None else Instant(round((found - _EPOCH) / timedelta(seconds=1)) * SECOND)


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _just_after(moment: datetime) -> datetime:
    return _utc(moment) + timedelta(microseconds=1)


def _listed(numbers: frozenset[int]) -> str:
    return ",".join(str(each) for each in sorted(numbers))
