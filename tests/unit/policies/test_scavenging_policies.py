"""Idleness, admission, reclaim and order: each shipped policy, and the answers that are refused of any policy."""

import sys

import pytest

from koalapy.config.hours import parse_hours
from koalapy.model.cluster import Scavenge
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.units import HOUR, Duration, Instant, parse_instant
from koalapy.policies import call_policy
from koalapy.policies.admission import AdmissionState, admission_error, by_hand, dynamic
from koalapy.policies.idleness import ClusterNodes, allowance_error, any_idle, cluster_rules
from koalapy.policies.reclaim import Candidate, fewest_running, newest_first, oldest_first, order_error
from koalapy.policies.sweep_order import BACK_HOME, IN_ORDER, Pool, exclusion_error, feed_error

NIGHT = parse_instant("2030-01-31T23:30:00Z")


def cluster_nodes(
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


def test_without_rules_all_idle_nodes_may_be_held() -> None:
    assert cluster_rules(cluster_nodes(idle=4, held=3)) == 7
    assert any_idle(cluster_nodes(idle=4, held=3)) == 7


def test_too_small_an_idle_share_stops_growth() -> None:
    assert cluster_rules(cluster_nodes(idle=3, idle_share=0.25)) == 0
    assert cluster_rules(cluster_nodes(idle=4, idle_share=0.25)) == 4


def test_nodes_that_sweeps_hold_count_as_idle() -> None:
    """Otherwise the nodes that sweeps hold would close their cluster to sweeps."""
    assert cluster_rules(cluster_nodes(idle=1, held=3, idle_share=0.25)) == 4
    assert cluster_rules(cluster_nodes(idle=0, held=3, idle_share=0.25)) == 3


@pytest.mark.parametrize("policy", [cluster_rules, any_idle])
def test_a_waiting_local_job_stops_growth(policy: object) -> None:
    assert callable(policy)
    assert policy(cluster_nodes(idle=4, held=3, waiting=1)) == 3


def test_sweeps_hold_no_more_than_max_nodes() -> None:
    assert cluster_rules(cluster_nodes(idle=9, held=3, max_nodes=5)) == 5
    assert cluster_rules(cluster_nodes(idle=0, held=7, waiting=1, max_nodes=5)) == 5


def test_outside_the_hours_no_node_may_be_held() -> None:
    nights = parse_hours("* 20-23,0-7 * * *")
    assert cluster_rules(cluster_nodes(held=2, hours=nights)) == 6
    assert cluster_rules(cluster_nodes(held=2, now=Instant(NIGHT - 6 * HOUR), hours=nights)) == 0


def test_the_reason_why_growth_stops_is_given() -> None:
    nights = parse_hours("* 20-23,0-7 * * *")
    reports = {
        "others' jobs wait for its nodes": cluster_nodes(held=3, waiting=1, idle_share=0.5),
        "3 of its 16 nodes are idle or with sweeps, and 25% must be": cluster_nodes(idle=3, idle_share=0.25),
        "sweeps may hold 5 of its nodes, no more": cluster_nodes(idle=9, held=3, max_nodes=5),
        "sweeps may have nodes there at other hours only (* 20-23,0-7 * * *)": cluster_nodes(
            hours=nights, offset=9 * HOUR
        ),
        "": cluster_nodes(idle=4, held=1, max_nodes=6),
    }
    assert [getattr(cluster_rules(each), "why", None) for each in reports.values()] == list(reports)


def test_hours_are_local_time_of_the_cluster() -> None:
    evening = parse_hours("* 23 * * *")
    assert cluster_rules(cluster_nodes(hours=evening)) == 4
    assert cluster_rules(cluster_nodes(hours=evening, offset=HOUR)) == 0


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [(5, ""), (-1, "it allows -1 nodes"), (6, "it allows 6 nodes, of 5"), (None, "it allows None nodes")],
)
def test_an_allowance_is_at_most_the_idle_and_held_nodes(answer: int, wrong: str) -> None:
    assert allowance_error(answer, cluster_nodes(idle=3, held=2)) == wrong


def admission_state(
    active: tuple[int, ...] = (), waiting: tuple[int, ...] = (9, 9, 9), predicted: float = 0, most: int | None = None
) -> AdmissionState:
    return AdmissionState(active=active, waiting=waiting, predicted=predicted, most=most, nodes_per_runner=4)


def test_by_hand_admits_up_to_max_runners() -> None:
    assert by_hand(admission_state()) == 3
    assert by_hand(admission_state(active=(9,), most=2)) == 1
    assert by_hand(admission_state(active=(9, 9, 9), most=2)) == 0


def test_dynamic_admits_as_many_sweeps_as_the_predicted_nodes_suffice_for() -> None:
    assert dynamic(admission_state(predicted=8)) == 2
    assert dynamic(admission_state(active=(9,), predicted=8)) == 1
    assert dynamic(admission_state(active=(9, 9), predicted=8)) == 0
    assert dynamic(admission_state(predicted=100, most=1)) == 1


