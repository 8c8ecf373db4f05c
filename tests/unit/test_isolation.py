"""What one cluster, or one user, makes fail costs that cluster or user; the others' jobs go on, and the store loads."""

from dataclasses import replace
from typing import Any

import pytest
import structlog
from hostile_world import World, measured, reported, submit

from koalapy.core.foreign import Foreign
from koalapy.driver import Delivery
from koalapy.engine import Engine
from koalapy.koalad.assembly import ForeignReportLog
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import AttemptSubmitted, ClusterConnected, JobSubmitted
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Instant


@pytest.fixture
def world() -> World:
    return World()


def test_numbers_that_cannot_be_reckoned_with_cost_the_cluster_that_said_them(world: World) -> None:
    world.driver.step([submit(), world.say("evil", measured("evil", None)), submit()])
    assert [name for name, _ in world.quarantined] == ["evil"]
    assert world.states() == [JobState.CLAIMING] * 2
    assert {command.cluster for command in world.sent} <= {"good", "third"}
    assert world.quarantined[0][1].code == "quarantined"
    assert ("evil", 1, 2) not in world.acknowledged


def test_numbers_that_were_said_before_anybody_reckoned_with_them(world: World) -> None:
    """The user whose job comes to grief over them is not to blame."""
    world.driver.step([world.say("evil", measured("evil", None))])
    assert world.quarantined == []
    made: list[Any] = []
    world.driver.step([replace(submit(), after=made.append, refused=made.append)])
    assert [type(each).__name__ for each in made] == ["Step"]
    assert [name for name, _ in world.quarantined] == ["evil"]
    assert world.states() == [JobState.CLAIMING]


def test_what_no_record_can_hold_costs_the_cluster_and_not_the_store(world: World) -> None:
    world.driver.step([world.say("evil", measured("evil", 8))])
    world.driver.step([submit(cluster="evil"), submit(cluster="good")])
    attempts = {command.cluster: command.attempt for command in world.sent}
    poison = AttemptSubmitted(cluster="evil", attempt=attempts["evil"], batch_id={"a": 1})  # type: ignore[arg-type]
    world.driver.step(
        [world.say("evil", poison), world.say("good", reported("good", attempts["good"])), submit(cluster="third")]
    )
    assert [name for name, _ in world.quarantined] == ["evil"]
    found = {each.cluster: each.batch_id for job in world.store.load().jobs for each in job.components}
    assert found == {"evil": "", "good": "1", "third": ""}
    assert ("good", 1, world.numbers["good"]) in world.acknowledged
    assert ("evil", 1, world.numbers["evil"]) not in world.acknowledged


def test_a_session_that_is_over_is_not_heard_and_the_next_one_is(world: World) -> None:
    world.driver.step([submit(processors=99), world.say("evil", measured("evil", None))])
    assert len(world.quarantined) == 1
    renewed = world.renewed
    for _ in range(5):
        world.driver.step([world.say("evil", measured("evil", None))])
    assert (len(world.quarantined), world.renewed) == (1, renewed)
    world.epochs["evil"] = 2
    world.driver.step([world.say("evil", ClusterConnected(cluster="evil", version="1"), measured("evil", 99))])
    assert len(world.quarantined) == 1
    assert "evil" in world.driver.engine.core.information.reachable


def test_two_at_once(world: World) -> None:
    world.driver.step([world.say("evil", measured("evil", None)), submit(), world.say("third", measured("third", "x"))])
    assert sorted(name for name, _ in world.quarantined) == ["evil", "third"]
    assert [command.cluster for command in world.sent] == ["good"]


def test_others_numbers_and_sessions_are_not_forgotten(world: World) -> None:
    world.driver.step([submit(processors=8), world.say("evil", measured("evil", None))])
    assert world.driver.engine.core.information.reachable == {"good", "third"}
    summaries = {summary.name: summary.state is not None for summary in world.driver.engine.summaries(world.now())}
    assert summaries == {"good": True, "evil": False, "third": True}


def test_what_a_user_makes_fail_is_refused_to_that_user(world: World) -> None:
    told: list[Any] = []
    wrong = Delivery((JobSubmitted(request=None, owner="me"),), after=told.append, refused=told.append)  # type: ignore[arg-type]
    world.driver.step([submit(), wrong, submit()])
    (reason,) = told
    assert isinstance(reason, Reason)
    assert (reason.code, reason.whose) == ("not_understood", "ours")
    assert world.states() == [JobState.CLAIMING] * 2
    assert world.quarantined == []


