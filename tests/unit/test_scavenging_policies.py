"""Idleness, admission, preemption and order: each shipped policy, and what no third party's answer may be."""

import sys

import pytest

from koalapy.config.hours import parse_hours
from koalapy.model.cluster import Scavenge
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.units import HOUR, Duration, Instant, parse_instant
from koalapy.policies.admission import AdmissionState, admission_error, by_hand, dynamic
from koalapy.policies.idleness import ClusterNodes, allowance_error, any_idle, site_rules
from koalapy.policies.preemption import Candidate, fewest_running, newest_first, oldest_first, order_error
from koalapy.policies.sweep_order import BACK_HOME, IN_ORDER, Pool, exclusion_error, feed_error
from koalapy.scavenging.policy_calls import call_policy

NIGHT = parse_instant("2030-01-31T23:30:00Z")


def sight(
    idle: int = 4, held: int = 0, waiting: int = 0, offset: int = 0, now: Instant = NIGHT, **rules: object
) -> ClusterNodes:
    return ClusterNodes(
        total=16,
        idle=idle,
        held=held,
        waiting=waiting,
        now=now,
        utc_offset=Duration(offset),
        rules=Scavenge(**rules),  # type: ignore[arg-type]
    )


def test_without_rules_all_that_is_idle_may_be_held() -> None:
    assert site_rules(sight(idle=4, held=3)) == 7


def test_too_small_an_idle_share_stops_growth() -> None:
    assert site_rules(sight(idle=3, idle_share=0.25)) == 0
    assert site_rules(sight(idle=4, idle_share=0.25)) == 4


def test_what_sweeps_hold_counts_as_idle() -> None:
    """Or a cluster would be closed by the very nodes that it was opened for."""
    assert site_rules(sight(idle=1, held=3, idle_share=0.25)) == 4
    assert site_rules(sight(idle=0, held=3, idle_share=0.25)) == 3


@pytest.mark.parametrize("policy", [site_rules, any_idle])
def test_a_waiting_local_job_stops_growth(policy: object) -> None:
    assert callable(policy)
    assert policy(sight(idle=4, held=3, waiting=1)) == 3


def test_no_more_nodes_than_named() -> None:
    assert site_rules(sight(idle=9, held=3, max_nodes=5)) == 5
    assert site_rules(sight(idle=0, held=7, waiting=1, max_nodes=5)) == 5


def test_outside_the_hours_none_may_be_held() -> None:
    nights = parse_hours("* 20-23,0-7 * * *")
    assert site_rules(sight(held=2, hours=nights)) == 6
    assert site_rules(sight(held=2, now=Instant(NIGHT - 6 * HOUR), hours=nights)) == 0


def test_what_stops_growth_is_told() -> None:
    nights = parse_hours("* 20-23,0-7 * * *")
    sights = {
        "others' jobs wait for its nodes": sight(held=3, waiting=1, idle_share=0.5),
        "3 of its 16 nodes are idle or with sweeps, and 25% must be": sight(idle=3, idle_share=0.25),
        "sweeps may hold 5 of its nodes, no more": sight(idle=9, held=3, max_nodes=5),
        "sweeps may have nodes there at other hours only (* 20-23,0-7 * * *)": sight(hours=nights, offset=9 * HOUR),
        "": sight(idle=4, held=1, max_nodes=6),
    }
    assert [getattr(site_rules(each), "why", None) for each in sights.values()] == list(sights)


def test_hours_go_by_the_clock_on_the_wall() -> None:
    evening = parse_hours("* 23 * * *")
    assert site_rules(sight(hours=evening)) == 4
    assert site_rules(sight(hours=evening, offset=HOUR)) == 0


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [(5, ""), (-1, "it allows -1 nodes"), (6, "it allows 6 nodes, of 5"), (None, "it allows None nodes")],
)
def test_no_more_can_be_allowed_than_there_is(answer: int, wrong: str) -> None:
    assert allowance_error(answer, sight(idle=3, held=2)) == wrong


def crowd(
    active: tuple[int, ...] = (), waiting: tuple[int, ...] = (9, 9, 9), predicted: float = 0, most: int | None = None
) -> AdmissionState:
    return AdmissionState(active=active, waiting=waiting, predicted=predicted, most=most, nodes_per_runner=4)


def test_by_hand_admits_up_to_the_maximum() -> None:
    assert by_hand(crowd()) == 3
    assert by_hand(crowd(active=(9,), most=2)) == 1
    assert by_hand(crowd(active=(9, 9, 9), most=2)) == 0


def test_dynamic_admits_as_many_as_will_have_their_nodes() -> None:
    assert dynamic(crowd(predicted=8)) == 2
    assert dynamic(crowd(active=(9,), predicted=8)) == 1
    assert dynamic(crowd(active=(9, 9), predicted=8)) == 0
    assert dynamic(crowd(predicted=100, most=1)) == 1


def test_dynamic_counts_a_small_sweep_for_what_it_wants() -> None:
    assert dynamic(crowd(waiting=(1, 1, 9), predicted=6)) == 3


