"""A failure stays with the cluster or user that caused it: other jobs continue, and the store can be loaded."""

from dataclasses import replace
from typing import Any

import pytest
import structlog
from hostile_world import World, measured, reported, submit

from koalapy.core.foreign import Foreign
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.koalad.assembly import ForeignReportLog
from koalapy.model.commands import (
    ReportFree,
)
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import (
    AttemptSubmitted,
    ClusterConnected,
    MessageReceived,
    NeighbourConnected,
    NeighbourJoined,
    WorkSubmitted,
)
from koalapy.model.neighbour import Relation
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Instant


@pytest.fixture
def world() -> World:
    return World()


def test_a_cluster_with_an_invalid_measurement_is_quarantined(world: World) -> None:
    world.driver.step([submit(), world.deliver("evil", measured("evil", None)), submit()])
    assert [name for name, _ in world.quarantined] == ["evil"]
    assert world.states() == [JobState.CLAIMING] * 2
    assert {command.cluster for command in world.sent} <= {"good", "third"}
    assert world.quarantined[0][1].code == "quarantined"
    assert ("evil", 1, 2) not in world.acknowledged


def test_an_invalid_measurement_that_fails_later_is_not_blamed_on_the_user(world: World) -> None:
    """The user's job reveals the failure, but its user did not cause it."""
    world.driver.step([world.deliver("evil", measured("evil", None))])
    assert world.quarantined == []
    made: list[Any] = []
    world.driver.step([replace(submit(), after=made.append, refused=made.append)])
    assert [type(each).__name__ for each in made] == ["Step"]
    assert [name for name, _ in world.quarantined] == ["evil"]
    assert world.states() == [JobState.CLAIMING]


def test_a_cluster_with_an_unstorable_event_is_quarantined(world: World) -> None:
    world.driver.step([world.deliver("evil", measured("evil", 8))])
    world.driver.step([submit(cluster="evil"), submit(cluster="good")])
    attempts = {command.cluster: command.attempt for command in world.sent}
    poison = AttemptSubmitted(cluster="evil", attempt=attempts["evil"], batch_id={"a": 1})  # type: ignore[arg-type]
    world.driver.step(
        [
            world.deliver("evil", poison),
            world.deliver("good", reported("good", attempts["good"])),
            submit(cluster="third"),
        ]
    )
    assert [name for name, _ in world.quarantined] == ["evil"]
    found = {each.cluster: each.batch_id for job in world.store.load().jobs for each in job.present}
    assert found == {"evil": "", "good": "1", "third": ""}
    assert ("good", 1, world.numbers["good"]) in world.acknowledged
    assert ("evil", 1, world.numbers["evil"]) not in world.acknowledged


def test_events_of_an_ended_session_are_ignored_and_those_of_the_next_handled(world: World) -> None:
    world.driver.step([submit(processors=99), world.deliver("evil", measured("evil", None))])
    assert len(world.quarantined) == 1
    renewed = world.renewed
    for _ in range(5):
        world.driver.step([world.deliver("evil", measured("evil", None))])
    assert (len(world.quarantined), world.renewed) == (1, renewed)
    world.epochs["evil"] = 2
    world.driver.step([world.deliver("evil", ClusterConnected(cluster="evil", version="1"), measured("evil", 99))])
    assert len(world.quarantined) == 1
    assert "evil" in world.driver.engine.core.information.reachable


def test_two_clusters_are_quarantined_in_one_step(world: World) -> None:
    world.driver.step(
        [world.deliver("evil", measured("evil", None)), submit(), world.deliver("third", measured("third", "x"))]
    )
    assert sorted(name for name, _ in world.quarantined) == ["evil", "third"]
    assert [command.cluster for command in world.sent] == ["good"]


def test_a_quarantine_keeps_measurements_and_sessions_of_other_clusters(world: World) -> None:
    world.driver.step([submit(processors=8), world.deliver("evil", measured("evil", None))])
    assert world.driver.engine.core.information.reachable == {"good", "third"}
    summaries = {summary.name: summary.state is not None for summary in world.driver.engine.summaries(world.now())}
    assert summaries == {"good": True, "evil": False, "third": True}


def test_a_request_that_fails_in_the_engine_is_refused_to_its_user(world: World) -> None:
    answers: list[Any] = []
    wrong = Delivery((WorkSubmitted(request=None, owner="me"),), after=answers.append, refused=answers.append)  # type: ignore[arg-type]
    world.driver.step([submit(), wrong, submit()])
    (reason,) = answers
    assert isinstance(reason, Reason)
    assert (reason.code, reason.whose) == ("not_understood", "ours")
    assert world.states() == [JobState.CLAIMING] * 2
    assert world.quarantined == []


def test_a_full_disk_during_a_quarantine_loses_nothing(world: World) -> None:
    world.full = True
    with pytest.raises(TransientError):
        world.driver.step([submit(), world.deliver("evil", measured("evil", None)), submit()])
    for _ in range(3):
        with pytest.raises(TransientError):
            world.driver.retry()
    world.full = False
    world.driver.retry()
    assert world.states() == [JobState.CLAIMING] * 2
    assert [name for name, _ in world.quarantined] == ["evil"]


