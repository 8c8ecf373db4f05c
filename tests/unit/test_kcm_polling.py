"""How often the batch system is measured and glanced at, and that it is paid for."""

from collections.abc import Callable
from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kcm_talk import SECOND, T0, deeds, machine
from koalapy_adapters.batch.protocol import RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.poll_budget import COST_FACTOR, MARGIN, SAVED, SERVERS, Account
from koalapy_adapters.kcm.state.poll_schedule import SOON, Pace
from koalapy_adapters.messages import Acknowledge, Submit

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

POLL = 10
QUIET: list[str] = []
LAUNCHER = tag_of(InstanceId("aaaaa"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1))
Seen = Callable[[int], list[str] | None]


def scavenging(floor: float = 1.0, glances: bool = True, cost: int = 0) -> Pace:
    """Launchers are there; the first measurement, which had this cost, has just ended."""
    pace = Pace(POLL, floor, glances)
    pace.scavenging = True
    assert pace.start(T0)
    pace.measured(cost, failed=False)
    return pace


def glanced(pace: Pace, seen: list[str] | None, cost: int = 0) -> int:
    """When the next call is due, which must be a glance, that sees this; then when the one after is."""
    at = pace.due()
    assert at is not None
    assert not pace.start(at)
    pace.glanced(cost, seen)
    due = pace.due()
    assert due is not None
    return due


def known(pace: Pace, seen: list[str]) -> int:
    """A first glance is compared with nothing; it is measured soon, and what others wait for is known from then on."""
    due = glanced(pace, seen)
    assert pace.start(due)
    pace.measured(0, failed=False)
    next_due = pace.due()
    assert next_due is not None
    return next_due


def longest(instants: list[int]) -> int:
    """What lies between two of them at most."""
    return max(later - sooner for sooner, later in pairwise(instants))


def run(pace: Pace, seconds: int, seen: Seen, glance: int, measure: int) -> tuple[list[int], list[int]]:
    """When it glanced and when it measured in that time; each takes no time, and costs so many microseconds."""
    glances, measures = [], []
    while (at := pace.due()) is not None and at < T0 + seconds * SECOND:
        if pace.start(at):
            measures.append(at)
            pace.measured(measure, failed=False)
        else:
            glances.append(at)
            pace.glanced(glance, seen(at))
    return glances, measures


def paid(cost: int) -> int:
    """The waiting that pays for processor time of a sweep."""
    return round(COST_FACTOR * SERVERS * MARGIN * cost)


def test_between_two_measurements_it_glances_at_the_floor() -> None:
    glances, measures = run(scavenging(), 40, lambda at: QUIET, 10, 10)
    assert glances[:3] == [T0 + SECOND, T0 + 2.2 * SECOND, T0 + 3.2 * SECOND]
    assert measures == [T0 + (1.2 + POLL * n) * SECOND for n in range(4)]


def test_where_the_dialect_knows_no_glance_it_measures_at_the_floor() -> None:
    glances, measures = run(scavenging(glances=False), 10, lambda at: QUIET, 10, 10)
    assert (glances, len(measures)) == ([], 9)


def test_with_no_nodes_of_others_at_stake_it_does_not_glance() -> None:
    pace = scavenging()
    pace.scavenging = False
    assert pace.due() == T0 + POLL * SECOND
    assert pace.start(T0 + POLL * SECOND)


def test_what_a_glance_sees_change_is_measured_at_once_and_paid_later() -> None:
    pace = scavenging()
    known(pace, QUIET)
    changed_at = glanced(pace, ["7 qw"], cost=40_000)
    assert changed_at == T0 + 2.2 * SECOND
    assert pace.start(changed_at)
    pace.measured(40_000, failed=False)
    due = pace.due()
    assert due is not None
    saved = 2_200_000  # since it began
    assert abs(due - (changed_at + 2 * paid(40_000) - saved)) < 10


def test_what_is_waited_for_is_saved_and_not_without_end() -> None:
    account = Account(T0)
    assert account.holds(SECOND) == T0 + SECOND
    assert account.holds(10 * SECOND) == T0 + SAVED
    account.pay(T0 + 100 * SECOND, 10 * SECOND)
    assert account.even_at == T0 + 110 * SECOND - SAVED


