"""Placement policies: worst fit exactly as the paper has it, and what no policy may ever do."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.policies.placement import (
    Demand,
    IdleCluster,
    PlacementPolicy,
    best_fit,
    cluster_minimisation,
    worst_fit,
)

POLICIES = [worst_fit, cluster_minimisation, best_fit]


def demands(*sizes: int, clusters: str = "ABCDE") -> list[Demand]:
    return [Demand(index, size, dict.fromkeys(clusters, size)) for index, size in enumerate(sizes)]


def idle_clusters(used: str = "", **idle: int) -> list[IdleCluster]:
    return [IdleCluster(cluster, count, cluster in used) for cluster, count in idle.items()]


def test_worst_fit_takes_unused_clusters_first_by_decreasing_idle_processors() -> None:
    assert worst_fit(demands(4, 4, 4), idle_clusters(A=5, B=20, C=10)) == {0: "B", 1: "C", 2: "A"}


def test_worst_fit_places_the_largest_component_first() -> None:
    assert worst_fit(demands(2, 8), idle_clusters(A=9, B=3)) == {1: "A", 0: "B"}


def test_worst_fit_reuses_a_cluster_only_where_no_unused_one_has_room() -> None:
    assert worst_fit(demands(4, 4, 4), idle_clusters(A=12, B=4, C=3)) == {0: "A", 1: "B", 2: "A"}


def test_worst_fit_looks_at_the_heads_of_its_two_lists_only() -> None:
    """4 does not fit the head of N (3 idle); Y's head is A, which has 2 left; so the job cannot be placed."""
    assert worst_fit(demands(8, 4), idle_clusters(A=10, B=3)) is None


def test_worst_fit_reorders_the_used_clusters() -> None:
    assert worst_fit(demands(6, 6, 5, 4), idle_clusters(A=12, B=10)) == {0: "A", 1: "B", 2: "A", 3: "B"}


def test_a_cluster_that_a_named_component_uses_is_in_the_second_list_from_the_start() -> None:
    assert worst_fit(demands(4), idle_clusters("A", A=30, B=4)) == {0: "B"}


def test_cluster_minimisation_keeps_a_job_together() -> None:
    assert cluster_minimisation(demands(4, 4, 4), idle_clusters(A=12, B=20, C=12)) == dict.fromkeys(range(3), "B")


def test_best_fit_leaves_the_smallest_hole() -> None:
    assert best_fit(demands(4, 8), idle_clusters(A=30, B=9, C=5)) == {1: "B", 0: "C"}


@pytest.mark.parametrize("policy", POLICIES)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    idle=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    eligible=st.lists(st.sets(st.sampled_from("ABCDE"), min_size=1), min_size=6, max_size=6),
)
def test_no_policy_places_what_does_not_fit(
    policy: PlacementPolicy, sizes: list[int], idle: list[int], eligible: list[set[str]]
) -> None:
    clusters = dict(zip("ABCDE", idle, strict=False))
    asked = [
        Demand(index, size, {cluster: size for cluster in sorted(eligible[index]) if cluster in clusters})
        for index, size in enumerate(sizes)
    ]
    placement = policy(asked, idle_clusters("", **clusters))
    if placement is None:
        return
    left = dict(clusters)
    for demand in asked:
        assert placement[demand.index] in demand.demand
        left[placement[demand.index]] -= demand.processors
    assert min(left.values()) >= 0


@pytest.mark.parametrize("policy", POLICIES)
@given(size=st.integers(1, 40), idle=st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_one_component_is_placed_whenever_some_cluster_has_room(
    policy: Callable[..., object], size: int, idle: list[int]
) -> None:
    clusters = dict(zip("ABCDE", idle, strict=False))
    placed = policy(demands(size, clusters="".join(clusters)), idle_clusters("", **clusters))
    assert (placed is not None) == (max(idle) >= size)
