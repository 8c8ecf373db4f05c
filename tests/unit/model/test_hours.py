"""Cron's five fields, and the clock on the wall."""

import pytest

from koalapy.config.hours import HoursError, parse_hours
from koalapy.model.hours import is_within, next_change, offset_at
from koalapy.model.units import HOUR, MINUTE, Duration, Instant, parse_instant

SUMMER, WINTER = Duration(2 * HOUR), Duration(HOUR)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        pytest.param("* * * * *", "2030-05-01T12:00:00Z", None, id="always"),
        pytest.param("* 20-23,0-7 * * *", "2030-05-01T07:59:59.999999Z", "2030-05-01T08:00:00Z", id="nights"),
        pytest.param("30 6 * * *", "2030-05-01T06:30:59Z", "2030-05-01T06:31:00Z", id="one-minute"),
        pytest.param("*/15 * * * *", "2030-05-01T06:45:00Z", "2030-05-01T06:44:00Z", id="step"),
        pytest.param("* 8/4 * * *", "2030-05-01T20:00:00Z", "2030-05-01T04:00:00Z", id="step-from-a-number"),
        pytest.param("* * * * 6,7", "2030-05-05T06:00:00Z", "2030-05-06T06:00:00Z", id="sunday-as-7"),
        pytest.param("* * * * 0", "2030-05-05T06:00:00Z", "2030-05-04T06:00:00Z", id="sunday-as-0"),
        pytest.param("* * * * Mon-fri", "2030-05-06T06:00:00Z", "2030-05-05T06:00:00Z", id="words"),
        pytest.param("* * * dec,Jan *", "2030-01-06T06:00:00Z", "2030-02-05T06:00:00Z", id="months"),
        pytest.param("* * 29 2 *", "2028-02-29T00:00:00Z", "2030-03-01T00:00:00Z", id="leap-day"),
        pytest.param("* * 13 * fri", "2030-05-03T00:00:00Z", "2030-05-04T00:00:00Z", id="either-day-friday"),
        pytest.param("* * 13 * fri", "2030-05-13T00:00:00Z", "2030-05-14T00:00:00Z", id="either-day-13th"),
        pytest.param("* * */2 * fri", "2030-05-03T00:00:00Z", "2030-05-10T00:00:00Z", id="a-star-is-no-restriction"),
    ],
)
def test_what_the_fields_mean(text: str, inside: str, outside: str | None) -> None:
    hours = parse_hours(text)
    assert hours.include(parse_instant(inside), Duration(0))
    assert outside is None or not hours.include(parse_instant(outside), Duration(0))


@pytest.mark.parametrize("instant", [0, -1, 1, -(10**15)])
def test_instants_before_the_epoch_are_instants_too(instant: int) -> None:
    assert parse_hours("* * * * *").include(Instant(instant), WINTER)


@pytest.mark.parametrize(
    ("text", "wrong", "advice"),
    [
        pytest.param("", "has 0 fields", "every night", id="empty"),
        pytest.param("0 0 * * * *", "has 6 fields", "every night", id="seconds"),
        pytest.param("60 * * * *", "has '60' for its minute", "from 0 to 59", id="minute"),
        pytest.param("* 24 * * *", "has '24' for its hour", "from 0 to 23", id="hour"),
        pytest.param("* * 0 * *", "has '0' for its day of the month", "from 1 to 31", id="day"),
        pytest.param("* * * 13 *", "has '13' for its month", "from 1 to 12", id="month"),
        pytest.param("* * * * 8", "has '8' for its day of the week", "from 0 to 7", id="weekday"),
        pytest.param("* * * feb-foo *", "has 'foo' for its month", "from 1 to 12", id="word"),
        pytest.param("* 20-7 * * *", "which ends before it begins", "20-23,0-7", id="backwards"),
        pytest.param("*/0 * * * *", "a step of 0", "1 or more", id="no-step"),
        pytest.param("1,,2 * * * *", "has '' for its minute", "a range 8-17", id="hole"),
        pytest.param("-1 * * * *", "has '-1' for its minute", "a range 8-17", id="negative"),
        pytest.param("¹ * * * *", "for its minute", "a range 8-17", id="superscript"),
        pytest.param(f"{'9' * 5000} * * * *", "for its minute", "from 0 to 59", id="endless"),
        pytest.param("@daily", "has 1 field", "every night", id="nickname"),
    ],
)
def test_what_is_no_cron_field_is_refused(text: str, wrong: str, advice: str) -> None:
    with pytest.raises(HoursError) as caught:
        parse_hours(text)
    assert wrong in str(caught.value)
    assert advice in caught.value.advice


