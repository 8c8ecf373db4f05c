"""Where a batch system gives one job no more than a part of the cluster: what fits, and what never will."""

import pytest
from koalapy_adapters.batch.protocol import Capacity

from koalapy.broker.availability import Availability
from koalapy.broker.broker import Placement, PolicyFailed, find_placement
from koalapy.broker.fit import misfit
from koalapy.information.kis import ClusterSummary
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.units import Instant
from koalapy.policies.placement import worst_fit


def summary(name: str, largest: int | None = None, largest_idle: int | None = None, total: int = 16) -> ClusterSummary:
    state = ClusterState(
        measured_at=Instant(0), total=total, idle=total, ours=0, others=0, waiting_local=0,
        largest=largest, largest_idle=largest_idle,
    )  # fmt: skip
    settings = ClusterSettings(name=name, batch="sge")
    return ClusterSummary(
        name=name, settings=settings, total=total, idle=total, committed=0, backlog=0, trouble=None, state=state
    )


def component(processors: int, cluster: str | None = None) -> ComponentRequest:
    return ComponentRequest(processors=processors, executable="./p", cluster=cluster)


def placed(summaries: list[ClusterSummary], *components: ComponentRequest) -> object:
    return clusters_of(find_placement(Request(name="job", components=components), Availability(summaries), worst_fit))


def clusters_of(found: Placement | PolicyFailed | None) -> tuple[str | None, ...] | None:
    return found.clusters if isinstance(found, Placement) else None


@pytest.mark.parametrize(("processors", "code"), [(4, None), (3, None), (5, "too_large"), (17, "too_large")])
def test_more_than_one_job_can_ever_get_is_too_large(processors: int, code: str | None) -> None:
    reason = misfit(component(processors), summary("a", 4, 4))
    assert (reason.code if reason else None) == code
    assert misfit(component(processors), summary("a")) is None or processors == 17


def test_more_than_one_job_can_get_now_is_busy() -> None:
    reason = misfit(component(4), summary("a", 4, 2))
    assert reason is not None
    assert (reason.code, reason.whose) == ("busy", "transient")
    assert misfit(component(4), summary("a", 4, 2), now=False) is None


def test_a_component_goes_to_the_cluster_that_can_give_it_all() -> None:
    small, large = summary("small", 4, 2, total=32), summary("large")
    assert placed([small, large], component(8)) == ("large",)
    assert placed([small, large], component(4)) == ("large",)
    assert placed([small, large], component(2)) == ("small",)
    assert placed([small], component(4)) is None
    assert placed([small], component(4, "small")) is None


def test_an_empty_cluster_gives_its_largest() -> None:
    empty = Availability([summary("a", 4, 0)]).emptied()
    found = find_placement(Request(name="job", components=(component(4),)), empty, worst_fit)
    assert clusters_of(found) == ("a",)
    assert find_placement(Request(name="job", components=(component(5),)), empty, worst_fit) is None


def test_a_batch_system_need_not_know_of_it() -> None:
    assert Capacity(4, 4, 0, 0, 0, [], [], [], {}).largest is None
