"""A hostile KCM beside an honest cluster: whatever it sends, the honest jobs go on, and the store loads again."""

from random import Random
from typing import Any

import pytest
from hostile_world import World, reported
from koalapy_adapters import messages as wire
from koalapy_adapters.messages import fields, kcm
from koalapy_adapters.messages import kcm as wire_kcm

from koalapy.driver.driver import Delivery
from koalapy.link.conversation import Deliver, KcmConversation, Opening
from koalapy.link.reconnect import Cluster
from koalapy.link.restore_check import IMPOSSIBLE, RestoreCheck
from koalapy.link.session import Refused
from koalapy.model.events import AttemptCleanedUp, WorkSubmitted, WrapperReported
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState, ReportedEnding, WrapperPhase
from koalapy.model.units import Instant

MESSAGES = 10_000
WRONG: list[Any] = [
    None, "", "x", {}, [], -1, 0, 1, 1.5, True, 1 << 53, 1 << 63, 10**30, float("nan"), float("inf"), "\x1b[2J",
    "\ud800", "x" * 70_000, [[]], [None], {"a": {"b": []}}, [[1, 2, 3]], [["n", "n", 10**9]],
]  # fmt: skip
FAILURE = wire_kcm.Failure("down", "transient", "It does not answer.")._asdict()


def deep() -> Any:
    made: Any = []
    for _ in range(100_000):
        made = [made]
    return made


class Hostile:
    """One cluster's sessions with a program that sends what its dice want."""

    def __init__(self, world: World, dice: Random) -> None:
        self.world, self.dice = world, dice
        self.instance = world.store.load().instance
        self.ended = self.accepted = 0
        self.deep = deep()
        self.begin()

    def begin(self) -> None:
        """The next session, which begins well."""
        epochs = self.world.epochs
        epochs["evil"] += 1
        cluster = Cluster(name="evil", instance=self.instance, config={"name": "evil", "batch": "slurm"})
        check = lambda session, welcome: RestoreCheck(0, 100).judge("evil", 1, welcome).verdict  # noqa: E731
        self.dialogue = KcmConversation(cluster, Opening(epoch=epochs["evil"], version="1", check=check))
        self.dialogue.hello(self.world.now())
        self.number = 0
        self.receive(wire.to_json(self.welcome()))

    def welcome(self) -> wire_kcm.Welcome:
        return wire_kcm.Welcome(1, "1", self.world.now(), "3", "evil", newest_number=0)

    def receive(self, data: Any) -> None:
        """As the session's thread does; what does not pass ends the session."""
        before = len(self.world.quarantined)
        try:
            arrived = self.dialogue.received(self.world.now(), wire.from_json(data, wire.FROM_KCM))
            impossible = isinstance(arrived.answer, Refused) and arrived.answer.reason == IMPOSSIBLE
            deliveries = [each.delivery for each in arrived.commands if isinstance(each, Deliver)]
            self.world.driver.step(deliveries)
            self.accepted += bool(deliveries)
        except fields.MessageError:
            impossible = True
        if impossible or len(self.world.quarantined) > before:
            self.ended += 1
            self.begin()

    def tag(self) -> str:
        """Tags of the cluster's own attempt, of the honest cluster's, of the past, of another store."""
        if self.dice.random() < 0.1:
            return str(tag_of(InstanceId("zzzzz"), AttemptId(JobId(1), 0, 1)))
        jobs = [job.id for job in self.world.store.jobs()] or [JobId(1)]
        job = self.dice.choice([*jobs[-4:], jobs[0], JobId(self.dice.randrange(1, 1 << 24))])
        return str(tag_of(self.instance, AttemptId(job, self.dice.randrange(2), self.dice.randrange(3))))

    def sound(self) -> Any:
        """A message that passes all checks of types and bounds, and may be a lie."""
        tag, now, dice = self.tag(), self.world.time, self.dice
        number = dice.randrange(1 << 20)
        phase = dice.choice(["started", "at_barrier", "released", "running", "ended", "nonsense"])
        nodes = [["n1", "10.0.0.1", dice.choice([0, 1, 2, 10**9])]]
        some = [number, 0, "exited", "n1", 0, now, now, 0, 1, 0, 0]
        sweep = dice.randrange(1, 1 << 23)
        kind: type[Any] = dice.choice(kcm.MESSAGES)
        values: dict[type[Any], Any] = {
            wire_kcm.Welcome: self.welcome()._replace(newest_number=dice.choice([None, 0, 100, 10**12])),
            wire_kcm.Submitted: wire_kcm.Submitted(number, tag, "17"),
            wire_kcm.Refused: wire_kcm.Refused(number, FAILURE),
            wire_kcm.Done: wire_kcm.Done(number),
            wire_kcm.Fetched: wire_kcm.Fetched(number, 5),
            wire_kcm.Pong: wire_kcm.Pong(1, dice.choice([now, 0, -(1 << 53), 1 << 53])),
            wire_kcm.Event: wire_kcm.Event(
                max(1, self.number + dice.choice([-1, 2, 10])), {"type": "gone", "tag": tag, "at": 5}
            ),
            wire_kcm.Measured: wire_kcm.Measured(
                now, 8, dice.choice([0, 8, 10**9]), 0, 0, 0, [tag] * 3, [tag], [[4, 2]]
            ),
            wire_kcm.MeasureFailed: wire_kcm.MeasureFailed(now, FAILURE),
            wire_kcm.BatchStatus: wire_kcm.BatchStatus(
                tag, "17", now, dice.choice(["running", "ended", "missing", "nonsense"])
            ),
            wire_kcm.Report: wire_kcm.Report(tag, "17", phase, nodes, now, ending=dice.choice(["", "exited", "x"])),
            wire_kcm.CleanedUp: wire_kcm.CleanedUp(tag, now),
            wire_kcm.Stuck: wire_kcm.Stuck(tag, now, FAILURE),
            wire_kcm.PutKey: wire_kcm.PutKey(tag, "key", "value"),
            wire_kcm.ParametersEnded: wire_kcm.ParametersEnded(sweep, tag, [[max(1, number), *some[1:]]]),
            wire_kcm.ParametersReturned: wire_kcm.ParametersReturned(sweep, [[1, 1 << 40]]),
            wire_kcm.ParametersWanted: wire_kcm.ParametersWanted(sweep, 1 << 50),
            wire_kcm.LaunchersSeen: wire_kcm.LaunchersSeen([[tag, 1, now]]),
            wire_kcm.LauncherSuspected: wire_kcm.LauncherSuspected(tag, "n1"),
        }
        return values[kind]

    def deliver(self) -> None:
        message = self.sound()
        data = dict(wire.to_json(message))
        if self.dice.random() < 0.4:
            field = self.dice.choice([*message._fields, "type"])
            if self.dice.random() < 0.1:
                del data[field]
            else:
                data[field] = self.deep if self.dice.random() < 0.02 else self.dice.choice(WRONG)
        if type(message) in kcm.EVENTS:
            self.number += 1
            data = {"type": "event", "number": self.number, "body": data}
        for _ in range(2 if self.dice.random() < 0.05 else 1):
            self.receive(data)


