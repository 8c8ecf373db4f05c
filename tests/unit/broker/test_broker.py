"""The broker refuses a wrong answer of a policy, with a sentence, and places nothing then."""

from collections.abc import Sequence
from typing import Any

import pytest
from engine_play import component, make

from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, PolicyFailed, find_placement
from koalapy.information.kis import ClusterSummary
from koalapy.model.cluster import ClusterSettings
from koalapy.policies.placement import Demand, IdleCluster, PlacementChoice, worst_fit


def idle(**clusters: int) -> Availability:
    return Availability([_summary(name, count) for name, count in clusters.items()])


def _summary(name: str, count: int) -> ClusterSummary:
    settings = ClusterSettings(name=name, batch="slurm")
    return ClusterSummary(
        name=name, settings=settings, total=100, idle=count, committed=0, backlog=0, trouble=None, state=None
    )


def raising(demands: Sequence[Demand], clusters: Sequence[IdleCluster]) -> PlacementChoice:
    raise ZeroDivisionError("no clusters")


def always(cluster: str) -> Any:
    def policy(demands: Sequence[Demand], clusters: Sequence[IdleCluster]) -> PlacementChoice:
        return {each.index: cluster for each in demands}

    return policy


def first_only(demands: Sequence[Demand], clusters: Sequence[IdleCluster]) -> PlacementChoice:
    return {demands[0].index: "a"}


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (always("a"), "policy failed: a has not so many idle processors."),
        (always("c"), "policy failed: component 0 cannot go to c."),
        (first_only, "first_only failed: component 1 cannot go to None."),
        (raising, "raising failed: it raised ZeroDivisionError: no clusters."),
    ],
    ids=["too full", "no such cluster", "not all", "raises"],
)
def test_a_wrong_answer_of_a_policy_places_nothing_and_is_reported(policy: Any, problem: str) -> None:
    request = make(component(6), component(6))
    found = find_placement(request, idle(a=10, b=10), policy)
    assert isinstance(found, PolicyFailed)
    assert found.reason.code == "policy_failed"
    assert found.reason.message == f"The placement policy {problem}"


def test_what_is_left_idle_is_never_less_than_nothing() -> None:
    own = idle(a=10, b=10)
    request = make(component(6), component(10))
    placement = find_placement(request, own, worst_fit)
    assert isinstance(placement, Placement)
    assert dict(own.after(placement.clusters, placement.request).idle) == {"a": 0, "b": 4}
