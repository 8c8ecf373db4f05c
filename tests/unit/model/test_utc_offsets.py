"""The clock on the wall for the years to come."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from koalapy.model.hours import offset_at
from koalapy.model.units import DAY, HOUR, SECOND, Duration, Instant, format_instant, parse_instant
from koalapy.runtime.clock import offsets

AMSTERDAM = ZoneInfo("Europe/Amsterdam")
NOW = parse_instant("2030-01-15T12:34:56Z")


def in_amsterdam(instant: Instant) -> Duration:
    offset = datetime.fromtimestamp(instant // SECOND, tz=UTC).astimezone(AMSTERDAM).utcoffset()
    assert offset is not None
    return Duration(offset // timedelta(microseconds=1))


def test_summer_time_begins_and_ends_to_the_hour() -> None:
    found = offsets(NOW, in_amsterdam)
    assert [(format_instant(since)[:16], offset // HOUR) for since, offset in found[1:4]] == [
        ("2030-03-31T01:00", 2),
        ("2030-10-27T01:00", 1),
        ("2031-03-30T01:00", 2),
    ]
    assert all(
        offset_at(at, found) == in_amsterdam(at) for days in range(0, 3650, 7) for at in [Instant(NOW + days * DAY)]
    )


def test_where_the_clock_never_changes_there_is_one() -> None:
    assert offsets(NOW, lambda _: Duration(5 * HOUR)) == ((NOW, 5 * HOUR),)


def test_this_host_has_a_clock_on_the_wall() -> None:
    assert offsets(NOW)[0][0] == NOW
