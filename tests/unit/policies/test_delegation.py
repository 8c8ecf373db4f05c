"""The orders in which requests are delegated and served, and of the neighbours that are asked (SC'07, section 4.4)."""

import pytest

from koalapy.policies import delegation, dispatching
from koalapy.policies.delegation import Target, TargetPolicy, WaitingRequest, best_fit, most_free, nearest, round_robin
from koalapy.policies.dispatching import NeighboursRequest

TARGETS = [
    Target("parent", 2, 64),
    Target("sibling", 1, 8),
    Target("twin", 1, 16),
    Target("child", 0, 4),
    Target("new", 1, None),
]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (nearest, ["twin", "sibling", "new", "parent"]),
        (most_free, ["parent", "twin", "sibling", "new"]),
        (best_fit, ["sibling", "twin", "parent", "new"]),
    ],
    ids=["nearest", "most free", "best fit"],
)
def test_the_order_of_the_neighbours_that_may_have_enough(policy: TargetPolicy, order: list[str]) -> None:
    assert [each.site for each in policy(8, TARGETS, 3)] == order
    assert [each.site for each in policy(65, TARGETS, 3)] == ["new"], "nobody knows how much it has"
    assert list(policy(8, [], 3)) == []


def test_each_neighbour_is_the_first_in_turn() -> None:
    firsts = [round_robin(1, TARGETS, number)[0].site for number in range(7)]
    assert firsts == ["parent", "sibling", "twin", "child", "new", "parent", "sibling"]
    assert [each.site for each in round_robin(8, TARGETS, 3)] == ["new", "parent", "sibling", "twin"]
    assert list(round_robin(8, [], 3)) == []


def test_the_order_of_delegation() -> None:
    waiting = [WaitingRequest(8, 1), WaitingRequest(4, 2), WaitingRequest(8, 3), WaitingRequest(4, 4)]
    assert [each.arrival for each in sorted(waiting, key=delegation.fcfs)] == [1, 2, 3, 4]
    assert [each.arrival for each in sorted(waiting, key=delegation.smallest_first)] == [2, 4, 1, 3]


def test_the_order_of_service() -> None:
    waiting = [NeighboursRequest(8, 1, "a", 9), NeighboursRequest(4, 2, "b", 9), NeighboursRequest(9, 3, "c", 0)]
    assert [each.arrival for each in sorted(waiting, key=dispatching.fcfs)] == [1, 2, 3]
    assert [each.arrival for each in sorted(waiting, key=dispatching.smallest_first)] == [2, 1, 3]
    assert [each.arrival for each in sorted(waiting, key=dispatching.fewest_lent_first)] == [3, 1, 2]