def test_dynamic_counts_a_small_sweep_by_the_nodes_that_it_wants() -> None:
    assert dynamic(admission_state(waiting=(1, 1, 9), predicted=6)) == 3


def test_dynamic_keeps_the_order_of_arrival() -> None:
    assert dynamic(admission_state(active=(9,), waiting=(9, 1), predicted=5)) == 0


def test_dynamic_always_admits_one_sweep() -> None:
    assert dynamic(admission_state(predicted=0)) == 1
    assert dynamic(admission_state(active=(1,), predicted=0)) == 0


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [(3, ""), (4, "it admits 4 of 3 waiting sweeps"), (-1, "it admits -1 of 3 waiting sweeps")],
)
def test_an_admission_counts_at_most_the_waiting_sweeps(answer: int, wrong: str) -> None:
    assert admission_error(answer, admission_state()) == wrong


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
def test_the_order_of_preemption(policy: object, order: list[int]) -> None:
    assert callable(policy)
    answer = policy(LAUNCHERS)
    assert [each.launcher for each in answer] == order
    assert order_error(answer, LAUNCHERS) == ""


def test_an_order_that_is_no_permutation_of_the_launchers_is_refused() -> None:
    assert order_error(LAUNCHERS[:3], LAUNCHERS) == "it orders 3 Launchers, not each of the 4 once"
    assert order_error([*LAUNCHERS[:3], LAUNCHERS[0]], LAUNCHERS) != ""


def numbers(*pairs: tuple[int, int]) -> Intervals:
    return Intervals.of(pairs)


POOL = Pool(
    waiting=numbers((5, 6), (9, 9), (20, 29)),
    returned={"A": numbers((5, 6)), "B": numbers((9, 9))},
    holds={"A": 2, "B": 1},
)


def test_in_order_feeds_returned_parameters_first() -> None:
    assert IN_ORDER.feed(POOL, "A", 2) == numbers((5, 6))
    assert IN_ORDER.feed(POOL, "C", 5) == numbers((5, 6), (9, 9), (20, 21))
    late = Pool(waiting=numbers((5, 29)), returned={"B": numbers((9, 9), (25, 25))})
    assert IN_ORDER.feed(late, "A", 3) == numbers((5, 5), (9, 9), (25, 25))


def test_back_home_feeds_preempted_parameters_to_the_cluster_with_their_files() -> None:
    assert BACK_HOME.feed(POOL, "B", 3) == numbers((9, 9), (20, 21))
    assert BACK_HOME.feed(POOL, "C", 3) == numbers((20, 22))


def test_back_home_feeds_parameters_elsewhere_if_their_cluster_has_no_nodes_or_nothing_else_waits() -> None:
    last = Pool(waiting=numbers((5, 6)), returned=POOL.returned, holds=POOL.holds)
    assert BACK_HOME.feed(last, "B", 3) == numbers((5, 6))
    away = Pool(waiting=POOL.waiting, returned=POOL.returned, holds={"B": 1})
    assert BACK_HOME.feed(away, "B", 4) == numbers((5, 6), (9, 9), (20, 20))


@pytest.mark.parametrize("order", [IN_ORDER, BACK_HOME])
def test_every_order_feeds_all_waiting_parameters_in_the_end(order: object) -> None:
    assert order in (IN_ORDER, BACK_HOME)
    assert IN_ORDER.feed(POOL, "A", 99) == BACK_HOME.feed(POOL, "A", 99) == POOL.waiting
    assert IN_ORDER.feed(POOL, "A", 0) == BACK_HOME.feed(POOL, "A", 0) == NONE


def test_an_invalid_feed_is_refused() -> None:
    assert feed_error(numbers((5, 6)), POOL, 2) == ""
    assert feed_error(numbers((5, 6), (9, 9)), POOL, 2) == "it feeds 3 parameters, more than 2"
    assert feed_error(numbers((5, 7)), POOL, 9) == "it feeds parameter 7, which does not wait"
    assert feed_error([5], POOL, 9) == "it feeds list, not Intervals"  # type: ignore[arg-type]
    assert exclusion_error(["A"], ["A", "B"]) == ""
    assert exclusion_error(["Z"], ["A", "B"]) == "it avoids Z, which is not a cluster of the grid"


def test_a_policy_that_raises_is_replaced_by_the_fallback() -> None:
    def broken() -> int:
        raise KeyError("vu")

    assert call_policy(broken, lambda nodes: "", 0) == (0, "it raised KeyError: 'vu'")
    assert call_policy(lambda: sys.exit(3), lambda nodes: "", 0) == (0, "it raised SystemExit: 3")


def test_a_policy_with_an_invalid_answer_is_replaced_by_the_fallback() -> None:
    def wrong(count: int) -> str:
        return admission_error(count, admission_state())

    assert call_policy(lambda: 7, wrong, 1) == (1, "it admits 7 of 3 waiting sweeps")
    assert call_policy(lambda: 2, wrong, 1) == (2, "")
