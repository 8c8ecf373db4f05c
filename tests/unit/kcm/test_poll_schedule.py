"""The poll schedule: how often the batch system is measured and fingerprinted within the poll budget."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kcm_machine import SECOND, T0, machine, operations
from koalapy_adapters.batch.protocol import RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.poll_schedule import (
    COST_FACTOR,
    MARGIN,
    SAVED,
    SERVERS,
    SOON,
    SOON_IN_OWN,
    PollBudget,
    PollSchedule,
)
from koalapy_adapters.messages.koalad import Acknowledge, Submit

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

POLL = 10
QUIET: list[str] = []
LAUNCHER = tag_of(InstanceId("aaaaa"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1))
Seen = Callable[[int], list[str] | None]


def scavenging(floor: float = 1.0, fingerprints: bool = True, cost: int = 0) -> PollSchedule:
    """Return a schedule for a cluster with Launchers, just after its first measurement, which had this cost."""
    poll_schedule = PollSchedule(POLL, floor, fingerprints)
    poll_schedule.scavenging = True
    assert poll_schedule.start(T0)
    poll_schedule.measured(cost, failed=False)
    return poll_schedule


def fingerprinted(poll_schedule: PollSchedule, seen: list[str] | None, cost: int = 0) -> int:
    """Take the next fingerprint, when it is due, with this result. Returns the instant of the call after it."""
    at = poll_schedule.due()
    assert at is not None
    assert not poll_schedule.start(at)
    poll_schedule.fingerprinted(cost, seen)
    due = poll_schedule.due()
    assert due is not None
    return due


def known(poll_schedule: PollSchedule, seen: list[str]) -> int:
    """Take a first fingerprint, and the measurement that follows it. Returns the instant of the next call."""
    due = fingerprinted(poll_schedule, seen)
    assert poll_schedule.start(due)
    poll_schedule.measured(0, failed=False)
    next_due = poll_schedule.due()
    assert next_due is not None
    return next_due


def longest_gap(instants: list[int]) -> int:
    """Return the longest time between two successive instants."""
    return max(later - sooner for sooner, later in pairwise(instants))


def run(
    poll_schedule: PollSchedule, seconds: int, seen: Seen, fingerprint: int, measure: int
) -> tuple[list[int], list[int]]:
    """Return the instants of the fingerprints and of the measurements in that time.

    `fingerprint`, `measure`: what each costs, in microseconds. Each takes no time.
    """
    fingerprints, measures = [], []
    while (at := poll_schedule.due()) is not None and at < T0 + seconds * SECOND:
        if poll_schedule.start(at):
            measures.append(at)
            poll_schedule.measured(measure, failed=False)
        else:
            fingerprints.append(at)
            poll_schedule.fingerprinted(fingerprint, seen(at))
    return fingerprints, measures


def paid(cost: int) -> int:
    """Return the waiting time that pays for this processor time of a sweep."""
    return round(COST_FACTOR * SERVERS * MARGIN * cost)


def test_fingerprints_are_taken_at_the_floor_between_two_measurements() -> None:
    fingerprints, measures = run(scavenging(), 40, lambda at: QUIET, 10, 10)
    assert fingerprints[:3] == [T0 + SECOND, T0 + 2.2 * SECOND, T0 + 3.2 * SECOND]
    assert measures == [T0 + (1.2 + POLL * n) * SECOND for n in range(4)]


def test_without_a_fingerprint_in_the_dialect_measurements_are_made_at_the_floor() -> None:
    fingerprints, measures = run(scavenging(fingerprints=False), 10, lambda at: QUIET, 10, 10)
    assert (fingerprints, len(measures)) == ([], 9)


def test_no_fingerprint_is_taken_while_no_launcher_holds_nodes() -> None:
    poll_schedule = scavenging()
    poll_schedule.scavenging = False
    assert poll_schedule.due() == T0 + POLL * SECOND
    assert poll_schedule.start(T0 + POLL * SECOND)


def test_a_changed_fingerprint_is_followed_by_a_measurement_at_once_and_paid_later() -> None:
    poll_schedule = scavenging()
    known(poll_schedule, QUIET)
    changed_at = fingerprinted(poll_schedule, ["7 qw"], cost=40_000)
    assert changed_at == T0 + 2.2 * SECOND
    assert poll_schedule.start(changed_at)
    poll_schedule.measured(40_000, failed=False)
    due = poll_schedule.due()
    assert due is not None
    saved = 2_200_000  # since the begin of the schedule
    assert abs(due - (changed_at + 2 * paid(40_000) - saved)) < 10


def test_waiting_time_is_saved_up_to_a_limit() -> None:
    account = PollBudget(T0)
    assert account.holds(SECOND) == T0 + SECOND
    assert account.holds(10 * SECOND) == T0 + SAVED
    account.pay(T0 + 100 * SECOND, 10 * SECOND)
    assert account.even_at == T0 + 110 * SECOND - SAVED


@pytest.mark.parametrize(
    ("fingerprint", "measure", "blind", "until_seen"),
    [(1_500, 20_000, 1.5, 0.55), (6_000, 25_000, 2.5, 0.85), (9_500, 19_000, 3.1, 1.2)],
    ids=["Slurm by its API", "Slurm", "Grid Engine"],
)
def test_fingerprints_are_taken_while_launchers_start_and_end_all_the_time(
    fingerprint: int, measure: int, blind: float, until_seen: float
) -> None:
    """Each change of our own jobs asks for a measurement, so that one is always wanted."""
    poll_schedule = scavenging(cost=measure)
    poll_schedule.urgent = True
    fingerprints, measures = run(poll_schedule, 600, lambda at: QUIET, fingerprint, measure)
    calls = sorted(fingerprints + measures)
    assert longest_gap(calls) <= blind * SECOND
    assert sum((later - sooner) ** 2 for sooner, later in pairwise(calls)) / 2 / 600 / SECOND**2 <= until_seen
    assert longest_gap(measures) <= 1.5 * POLL * SECOND


@settings(max_examples=40, deadline=None)
@given(st.integers(), st.sampled_from([0.1, 1.0, 2.0]), st.integers(0, 120))
@example(72, 0.1, 37)  # a sweep begins in the middle of a minute
def test_polls_cost_no_more_than_one_percent_of_any_minute(seed: int, floor: float, idle: int) -> None:
    """The cost varies from call to call, and own and others' jobs start and end, in bursts or evenly."""
    poll_schedule, chance = PollSchedule(POLL, floor, fingerprints=True), Random(seed)
    now, calls, burst = T0, [(T0, 0.0)], False
    while now < T0 + (idle + 150) * SECOND:
        burst ^= chance.random() < 0.1
        poll_schedule.scavenging = now >= T0 + idle * SECOND
        poll_schedule.urgent = burst and chance.random() < 0.5
        if burst:
            poll_schedule.soon(now)
        due = poll_schedule.due()
        assert due is not None
        now = max(now, due)
        cost = chance.randint(1_000, 10_000)
        if poll_schedule.start(now):
            cost = chance.randint(5_000, 22_000)
            poll_schedule.measured(cost, failed=False)
        else:
            poll_schedule.fingerprinted(cost, [str(chance.randrange(3 if burst else 1))])
        calls.append((now, cost * (SERVERS if poll_schedule.scavenging else 1)))
    assert most_of_a_minute(calls) <= 0.01


