"""Pilots that koalapy opens by itself: never too many, ever more rarely in vain, and again when they are of use."""

from dataclasses import replace

import hypothesis.strategies as some
import pytest
from hypothesis import given

from koalapy.model.identity import JobId
from koalapy.model.pilot import PilotRule, pilot_request
from koalapy.model.request import ComponentRequest, PilotOptions
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.pilots import LONGEST_PAUSE, OwnPilots, PilotKeeper

HELD = ComponentRequest(processors=8, executable="", walltime=HOUR)
RULE = PilotRule(
    least=0, most=3, waiting=Duration(5 * MINUTE), request=pilot_request(HELD, PilotOptions(automatic=True))
)
START = Instant(1_000_000 * SECOND)
USED, IDLE, BINDING = OwnPilots(True, True), OwnPilots(True, False), OwnPilots(False, False)


def at(seconds: float) -> Instant:
    return Instant(START + round(seconds * SECOND))


def test_a_job_must_have_waited_long_enough() -> None:
    keeper = PilotKeeper()
    assert keeper.step(START, RULE, {}, None) == 0
    assert keeper.step(at(299), RULE, {}, START) == 0
    assert keeper.step(at(300), RULE, {}, START) == 1


def test_there_is_one_in_a_batch_queue_at_a_time_and_never_more_than_the_most() -> None:
    keeper = PilotKeeper()
    assert keeper.step(at(600), RULE, {JobId(1): BINDING}, START) == 0
    assert keeper.step(at(600), RULE, {JobId(1): USED}, START) == 1
    three = {JobId(number): USED for number in (1, 2, 3)}
    assert keeper.step(at(600), RULE, three, START) == 0


def test_the_least_are_always_there() -> None:
    keeper, rule = PilotKeeper(), replace(RULE, least=2)
    assert keeper.step(START, rule, {}, None) == 1
    assert keeper.step(START, rule, {JobId(1): BINDING}, None) == 0
    assert keeper.step(START, rule, {JobId(1): IDLE}, None) == 1
    assert keeper.step(START, rule, {JobId(1): IDLE, JobId(2): IDLE}, None) == 0


def test_after_pilots_of_no_use_the_pauses_double_up_to_an_hour_until_one_is_of_use() -> None:
    keeper, now, pauses = PilotKeeper(), at(600), []
    for number in range(1, 10):
        assert keeper.step(now, RULE, {}, START) == 1
        keeper.step(now, RULE, {JobId(number): BINDING}, START)
        assert keeper.step(now, RULE, {}, START) == 0
        assert keeper.paused_until is not None
        pauses.append(keeper.paused_until - now)
        now = keeper.paused_until
    minutes = [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pauses == [each * MINUTE for each in minutes]
    keeper.step(now, RULE, {JobId(99): USED}, START)
    assert keeper.step(now, RULE, {}, START) == 1


@given(some.lists(some.tuples(some.sampled_from(("open", "bind", "use", "end")), some.integers(0, 7200)), max_size=60))
def test_whatever_becomes_of_them_they_are_bounded_and_come_again(story: list[tuple[str, int]]) -> None:
    keeper, kept, now, number = PilotKeeper(), dict[JobId, OwnPilots](), START, 0
    for what, seconds in story:
        now = Instant(now + seconds * SECOND)
        if kept and what != "open":
            oldest = min(kept)
            if what == "end":
                del kept[oldest]
            else:
                kept[oldest] = OwnPilots(True, what == "use")
        opened = keeper.step(now, RULE, kept, START)
        assert opened in (0, 1)
        if opened:
            number += 1
            kept[JobId(number)] = BINDING
        assert len(kept) <= RULE.most
        assert sum(not each.bound for each in kept.values()) <= 1
    kept.clear()
    keeper.step(now, RULE, kept, START)
    assert keeper.step(Instant(now + LONGEST_PAUSE), RULE, kept, START) == 1


@pytest.mark.parametrize("hours", [24])
def test_a_cluster_where_none_is_ever_of_use_sees_few_of_them(hours: int) -> None:
    keeper, opened, kept = PilotKeeper(), 0, dict[JobId, OwnPilots]()
    for second in range(600, hours * 3600, 10):
        kept.clear()
        if keeper.step(at(second), RULE, kept, START):
            opened += 1
            kept[JobId(opened)] = BINDING
            keeper.step(at(second), RULE, kept, START)
    assert opened <= hours + 7