@pytest.mark.parametrize(
    ("glance", "measure", "blind", "until_seen"),
    [(1_500, 20_000, 1.5, 0.55), (6_000, 25_000, 2.5, 0.85), (9_500, 19_000, 3.1, 1.2)],
    ids=["Slurm by its API", "Slurm", "Grid Engine"],
)
def test_while_launchers_come_and_go_all_the_time_it_glances_all_the_same(
    glance: int, measure: int, blind: float, until_seen: float
) -> None:
    """Each change of the list of our own jobs asks for a measurement, and there always is one."""
    pace = scavenging(cost=measure)
    pace.urgent = True
    glances, measures = run(pace, 600, lambda at: QUIET, glance, measure)
    looks = sorted(glances + measures)
    assert longest(looks) <= blind * SECOND
    assert sum((later - sooner) ** 2 for sooner, later in pairwise(looks)) / 2 / 600 / SECOND**2 <= until_seen
    assert longest(measures) <= 1.5 * POLL * SECOND


@settings(max_examples=40, deadline=None)
@given(st.integers(), st.sampled_from([0.1, 1.0, 2.0]), st.integers(0, 120))
def test_it_costs_no_more_than_one_percent_of_any_minute(seed: int, floor: float, idle: int) -> None:
    """However dear looks are from one to the next, and however own and others' jobs come and go, in bursts and not."""
    pace, chance = Pace(POLL, floor, glances=True), Random(seed)
    now, looks, burst = T0, [(T0, 0.0)], False
    while now < T0 + (idle + 150) * SECOND:
        burst ^= chance.random() < 0.1
        pace.scavenging = now >= T0 + idle * SECOND
        pace.urgent = burst and chance.random() < 0.5
        if burst:
            pace.soon(now)
        due = pace.due()
        assert due is not None
        now = max(now, due)
        cost = chance.randint(1_000, 10_000)
        if pace.start(now):
            cost = chance.randint(5_000, 22_000)
            pace.measured(cost, failed=False)
        else:
            pace.glanced(cost, [str(chance.randrange(3 if burst else 1))])
        looks.append((now, cost * (SERVERS if pace.scavenging else 1)))
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
    """However soon it is to glance, and however often others' jobs come and go."""
    _, measures = run(scavenging(0.1, cost=15_000), 600, lambda at: [str(at // changes)], 9_000, 15_000)
    assert longest(measures) <= 1.5 * POLL * SECOND


def test_a_glance_that_fails_alone_is_not_tried_again() -> None:
    pace = scavenging()
    assert pace.start(glanced(pace, None))
    pace.measured(0, failed=False)
    assert run(pace, 5, lambda at: QUIET, 0, 0)[0] == []


def test_one_that_fails_as_all_does_is() -> None:
    pace = scavenging()
    at = glanced(pace, None)
    assert pace.start(at)
    pace.measured(0, failed=True)
    assert pace.due() == at + POLL * SECOND
    assert pace.start(at + POLL * SECOND)
    pace.measured(0, failed=False)
    glanced(pace, QUIET)


def test_the_kcm_glances_while_launchers_hold_nodes() -> None:
    kcm = machine([LAUNCHER, "41"], floor=2.0, glances=True)
    kcm.start(T0)
    capacity = Capacity(4, 0, 4, 0, 0, [LAUNCHER], [], [], {"41": JobStatus("41", LAUNCHER, RUNNING)})
    kcm.handle(T0, do.CapacityMeasured(T0, capacity, None, 10))
    kcm.handle(T0, Acknowledge(9))
    assert kcm.wakeup() == T0 + 2 * SECOND
    assert deeds(kcm.tick(T0 + 2 * SECOND)) == [do.Glance]
    assert deeds(kcm.handle(T0 + 2 * SECOND, do.Glanced(QUIET, 10))) == []
    assert deeds(kcm.tick(T0 + 2 * SECOND + SOON)) == [do.Measure]
    kcm.handle(T0 + 3 * SECOND, do.CapacityMeasured(T0 + 3 * SECOND, capacity, None, 10))
    kcm.handle(T0 + 3 * SECOND, Acknowledge(99))
    assert deeds(kcm.tick(T0 + 5 * SECOND)) == [do.Glance]
    assert deeds(kcm.handle(T0 + 5 * SECOND, do.Glanced(["7 qw"], 10))) == [do.Measure]


def test_looks_are_a_sweeps_as_soon_as_its_first_launcher_is_to_be_submitted() -> None:
    kcm = machine(glances=True)
    kcm.start(T0)
    kcm.handle(T0, do.CapacityMeasured(T0, Capacity(4, 4, 0, 0, 0, [], [], [], {}), None, 10))
    kcm.handle(T0, Acknowledge(9))
    assert kcm.wakeup() == T0 + POLL * SECOND
    kcm.handle(T0, Submit(1, LAUNCHER, {"processors": 4}, {"grace": 2.0}, [], False))
    assert deeds(kcm.tick(T0 + SECOND)) == [do.Glance]