def test_a_disk_that_fills_up_meanwhile_loses_nothing(world: World) -> None:
    world.full = True
    with pytest.raises(TransientError):
        world.driver.step([submit(), world.say("evil", measured("evil", None)), submit()])
    for _ in range(3):
        with pytest.raises(TransientError):
            world.driver.retry()
    world.full = False
    world.driver.retry()
    assert world.states() == [JobState.CLAIMING] * 2
    assert [name for name, _ in world.quarantined] == ["evil"]


def test_an_engine_that_fails_by_itself_is_nobodys_fault(world: World) -> None:
    def fail() -> Engine:
        raise ZeroDivisionError

    world.driver._renew = fail
    with pytest.raises(ZeroDivisionError):
        world.driver.step([submit(), world.say("evil", measured("evil", None))])
    assert world.quarantined == []


def test_who_stands_at_a_barrier_elsewhere_need_not_come_again(world: World) -> None:
    """Wrappers say it once a session, and the sessions of the other clusters go on."""
    parts = tuple(ComponentRequest(processors=2, executable="true", cluster=name) for name in ("good", "third"))
    world.driver.step([Delivery((JobSubmitted(request=Request(name="two", components=parts), owner="me"),))])
    attempts = {command.cluster: command.attempt for command in world.sent}
    world.driver.step([world.say("good", reported("good", attempts["good"]))])
    world.driver.step([submit(processors=99), world.say("evil", measured("evil", None))])
    assert world.renewed > 0
    world.driver.step([world.say("third", reported("third", attempts["third"]))])
    assert JobState.RUNNING in world.states()


# ---- links that fail after the commit


@pytest.mark.parametrize("call", ["send", "acknowledge", "hint"])
def test_a_link_that_fails_costs_its_session_only(world: World, call: str) -> None:
    world.failing.add((call, "evil"))
    world.driver.step([world.say("evil", measured("evil", 8)), submit(cluster="evil"), submit(cluster="good")])
    world.driver.step([submit(cluster="good"), submit(cluster="third")])
    (lost,) = {reason for name, reason in world.quarantined if name == "evil"}
    assert (lost.code, lost.whose) == ("link_failed", "ours")
    assert "ZeroDivisionError" in lost.message
    assert {name for name, _ in world.quarantined} == {"evil"}
    assert [command.cluster for command in world.sent if command.cluster != "evil"] == ["good", "good", "third"]


def test_what_could_not_be_said_is_said_over_the_next_session(world: World) -> None:
    world.driver.step([world.say("evil", measured("evil", 8))])
    world.failing.add(("send", "evil"))
    world.driver.step([submit(cluster="evil"), submit(cluster="evil")])
    assert len(world.quarantined) == 1  # the second was not tried
    world.failing.clear()
    heard = len(world.acknowledged)
    world.driver.step([world.say("evil", measured("evil", 8))])
    assert len(world.acknowledged) == heard  # what the old session says still is nobody's
    world.epochs["evil"] = 2
    world.driver.step([world.say("evil", ClusterConnected(cluster="evil", version="1"))])
    assert [command.cluster for command in world.resent] == ["evil", "evil"]
    assert world.states() == [JobState.CLAIMING] * 2


# ---- what is told of it


def test_foreign_reports_are_logged_once_a_minute_as_a_count() -> None:
    reports, minute = ForeignReportLog(), 60 * SECOND
    with structlog.testing.capture_logs() as lines:
        for second in range(150):
            said = Foreign(10 * (second + 1), f"the {second}th")
            reports.log(Instant(second * SECOND), {"evil": said, "odd": Foreign(1, "once")})
        reports.log(Instant(10 * minute), {"evil": said, "odd": Foreign(1, "once")})
        reports.log(Instant(11 * minute), {"evil": said, "odd": Foreign(1, "once")})
    told = [(each["cluster"], each["count"], each["last"]) for each in lines if each["event"] == "foreign_reports"]
    assert [each for each in told if each[0] == "odd"] == [("odd", 1, "once")]
    assert [count for name, count, _ in told if name == "evil"] == [10, 600, 600, 290]
    assert told[-1] == ("evil", 290, "the 149th")
