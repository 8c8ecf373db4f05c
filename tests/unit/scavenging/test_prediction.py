"""The nodes that sweeps can expect, and whether it came true."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Instant
from koalapy.scavenging.prediction import SETTLED, Prediction

MONDAY = Instant(4 * DAY)  # 5 January 1970
NIGHT, DAYTIME = 16, 2


def after_days(days: int) -> Prediction:
    """A cluster of which 16 nodes are idle at night and 2 from 8 to 20, measured every 10 minutes."""
    prediction = Prediction()
    for minute in range(0, days * 24 * 60, 10):
        hour = minute // 60 % 24
        prediction.observe(Instant(MONDAY + minute * MINUTE), "vu", DAYTIME if 8 <= hour < 20 else NIGHT)
    return prediction


def at(days: int, hours: float) -> Instant:
    return Instant(MONDAY + days * DAY + round(hours * HOUR))


def test_with_no_past_all_stays_as_it_is() -> None:
    prediction = Prediction()
    prediction.observe(MONDAY, "vu", 7)
    prediction.observe(MONDAY, "delft", 3)
    assert prediction.forecast(MONDAY) == pytest.approx(10)


def test_nothing_is_expected_of_nobody() -> None:
    prediction = Prediction()
    assert (prediction.known, prediction.forecast(MONDAY)) == (False, 0)
    prediction.observe(MONDAY, "vu", 7)
    assert prediction.known


def test_it_learns_that_mornings_are_busy() -> None:
    prediction = after_days(8)
    prediction.observe(at(8, 7.99), "vu", NIGHT)
    assert prediction.forecast(at(8, 7.99)) == pytest.approx(DAYTIME)


def test_yesterday_stands_in_for_last_week() -> None:
    prediction = after_days(1)
    prediction.observe(at(1, 7.99), "vu", NIGHT)
    assert prediction.forecast(at(1, 7.99)) == pytest.approx(DAYTIME)


def test_what_is_unusual_now_counts_more_than_the_past() -> None:
    """At 3 in the night 16 nodes are usual: if none is free, few will be in the hour to come."""
    prediction = after_days(8)
    for minute in range(0, 180, 10):
        prediction.observe(Instant(at(8, 0) + minute * MINUTE), "vu", 0)
    assert prediction.forecast(at(8, 3)) < NIGHT / 2 + 1


def test_what_was_predicted_is_held_against_what_came_true() -> None:
    prediction = Prediction()
    settled = Instant(MONDAY + SETTLED)
    prediction.observe(MONDAY, "vu", 2)
    prediction.observe(settled, "vu", 10)
    prediction.observe(Instant(settled + HOUR // 2), "vu", 4)
    assert not prediction.checks
    prediction.observe(Instant(settled + 2 * HOUR), "vu", 9)
    first = prediction.checks[0]
    assert first.made_at == settled
    assert first.came_true == pytest.approx(7)
    assert 8 < first.predicted <= 10, "that it was 2 a minute ago counts little"
    assert prediction.mean_error is not None


def test_nothing_is_predicted_before_all_clusters_have_reported() -> None:
    """They answer one after the other when koalad begins."""
    prediction = Prediction()
    prediction.observe(MONDAY, "vu", 10)
    prediction.observe(MONDAY, "delft", 0)
    for second in range(5, 2 * 3600, 5):
        prediction.observe(Instant(MONDAY + second * SECOND), "delft", 6)
    assert prediction.checks[0].predicted == pytest.approx(16, abs=1)


def test_it_gets_better_with_the_days() -> None:
    def error(days: int) -> float:
        checks = [each for each in after_days(days).checks if each.made_at >= at(days - 1, 0)]
        return sum(abs(each.predicted - each.came_true) for each in checks) / len(checks)

    assert error(9) < error(1) / 2


# ---- after a restart


def reborn(prediction: Prediction) -> Prediction:
    """Return the state that koalad begins with when it is started anew."""
    learned = prediction.to_keep()
    assert learned is not None
    return Prediction(learned=learned)


def test_what_was_learned_outlives_koalad() -> None:
    before = after_days(8)
    after = reborn(before)
    assert after.checks == before.checks
    assert after.forecast(at(8, 7.99)) == pytest.approx(DAYTIME), "before anything is measured the usual is expected"
    for each in (before, after):
        each.observe(at(8, 7.99), "vu", NIGHT)
    assert after.forecast(at(8, 7.99)) == pytest.approx(before.forecast(at(8, 7.99)))


def test_nothing_is_learned_of_the_time_in_which_nobody_watched() -> None:
    """koalad ends on a Monday morning when all is idle, which is unusual, and is started on Wednesday."""
    before = after_days(15)
    before.observe(at(15, 0), "vu", 85)
    after = reborn(before)
    after.observe(at(17, 0), "vu", NIGHT)
    assert after.forecast(at(17, 0)) == pytest.approx(NIGHT)
    assert [each.made_at for each in after.checks if each.made_at > at(14, 23)] == []
    for minute in range(0, 120, 10):
        after.observe(Instant(at(17, 0) + minute * MINUTE), "vu", NIGHT)
    last = after.checks[-1]
    assert last.made_at >= at(17, 0)
    assert last.predicted == pytest.approx(NIGHT)
    assert last.came_true == NIGHT


def test_it_is_kept_once_for_each_forecast() -> None:
    prediction = Prediction()
    assert prediction.to_keep() is None
    kept = 0
    for second in range(0, 3600, 10):
        prediction.observe(Instant(MONDAY + second * SECOND), "vu", 4)
        kept += prediction.to_keep() is not None
    assert kept == 6


@given(st.lists(st.tuples(st.integers(0, 40 * DAY), st.sampled_from(["vu", "delft"]), st.integers(0, 85)), max_size=30))
def test_a_forecast_lies_among_what_was_seen(measured: list[tuple[int, str, int]]) -> None:
    prediction = Prediction()
    most = {"vu": 0, "delft": 0}
    for instant, cluster, nodes in sorted(measured):
        prediction.observe(Instant(instant), cluster, nodes)
        most[cluster] = max(most[cluster], nodes)
        assert -1e-6 <= prediction.forecast(Instant(instant)) <= sum(most.values()) + 1e-6