def run_honest(world: World) -> None:
    """A job on the honest cluster, from its submit to its end."""
    before = len(world.sent)
    part = ComponentRequest(processors=2, executable="true", cluster="good")
    request = Request(name="honest", components=(part,))
    world.driver.step([Delivery((WorkSubmitted(request=request, owner="me"),))])
    (attempt,) = {command.attempt for command in world.sent[before:] if command.cluster == "good"}
    at: dict[str, Any] = {"at_barrier_at": Instant(world.time)}
    world.driver.step([world.deliver("good", reported("good", attempt, **at))])
    ended = WrapperReported(
        cluster="good",
        attempt=attempt,
        batch_id="1",
        phase=WrapperPhase.ENDED,
        ending=ReportedEnding.EXITED,
        exit_status=0,
        **at,
    )
    world.driver.step([world.deliver("good", ended)])
    world.driver.step([world.deliver("good", AttemptCleanedUp(cluster="good", attempt=attempt))])
    world.honest.append(attempt.job)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_one_cluster_sends_the_others_jobs_go_on(seed: int) -> None:
    world = World()
    hostile = Hostile(world, Random(seed))
    part = ComponentRequest(processors=1, executable="true", cluster="evil")
    for turn in range(MESSAGES // 4):
        if turn % 100 == 0:
            request = Request(name="theirs", components=(part,))
            world.driver.step([Delivery((WorkSubmitted(request=request, owner="me"),))])
            run_honest(world)
        hostile.deliver()
    assert hostile.ended > 100
    assert hostile.accepted > 100
    assert world.quarantined == []  # the checks leave nothing that makes koalad fail
    states = {job.id: job.state for job in world.store.jobs()}
    assert {states[job] for job in world.honest} == {JobState.DONE}
    again = World(world.store)
    assert "good" in again.driver.engine.core.information.reachable
    run_honest(again)
    honest = world.store.job(again.honest[-1])
    assert honest is not None
    assert honest.state is JobState.DONE
