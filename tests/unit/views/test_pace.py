"""How fast sweeps go: results of the last minute over the time since the first of them."""

from koalapy.model.identity import AttemptId, JobId
from koalapy.model.parameters import ParameterResult, ResultBatch
from koalapy.model.units import MINUTE, SECOND, Instant
from koalapy.views.sweeps import Pace

SWEEP, OTHER = JobId(7), JobId(8)


def batch(count: int, sweep: JobId = SWEEP) -> ResultBatch:
    results = tuple(ParameterResult(n, 0, "exited", "node-1", 0, 0, 1, 0, 0, 0, 0) for n in range(count))
    return ResultBatch(sweep, "alpha", AttemptId(JobId(9), 0, 1), results)


def at(seconds: float) -> Instant:
    return Instant(round(seconds * SECOND))


def test_nothing_is_reported_before_there_are_two_moments_to_compute_it_from() -> None:
    pace = Pace()
    assert pace.per_minute(at(0), SWEEP) is None
    pace.count(at(0), [batch(50)])
    assert pace.per_minute(at(30), SWEEP) is None


def test_what_came_first_begins_the_time_and_counts_nothing() -> None:
    pace = Pace()
    for second in range(11):
        pace.count(at(second), [batch(5)])
    assert pace.per_minute(at(10), SWEEP) == 300


def test_a_sweep_that_gets_nothing_more_slows_down() -> None:
    pace = Pace()
    for second in range(11):
        pace.count(at(second), [batch(5)])
    assert pace.per_minute(at(20), SWEEP) == 150


def test_only_the_last_minute_counts() -> None:
    pace = Pace()
    for second in range(60):
        pace.count(at(second), [batch(100)])
    for second in range(60, 181):
        pace.count(at(second), [batch(1)])
    rate = pace.per_minute(at(180), SWEEP)
    assert rate is not None
    assert abs(rate - 60) < 1


def test_many_results_a_second_are_one_count() -> None:
    pace = Pace()
    for tenth in range(600):
        pace.count(at(tenth / 10), [batch(1)])
    rate = pace.per_minute(at(60), SWEEP)
    assert rate is not None
    assert abs(rate - 600) < 15


def test_sweeps_are_distinguished_and_forgotten_when_they_are_over() -> None:
    pace = Pace()
    for second in range(3):
        pace.count(at(second), [batch(1), batch(10, OTHER)])
    assert pace.per_minute(at(2), SWEEP) == 60
    assert pace.per_minute(at(2), OTHER) == 600
    pace.forget(OTHER)
    assert pace.per_minute(at(2), OTHER) is None
    assert pace.per_minute(Instant(2 * SECOND + MINUTE), SWEEP) is not None
