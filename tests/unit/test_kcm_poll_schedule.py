"""How often the batch system is measured and fingerprinted, and that it is paid for."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kcm_talk import SECOND, T0, machine, operations
from koalapy_adapters.batch.protocol import RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.poll_schedule import COST_FACTOR, MARGIN, SAVED, SERVERS, SOON, PollBudget, PollSchedule
from koalapy_adapters.messages import Acknowledge, Submit

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

POLL = 10
QUIET: list[str] = []
LAUNCHER = tag_of(InstanceId("aaaaa"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1))
Seen = Callable[[int], list[str] | None]


def scavenging(floor: float = 1.0, fingerprints: bool = True, cost: int = 0) -> PollSchedule:
    """Launchers are there; the first measurement, which had this cost, has just ended."""
    poll_schedule = PollSchedule(POLL, floor, fingerprints)
    poll_schedule.scavenging = True
    assert poll_schedule.start(T0)
    poll_schedule.measured(cost, failed=False)
    return poll_schedule


def fingerprinted(poll_schedule: PollSchedule, seen: list[str] | None, cost: int = 0) -> int:
    """When the next call is due, which must be a fingerprint, that sees this; then when the one after is."""
    at = poll_schedule.due()
    assert at is not None
    assert not poll_schedule.start(at)
    poll_schedule.fingerprinted(cost, seen)
    due = poll_schedule.due()
    assert due is not None
    return due


def known(poll_schedule: PollSchedule, seen: list[str]) -> int:
    """A first fingerprint is compared with nothing; a measurement follows soon, and tells what others wait for."""
    due = fingerprinted(poll_schedule, seen)
    assert poll_schedule.start(due)
    poll_schedule.measured(0, failed=False)
    next_due = poll_schedule.due()
    assert next_due is not None
    return next_due


def longest(instants: list[int]) -> int:
    """What lies between two of them at most."""
    return max(later - sooner for sooner, later in pairwise(instants))


def run(
    poll_schedule: PollSchedule, seconds: int, seen: Seen, fingerprint: int, measure: int
) -> tuple[list[int], list[int]]:
    """When it fingerprinted and when it measured in that time; each takes no time, and costs so many microseconds."""
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
    """The waiting that pays for processor time of a sweep."""
    return round(COST_FACTOR * SERVERS * MARGIN * cost)


def test_between_two_measurements_it_fingerprints_at_the_floor() -> None:
    fingerprints, measures = run(scavenging(), 40, lambda at: QUIET, 10, 10)
    assert fingerprints[:3] == [T0 + SECOND, T0 + 2.2 * SECOND, T0 + 3.2 * SECOND]
    assert measures == [T0 + (1.2 + POLL * n) * SECOND for n in range(4)]


def test_where_the_dialect_knows_no_fingerprint_it_measures_at_the_floor() -> None:
    fingerprints, measures = run(scavenging(fingerprints=False), 10, lambda at: QUIET, 10, 10)
    assert (fingerprints, len(measures)) == ([], 9)


def test_with_no_nodes_of_others_at_stake_it_takes_no_fingerprint() -> None:
    poll_schedule = scavenging()
    poll_schedule.scavenging = False
    assert poll_schedule.due() == T0 + POLL * SECOND
    assert poll_schedule.start(T0 + POLL * SECOND)


def test_what_a_fingerprint_sees_change_is_measured_at_once_and_paid_later() -> None:
    poll_schedule = scavenging()
    known(poll_schedule, QUIET)
    changed_at = fingerprinted(poll_schedule, ["7 qw"], cost=40_000)
    assert changed_at == T0 + 2.2 * SECOND
    assert poll_schedule.start(changed_at)
    poll_schedule.measured(40_000, failed=False)
    due = poll_schedule.due()
    assert due is not None
    saved = 2_200_000  # since it began
    assert abs(due - (changed_at + 2 * paid(40_000) - saved)) < 10


def test_what_is_waited_for_is_saved_and_not_without_end() -> None:
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
def test_while_launchers_come_and_go_all_the_time_it_fingerprints_all_the_same(
    fingerprint: int, measure: int, blind: float, until_seen: float
) -> None:
    """Each change of the list of our own jobs asks for a measurement, and there always is one."""
    poll_schedule = scavenging(cost=measure)
    poll_schedule.urgent = True
    fingerprints, measures = run(poll_schedule, 600, lambda at: QUIET, fingerprint, measure)
    looks = sorted(fingerprints + measures)
    assert longest(looks) <= blind * SECOND
    assert sum((later - sooner) ** 2 for sooner, later in pairwise(looks)) / 2 / 600 / SECOND**2 <= until_seen
    assert longest(measures) <= 1.5 * POLL * SECOND


@settings(max_examples=40, deadline=None)
@given(st.integers(), st.sampled_from([0.1, 1.0, 2.0]), st.integers(0, 120))
@example(72, 0.1, 37)  # a sweep begins in the midst of a minute
def test_it_costs_no_more_than_one_percent_of_any_minute(seed: int, floor: float, idle: int) -> None:
    """However dear looks are from one to the next, and however own and others' jobs come and go, in bursts and not."""
    poll_schedule, chance = PollSchedule(POLL, floor, fingerprints=True), Random(seed)
    now, looks, burst = T0, [(T0, 0.0)], False
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
        looks.append((now, cost * (SERVERS if poll_schedule.scavenging else 1)))
    assert most_of_a_minute(looks) <= 0.01


def most_of_a_minute(looks: list[tuple[int, float]]) -> float:
    """The greatest share of a processor that these cost within a minute or more: instants, and microseconds."""
    spent = list(accumulate((cost for _, cost in looks)))
    return max(
        (spent[last] - spent[first]) / max(60 * SECOND, looks[last][0] - looks[first + 1][0])
        for last in range(1, len(looks))
        for first in range(last)
    )


@pytest.mark.parametrize("changes", [10**9, SECOND])
def test_no_look_is_put_off_for_ever(changes: int) -> None:
    """However soon it is to take a fingerprint, and however often others' jobs come and go."""
    _, measures = run(scavenging(0.1, cost=15_000), 600, lambda at: [str(at // changes)], 9_000, 15_000)
    assert longest(measures) <= 1.5 * POLL * SECOND


def test_a_fingerprint_that_fails_alone_is_not_tried_again() -> None:
    poll_schedule = scavenging()
    assert poll_schedule.start(fingerprinted(poll_schedule, None))
    poll_schedule.measured(0, failed=False)
    assert run(poll_schedule, 5, lambda at: QUIET, 0, 0)[0] == []


def test_one_that_fails_as_all_does_is() -> None:
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


def test_looks_are_a_sweeps_as_soon_as_its_first_launcher_is_to_be_submitted() -> None:
    kcm = machine(fingerprints=True)
    kcm.start(T0)
    kcm.handle(T0, do.CapacityMeasured(T0, Capacity(4, 4, 0, 0, 0, [], [], [], {}), None, 10))
    kcm.handle(T0, Acknowledge(9))
    assert kcm.wakeup() == T0 + POLL * SECOND
    kcm.handle(T0, Submit(1, LAUNCHER, {"processors": 4}, {"grace": 2.0}, [], False))
    assert operations(kcm.tick(T0 + SECOND)) == [do.FingerprintQueue]