def test_the_clock_on_the_wall_changes_twice_a_year() -> None:
    offsets = ((Instant(100), SUMMER), (Instant(200), WINTER))
    assert [offset_at(Instant(at), offsets) for at in (50, 100, 199, 200, 900)] == [
        SUMMER, SUMMER, SUMMER, WINTER, WINTER,
    ]  # fmt: skip
    assert offset_at(Instant(50), ()) == 0


# ---- where hours end and begin

CHANGES = (  # of Amsterdam
    (parse_instant("2030-01-01T00:00:00Z"), WINTER),
    (parse_instant("2030-03-31T01:00:00Z"), SUMMER),
    (parse_instant("2030-10-27T01:00:00Z"), WINTER),
)
YEAR = Duration(366 * 24 * HOUR)


@pytest.mark.parametrize(
    ("texts", "since", "change"),
    [
        pytest.param((), "2030-05-01T12:00:00Z", None, id="always"),
        pytest.param(("* * * * *",), "2030-05-01T12:00:00Z", None, id="every-minute"),
        pytest.param(("* 19-23,0-6 * * *",), "2030-05-01T12:00:00Z", "2030-05-01T17:00:00Z", id="summer-opens"),
        pytest.param(("* 19-23,0-6 * * *",), "2030-01-02T12:00:00Z", "2030-01-02T18:00:00Z", id="winter-opens"),
        pytest.param(("* 19-23,0-6 * * *",), "2030-05-01T17:00:00Z", "2030-05-02T05:00:00Z", id="over-midnight"),
        pytest.param(("* 0-6 * * *",), "2030-03-30T23:30:00Z", "2030-03-31T05:00:00Z", id="the-short-night"),
        pytest.param(("* 0-6 * * *",), "2030-10-26T22:30:00Z", "2030-10-27T06:00:00Z", id="the-long-night"),
        pytest.param(("* 2 * * *",), "2030-03-30T01:30:00Z", "2030-03-30T02:00:00Z", id="an-hour"),
        pytest.param(("* 2 * * *",), "2030-03-31T00:30:00Z", "2030-04-01T00:00:00Z", id="an-hour-that-a-day-lacks"),
        pytest.param(("30-59 8 * * *",), "2030-05-01T06:10:00Z", "2030-05-01T06:30:00Z", id="half-past"),
        pytest.param(("* * 29 2 *",), "2030-05-01T06:10:00Z", None, id="far-away"),
        pytest.param(
            ("* 19-23,0-6 * * *", "* * * * sat,sun"), "2030-05-03T17:00:00Z", "2030-05-06T05:00:00Z", id="weekend"
        ),
    ],
)
def test_when_hours_end_or_begin_next(texts: tuple[str, ...], since: str, change: str | None) -> None:
    hours, start = tuple(map(parse_hours, texts)), parse_instant(since)
    until = Instant(start + YEAR)
    found = next_change(hours, start, CHANGES, until)
    assert found == (None if change is None else parse_instant(change))
    if found is not None:
        assert is_within(hours, start, CHANGES) is not is_within(hours, found, CHANGES)
        assert next_change(hours, start, CHANGES, found) is None


@pytest.mark.parametrize("day", ["2030-03-31", "2030-10-27", "2030-05-04"])
@pytest.mark.parametrize("text", ["* 19-23,0-6 * * *", "17 1-3 * * *", "*/20 * * * sun", "* * 1 * *"])
def test_no_minute_is_jumped_over(day: str, text: str) -> None:
    """The next change is that which a look at each minute finds."""
    hours, start = (parse_hours(text),), parse_instant(f"{day}T00:00:30Z")
    end = Instant(start + 30 * HOUR)
    minutes = [Instant(at - at % MINUTE) for at in range(start + MINUTE, end + MINUTE, MINUTE)]
    instant = start
    while (change := next_change(hours, instant, CHANGES, end)) is not None:
        state = is_within(hours, instant, CHANGES)
        later = [at for at in minutes if at > instant]
        assert change == next(at for at in later if is_within(hours, at, CHANGES) is not state)
        instant = change
    assert len({is_within(hours, at, CHANGES) for at in minutes if at >= instant}) <= 1