def test_dynamic_keeps_the_order_of_arrival() -> None:
    assert dynamic(crowd(active=(9,), waiting=(9, 1), predicted=5)) == 0


def test_dynamic_always_lets_one_run() -> None:
    assert dynamic(crowd(predicted=0)) == 1
    assert dynamic(crowd(active=(1,), predicted=0)) == 0


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [(3, ""), (4, "it admits 4 of 3 waiting sweeps"), (-1, "it admits -1 of 3 waiting sweeps")],
)
def test_only_those_can_be_admitted_that_wait(answer: int, wrong: str) -> None:
    assert admission_error(answer, crowd()) == wrong


LAUNCHERS = [
    Candidate(launcher=1, running=4, pulled_at=Instant(30), started_at=Instant(1)),
    Candidate(launcher=2, running=4, pulled_at=Instant(50), started_at=Instant(2)),
    Candidate(launcher=3, running=0),
    Candidate(launcher=4, running=1, pulled_at=Instant(40), started_at=Instant(3)),
]


@pytest.mark.parametrize(
    ("policy", "order"),
    [(newest_first, [3, 2, 4, 1]), (oldest_first, [3, 1, 4, 2]), (fewest_running, [3, 4, 2, 1])],
)
def test_who_goes_first(policy: object, order: list[int]) -> None:
    assert callable(policy)
    answer = policy(LAUNCHERS)
    assert [each.launcher for each in answer] == order
    assert order_error(answer, LAUNCHERS) == ""


def test_an_order_of_others_is_told_apart() -> None:
    assert order_error(LAUNCHERS[:3], LAUNCHERS) == "it orders 3 Launchers, not each of the 4 once"
    assert order_error([*LAUNCHERS[:3], LAUNCHERS[0]], LAUNCHERS) != ""


def numbers(*pairs: tuple[int, int]) -> Intervals:
    return Intervals.of(pairs)


POOL = Pool(
    waiting=numbers((5, 6), (9, 9), (20, 29)),
    returned={"A": numbers((5, 6)), "B": numbers((9, 9))},
    holds={"A": 2, "B": 1},
)


def test_in_order_what_came_back_goes_first() -> None:
    assert IN_ORDER.feed(POOL, "A", 2) == numbers((5, 6))
    assert IN_ORDER.feed(POOL, "C", 5) == numbers((5, 6), (9, 9), (20, 21))
    late = Pool(waiting=numbers((5, 29)), returned={"B": numbers((9, 9), (25, 25))})
    assert IN_ORDER.feed(late, "A", 3) == numbers((5, 5), (9, 9), (25, 25))


def test_what_was_preempted_goes_back_to_where_its_files_are() -> None:
    assert BACK_HOME.feed(POOL, "B", 3) == numbers((9, 9), (20, 21))
    assert BACK_HOME.feed(POOL, "C", 3) == numbers((20, 22))


def test_it_is_run_elsewhere_rather_than_never() -> None:
    last = Pool(waiting=numbers((5, 6)), returned=POOL.returned, holds=POOL.holds)
    assert BACK_HOME.feed(last, "B", 3) == numbers((5, 6))
    away = Pool(waiting=POOL.waiting, returned=POOL.returned, holds={"B": 1})
    assert BACK_HOME.feed(away, "B", 4) == numbers((5, 6), (9, 9), (20, 20))


@pytest.mark.parametrize("order", [IN_ORDER, BACK_HOME])
def test_all_that_waits_is_fed_in_the_end(order: object) -> None:
    assert order in (IN_ORDER, BACK_HOME)
    assert IN_ORDER.feed(POOL, "A", 99) == BACK_HOME.feed(POOL, "A", 99) == POOL.waiting
    assert IN_ORDER.feed(POOL, "A", 0) == BACK_HOME.feed(POOL, "A", 0) == NONE


def test_a_wrong_feed_is_told_apart() -> None:
    assert feed_error(numbers((5, 6)), POOL, 2) == ""
    assert feed_error(numbers((5, 6), (9, 9)), POOL, 2) == "it feeds 3 parameters, more than 2"
    assert feed_error(numbers((5, 7)), POOL, 9) == "it feeds parameter 7, which does not wait"
    assert feed_error([5], POOL, 9) == "it feeds list, not Intervals"  # type: ignore[arg-type]
    assert exclusion_error(["A"], ["A", "B"]) == ""
    assert exclusion_error(["Z"], ["A", "B"]) == "it avoids Z, which is not a cluster of the grid"


def test_a_policy_that_raises_changes_nothing() -> None:
    def broken() -> int:
        raise KeyError("vu")

    assert call_policy(broken, lambda nodes: "", 0) == (0, "it raised KeyError: 'vu'")
    assert call_policy(lambda: sys.exit(3), lambda nodes: "", 0) == (0, "it raised SystemExit: 3")


def test_a_policy_that_answers_nonsense_changes_nothing() -> None:
    def wrong(count: int) -> str:
        return admission_error(count, crowd())

    assert call_policy(lambda: 7, wrong, 1) == (1, "it admits 7 of 3 waiting sweeps")
    assert call_policy(lambda: 2, wrong, 1) == (2, "")