def test_an_engine_that_cannot_be_built_again_quarantines_no_cluster(world: World) -> None:
    def fail() -> Engine:
        raise ZeroDivisionError

    world.driver._renew = fail
    with pytest.raises(ZeroDivisionError):
        world.driver.step([submit(), world.deliver("evil", measured("evil", None))])
    assert world.quarantined == []


def test_a_neighbour_with_an_unstorable_report_is_quarantined_and_clusters_go_on(world: World) -> None:
    world.driver.step([Delivery((NeighbourJoined(neighbour="lyon", relation=Relation.SIBLING),))])
    session = ("site:lyon", 1)
    connected = NeighbourConnected(neighbour="lyon", instance="zyxwv")
    world.driver.step([Delivery((connected,), session=session)])
    report_free = ReportFree(neighbour="lyon", processors=[1])  # type: ignore[arg-type]
    poison = MessageReceived(neighbour="lyon", instance="zyxwv", number=5, message=report_free)
    report = Delivery((poison,), acknowledge=(*session, 5), session=session)
    world.driver.step([submit(), report, world.deliver("good", measured("good", 8))])
    assert [(name, reason.message[:25]) for name, reason in world.quarantined] == [
        ("site:lyon", "A report of the neighbour")
    ]
    assert world.states() == [JobState.CLAIMING]
    assert (*session, 5) not in world.acknowledged
    assert ("good", 1, world.numbers["good"]) in world.acknowledged
    (kept,) = world.store.load().neighbours
    assert (kept.received, kept.free) == (0, None)
    world.driver.step([report])  # of a session that has ended
    assert len(world.quarantined) == 1
    again = replace(poison, message=ReportFree(neighbour="lyon", processors=7))
    world.driver.step([Delivery((connected, again), acknowledge=("site:lyon", 2, 5), session=("site:lyon", 2))])
    (kept,) = world.store.load().neighbours
    assert (kept.received, kept.free) == (5, 7)


def test_attempts_at_the_barrier_on_other_clusters_stay_there(world: World) -> None:
    """Wrappers report it once for each session, and the sessions of the other clusters continue."""
    parts = tuple(ComponentRequest(processors=2, executable="true", cluster=name) for name in ("good", "third"))
    world.driver.step([Delivery((WorkSubmitted(request=Request(name="two", components=parts), owner="me"),))])
    attempts = {command.cluster: command.attempt for command in world.sent}
    world.driver.step([world.deliver("good", reported("good", attempts["good"]))])
    world.driver.step([submit(processors=99), world.deliver("evil", measured("evil", None))])
    assert world.renewed > 0
    world.driver.step([world.deliver("third", reported("third", attempts["third"]))])
    assert JobState.RUNNING in world.states()


# ---- links that fail after the commit


@pytest.mark.parametrize("call", ["send", "acknowledge", "hint"])
def test_a_failing_link_ends_its_own_session_only(world: World, call: str) -> None:
    world.failing.add((call, "evil"))
    world.driver.step([world.deliver("evil", measured("evil", 8)), submit(cluster="evil"), submit(cluster="good")])
    world.driver.step([submit(cluster="good"), submit(cluster="third")])
    (lost,) = {reason for name, reason in world.quarantined if name == "evil"}
    assert (lost.code, lost.whose) == ("link_failed", "ours")
    assert "ZeroDivisionError" in lost.message
    assert {name for name, _ in world.quarantined} == {"evil"}
    assert [command.cluster for command in world.sent if command.cluster != "evil"] == ["good", "good", "third"]


def test_commands_of_a_failed_link_are_sent_in_the_next_session(world: World) -> None:
    world.driver.step([world.deliver("evil", measured("evil", 8))])
    world.failing.add(("send", "evil"))
    world.driver.step([submit(cluster="evil"), submit(cluster="evil")])
    assert len(world.quarantined) == 1  # the second was not sent
    world.failing.clear()
    acknowledged = len(world.acknowledged)
    world.driver.step([world.deliver("evil", measured("evil", 8))])
    assert len(world.acknowledged) == acknowledged  # events of the old session are ignored
    world.epochs["evil"] = 2
    world.driver.step([world.deliver("evil", ClusterConnected(cluster="evil", version="1"))])
    assert [command.cluster for command in world.resent] == ["evil", "evil"]
    assert world.states() == [JobState.CLAIMING] * 2


# ---- logs


def test_foreign_reports_are_logged_once_a_minute_as_a_count() -> None:
    reports, minute = ForeignReportLog(), 60 * SECOND
    with structlog.testing.capture_logs() as lines:
        for second in range(150):
            foreign = Foreign(10 * (second + 1), f"the {second}th")
            reports.log(Instant(second * SECOND), {"evil": foreign, "odd": Foreign(1, "once")})
        reports.log(Instant(10 * minute), {"evil": foreign, "odd": Foreign(1, "once")})
        reports.log(Instant(11 * minute), {"evil": foreign, "odd": Foreign(1, "once")})
    answers = [(each["cluster"], each["count"], each["last"]) for each in lines if each["event"] == "foreign_reports"]
    assert [each for each in answers if each[0] == "odd"] == [("odd", 1, "once")]
    assert [count for name, count, _ in answers if name == "evil"] == [10, 600, 600, 290]
    assert answers[-1] == ("evil", 290, "the 149th")
