"""Where a batch system gives one job no more than a part of the cluster: what fits, and what never will."""

import pytest
from koalapy_adapters.batch.protocol import Capacity

from koalapy.broker.broker import place_in
from koalapy.broker.fit import lack
from koalapy.broker.room import Room
from koalapy.information.kis import View
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.units import Instant
from koalapy.policies.placement import worst_fit


def view(name: str, largest: int | None = None, largest_idle: int | None = None, total: int = 16) -> View:
    state = ClusterState(
        measured_at=Instant(0), total=total, idle=total, ours=0, others=0, waiting_local=0,
        largest=largest, largest_idle=largest_idle,
    )  # fmt: skip
    settings = ClusterSettings(name=name, batch="sge")
    return View(name=name, settings=settings, total=total, idle=total, promised=0, backlog=0, trouble=None, state=state)


def component(processors: int, cluster: str | None = None) -> ComponentRequest:
    return ComponentRequest(processors=processors, executable="./p", cluster=cluster)


def placed(views: list[View], *components: ComponentRequest) -> object:
    return place_in(Request(name="job", components=components), Room(views), worst_fit)


@pytest.mark.parametrize(("processors", "code"), [(4, None), (3, None), (5, "too_large"), (17, "too_large")])
def test_more_than_one_job_can_ever_get_is_too_large(processors: int, code: str | None) -> None:
    reason = lack(component(processors), view("a", 4, 4))
    assert (reason.code if reason else None) == code
    assert lack(component(processors), view("a")) is None or processors == 17


def test_more_than_one_job_can_get_now_is_busy() -> None:
    reason = lack(component(4), view("a", 4, 2))
    assert reason is not None
    assert (reason.code, reason.whose) == ("busy", "transient")
    assert lack(component(4), view("a", 4, 2), now=False) is None


def test_a_component_goes_to_the_cluster_that_can_give_it_all() -> None:
    small, large = view("small", 4, 2, total=32), view("large")
    assert placed([small, large], component(8)) == ("large",)
    assert placed([small, large], component(4)) == ("large",)
    assert placed([small, large], component(2)) == ("small",)
    assert placed([small], component(4)) is None
    assert placed([small], component(4, "small")) is None


def test_an_empty_cluster_gives_its_largest() -> None:
    empty = Room([view("a", 4, 0)]).emptied()
    assert place_in(Request(name="job", components=(component(4),)), empty, worst_fit) == ("a",)
    assert place_in(Request(name="job", components=(component(5),)), empty, worst_fit) is None


def test_a_batch_system_need_not_know_of_it() -> None:
    assert Capacity(4, 4, 0, 0, 0, [], [], [], {}).largest is None