def most_of_a_minute(calls: list[tuple[int, float]]) -> float:
    """Return the greatest share of a processor that these calls cost within a minute or more.

    `calls`: their instants, and their costs in microseconds.
    """
    spent = list(accumulate((cost for _, cost in calls)))
    return max(
        (spent[last] - spent[first]) / max(60 * SECOND, calls[last][0] - calls[first + 1][0])
        for last in range(1, len(calls))
        for first in range(last)
    )


@pytest.mark.parametrize("changes", [10**9, SECOND])
def test_no_measurement_is_delayed_for_ever(changes: int) -> None:
    """Fingerprints may be due very soon, and others' jobs may start and end very often."""
    _, measures = run(scavenging(0.1, cost=15_000), 600, lambda at: [str(at // changes)], 9_000, 15_000)
    assert longest_gap(measures) <= 1.5 * POLL * SECOND


def test_a_fingerprint_that_fails_while_measurements_succeed_is_not_taken_again() -> None:
    poll_schedule = scavenging()
    assert poll_schedule.start(fingerprinted(poll_schedule, None))
    poll_schedule.measured(0, failed=False)
    assert run(poll_schedule, 5, lambda at: QUIET, 0, 0)[0] == []


def test_a_fingerprint_that_fails_as_measurements_do_is_taken_again() -> None:
    poll_schedule = scavenging()
    at = fingerprinted(poll_schedule, None)
    assert poll_schedule.start(at)
    poll_schedule.measured(0, failed=True)
    assert poll_schedule.due() == at + POLL * SECOND
    assert poll_schedule.start(at + POLL * SECOND)
    poll_schedule.measured(0, failed=False)
    fingerprinted(poll_schedule, QUIET)


def test_the_kcm_fingerprints_while_launchers_hold_nodes() -> None:
    kcm = machine([LAUNCHER, "41"], floor=2.0, fingerprints=True)
    kcm.start(T0)
    capacity = Capacity(4, 0, 4, 0, 0, [LAUNCHER], [], [], {"41": JobStatus("41", LAUNCHER, RUNNING)})
    kcm.handle(T0, do.CapacityMeasured(T0, capacity, None, 10))
    kcm.handle(T0, Acknowledge(9))
    assert kcm.wakeup() == T0 + 2 * SECOND
    assert operations(kcm.tick(T0 + 2 * SECOND)) == [do.FingerprintQueue]
    assert operations(kcm.handle(T0 + 2 * SECOND, do.QueueFingerprinted(QUIET, 10))) == []
    assert operations(kcm.tick(T0 + 2 * SECOND + SOON)) == [do.Measure]
    kcm.handle(T0 + 3 * SECOND, do.CapacityMeasured(T0 + 3 * SECOND, capacity, None, 10))
    kcm.handle(T0 + 3 * SECOND, Acknowledge(99))
    assert operations(kcm.tick(T0 + 5 * SECOND)) == [do.FingerprintQueue]
    assert operations(kcm.handle(T0 + 5 * SECOND, do.QueueFingerprinted(["7 qw"], 10))) == [do.Measure]


def test_polls_count_as_a_sweeps_as_soon_as_its_first_launcher_is_submitted() -> None:
    kcm = machine(fingerprints=True)
    kcm.start(T0)
    kcm.handle(T0, do.CapacityMeasured(T0, Capacity(4, 4, 0, 0, 0, [], [], [], {}), None, 10))
    kcm.handle(T0, Acknowledge(9))
    assert kcm.wakeup() == T0 + POLL * SECOND
    kcm.handle(T0, Submit(1, LAUNCHER, {"processors": 4}, {"grace": 2.0}, [], False))
    assert operations(kcm.tick(T0 + SECOND)) == [do.FingerprintQueue]


def test_the_queue_of_an_allocation_is_asked_at_once_and_pays_nothing() -> None:
    own = PollSchedule(POLL, own=True)
    assert own.start(T0)
    own.measured(SECOND // 10, failed=False)
    own.soon(T0 + 1)
    assert own.due() == T0 + 1 + SOON_IN_OWN
    assert own.bell.expire(T0)
    assert not own.bell.expire(T0 + 1)
    assert own.bell.due() == T0 + SOON_IN_OWN
