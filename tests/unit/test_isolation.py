"""What one cluster, or one user, makes fail costs that cluster or user; the others' jobs go on, and the store loads."""

from dataclasses import replace
from typing import Any

import pytest

from koalapy.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import SubmitComponent, Word
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import (
    ClusterConnected,
    ClusterMeasured,
    ComponentReported,
    ComponentSubmitted,
    Event,
    JobSubmitted,
)
from koalapy.model.identity import AttemptId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore

CLUSTERS = ("good", "evil", "third")
SETTINGS = Settings(clusters=tuple(ClusterSettings(name=name, batch="slurm") for name in CLUSTERS))
POLICIES = Policies(worst_fit, fpfs)


class Way:
    """The links: what is sent over them."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        if isinstance(entry.command, SubmitComponent) and not doubt:
            self._world.sent.append(entry.command)

    def say(self, word: Word) -> None:
        pass

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        return {}

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        self._world.acknowledged.append((cluster, epoch, number))


class World:
    """A driver as koalad has it, over a store that is in memory; clusters and users are the test."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.time = 10**12
        self.sent: list[SubmitComponent] = []
        self.acknowledged: list[tuple[str, int, int]] = []
        self.quarantined: list[tuple[str, Reason]] = []
        self.renewed = 0
        self.full = False
        self.epochs = dict.fromkeys(CLUSTERS, 1)
        self.numbers = dict.fromkeys(CLUSTERS, 0)
        snapshot = self.store.load()
        self.driver = Driver(
            Engine(SETTINGS, POLICIES, snapshot), self, Way(self), self, snapshot.outbox, self.store.next_number,
            renew=self.renew, quarantine=lambda cluster, reason, error: self.quarantined.append((cluster, reason)),
        )  # fmt: skip
        self.driver.step([self.say(name, ClusterConnected(cluster=name, version="1")) for name in CLUSTERS])
        self.driver.step([self.say(name, measured(name, 8)) for name in ("good", "third")])

    def renew(self) -> Engine:
        self.renewed += 1
        return Engine(SETTINGS, POLICIES, self.store.load())

    def say(self, cluster: str, *events: Event) -> Delivery:
        """A numbered event of the cluster's session."""
        self.numbers[cluster] += 1
        session = (cluster, self.epochs[cluster])
        return Delivery(events, acknowledge=(*session, self.numbers[cluster]), session=session)

    # ---- clock and store

    def now(self) -> Instant:
        self.time += 1000
        return Instant(self.time)

    def slept(self) -> Duration:
        return Duration(0)

    def commit(self, change: Any) -> None:
        if self.full:
            raise TransientError("store_full", "The disk is full.", "Make room.")
        self.store.commit(change)

    # ---- what became of it

    def states(self) -> list[JobState]:
        return [job.state for job in self.store.jobs()]


def measured(cluster: str, idle: Any) -> ClusterMeasured:
    state = ClusterState(measured_at=Instant(10**12), total=8, idle=idle, ours=0, others=0, waiting_local=0)
    return ClusterMeasured(cluster=cluster, state=state)


def submit(processors: int = 2, cluster: str | None = None) -> Delivery:
    part = ComponentRequest(processors=processors, executable="true", cluster=cluster)
    return Delivery((JobSubmitted(request=Request(name="job", components=(part,)), owner="me"),))


def reported(cluster: str, attempt: AttemptId, **facts: Any) -> ComponentReported:
    nodes = (Node("n1", "10.0.0.1", 2),)
    report = ComponentReported(cluster=cluster, attempt=attempt, batch_id="1", phase="at_barrier", nodes=nodes)
    return replace(report, at_barrier_at=Instant(10**12), **facts)


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
    poison = ComponentSubmitted(cluster="evil", attempt=attempts["evil"], batch_id={"a": 1})  # type: ignore[arg-type]
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
    assert "evil" in world.driver.engine.known.reachable


def test_two_at_once(world: World) -> None:
    world.driver.step([world.say("evil", measured("evil", None)), submit(), world.say("third", measured("third", "x"))])
    assert sorted(name for name, _ in world.quarantined) == ["evil", "third"]
    assert [command.cluster for command in world.sent] == ["good"]


def test_others_numbers_and_sessions_are_not_forgotten(world: World) -> None:
    world.driver.step([submit(processors=8), world.say("evil", measured("evil", None))])
    assert world.driver.engine.known.reachable == {"good", "third"}
    views = {view.name: view.state is not None for view in world.driver.engine.views(world.now())}
    assert views == {"good": True, "evil": False, "third": True}


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
