"""How often the batch system is measured and glanced at, and that it is paid for."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from kcm_talk import SECOND, T0, deeds, machine
from koalapy_adapters.batch.protocol import RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm import actions as do
from koalapy_adapters.kcm.polling import COST_FACTOR, CREDIT, SERVERS, Pace
from koalapy_adapters.messages import Acknowledge

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

POLL = 10
QUIET: list[str] = []
Seen = Callable[[int], list[str] | None]


def scavenging(floor: float = 1.0, glances: bool = True, cost: int = 0) -> Pace:
    """Launchers hold nodes, as the first measurement has just said, which had this cost."""
    pace = Pace(POLL, floor, glances)
    assert pace.start(T0)
    pace.measured(cost, failed=False)
    pace.scavenging = True
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
    """A first glance is news; it is measured at once, and what others wait for is known from then on."""
    at = glanced(pace, seen)
    assert pace.start(at)
    pace.measured(0, failed=False)
    due = pace.due()
    assert due is not None
    return due


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


def test_between_two_measurements_it_glances_at_the_floor() -> None:
    glances, measures = run(scavenging(), 40, lambda at: QUIET, 10, 10)
    assert glances[:3] == [T0 + SECOND, T0 + 2 * SECOND, T0 + 3 * SECOND]
    assert measures == [T0 + SECOND, *(T0 + (1 + POLL * n) * SECOND for n in (1, 2, 3))]


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
    changed_at = glanced(pace, ["7 qw"], cost=400_000)
    assert changed_at == T0 + 2 * SECOND
    assert pace.start(changed_at)
    pace.measured(0, failed=False)
    due = pace.due()
    assert due is not None
    assert due == changed_at + SERVERS * COST_FACTOR * 200_000 - CREDIT  # in the mean of two


def test_after_a_burst_of_measurements_it_still_glances_at_the_floor() -> None:
    """As Launchers begin all is asked again and again, and owed for seconds each time."""
    pace, dear, cheap = scavenging(cost=35_000), 35_000, 5_000
    pace.urgent = True
    glances, measures = run(pace, 120, lambda at: QUIET, cheap, dear)
    looks = sorted(glances + measures)
    assert longest(looks) <= 3 * SECOND
    assert longest(measures) <= 1.5 * POLL * SECOND


@pytest.mark.parametrize("floor", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("changes", [10**9, 60 * SECOND, SECOND])
def test_in_the_long_run_it_costs_no_more_than_it_may(floor: float, changes: int) -> None:
    """However soon it is to look, and however often others' jobs come and go."""
    minutes, glance, measure = 10, 9_000, 15_000
    glances, measures = run(
        scavenging(floor, cost=measure), minutes * 60, lambda at: [str(at // changes)], glance, measure
    )
    spent = SERVERS * (len(glances) * glance + len(measures) * measure)
    last = SERVERS * (glance + measure)
    assert COST_FACTOR * spent <= minutes * 60 * SECOND + CREDIT + COST_FACTOR * last
    assert longest(measures) <= 2 * POLL * SECOND


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
    launcher = tag_of(InstanceId("aaaaa"), AttemptId(JobId(FIRST_LAUNCHER), 0, 1))
    kcm = machine([launcher, "41"], floor=2.0, glances=True)
    kcm.start(T0)
    capacity = Capacity(4, 0, 4, 0, 0, [launcher], [], [], {"41": JobStatus("41", launcher, RUNNING)})
    kcm.handle(T0, do.CapacityMeasured(T0, capacity, None, 10))
    kcm.handle(T0, Acknowledge(9))
    assert kcm.wakeup() == T0 + 2 * SECOND
    assert deeds(kcm.tick(T0 + 2 * SECOND)) == [do.Glance]
    assert deeds(kcm.handle(T0 + 2 * SECOND, do.Glanced(QUIET, 10))) == [do.Measure]
