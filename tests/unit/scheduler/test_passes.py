"""The wait queue is looked through again exactly where that can decide something."""

from collections.abc import Sequence
from dataclasses import replace

from engine_play import BUSY_QUEUE, INSTANCE, Play, component, grid, make

from koalapy.broker.broker import Placement
from koalapy.core.wait_queue import WaitQueue
from koalapy.engine import Engine
from koalapy.information.kis import Information
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import CancelRequested, ClusterConnected, ClusterMeasured, SubmissionFailed, WorkSubmitted
from koalapy.model.identity import MAX_ATTEMPTS, JobId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import Blocked, QueueingPolicy, fcfs, fpfs
from koalapy.scheduler.blocked_ahead import Overtaken
from koalapy.scheduler.passes import Passes
from koalapy.scheduler.schedule import Claim, Decision, Policies

NOW = Instant(1_000)
ONE = grid(ClusterSettings(name="alpha", batch="slurm"))


def claim_of(number: int, processors: int) -> Claim:
    return Claim(JobId(number), Placement(("alpha",), job(number, processors).request))


class Stand:
    """Passes over a queue and one cluster of 32 processors, and how often the queueing policy was asked."""

    def __init__(self, policy: QueueingPolicy = fcfs) -> None:
        self.asked = 0
        self._asks = policy
        self.queue, self._information = WaitQueue(), Information(ONE.clusters, INSTANCE)
        self._information.connected("alpha", "22.05")
        self._records = Records(Snapshot(instance=INSTANCE), (self.queue,))
        self.passes = Passes(self.queue, self._information, ONE, Policies(worst_fit, self._policy))

    def measure(self, idle: int) -> None:
        self._information.measured("alpha", state(idle))

    def enter(self, number: int, processors: int) -> None:
        self._records.add(job(number, processors))

    def decide(self) -> list[Decision]:
        """Decide; a claimed job leaves the queue, as in the engine."""
        found = []
        for decision in self.passes.decide(NOW):
            decided = self._records.jobs[decision.job]
            if isinstance(decision, Overtaken):
                self._records.change(decided, overtaken=1)
            else:
                self._records.change(decided, state=JobState.CLAIMING)
            found.append(decision)
        return found

    def _policy(self, blocked: Sequence[Blocked], most: int) -> bool:
        self.asked += 1
        return self._asks(blocked, most)


def test_who_comes_behind_one_that_nobody_may_pass_is_not_looked_at() -> None:
    stand = Stand()
    stand.measure(idle=8)
    stand.enter(1, processors=16)
    stand.enter(2, processors=4)
    assert stand.decide() == []
    asked = stand.asked
    for number in range(3, 9):
        stand.enter(number, processors=4)
        assert stand.decide() == []
    assert stand.asked == asked
    stand.measure(idle=32)
    assert len(stand.decide()) == 5


def test_where_jobs_may_pass_only_who_has_come_is_looked_at() -> None:
    stand = Stand(fpfs)
    stand.measure(idle=8)
    for number in range(1, 9):
        stand.enter(number, processors=16)
    assert stand.decide() == []
    stand.asked = 0
    stand.enter(9, processors=16)
    assert stand.decide() == []
    assert stand.asked == 1, "whether the new one would ever fit"
    stand.enter(10, processors=8)
    assert stand.decide() == [claim_of(10, 8), Overtaken(JobId(1), 1)]


def test_measurements_that_show_the_same_room_decide_nothing() -> None:
    stand = Stand()
    stand.measure(idle=8)
    stand.enter(1, processors=16)
    stand.decide()
    asked = stand.asked
    stand.measure(idle=8)
    assert stand.decide() == []
    assert stand.asked == asked


def test_room_that_a_claim_was_to_take_and_did_not_is_there_for_others() -> None:
    stand = Stand()
    stand.measure(idle=8)
    stand.enter(1, processors=8)
    assert stand.decide() == [claim_of(1, 8)]
    stand.enter(2, processors=8)
    assert stand.decide() == [claim_of(2, 8)], "nothing was promised to the first"


def test_a_claim_that_cannot_be_made_takes_nothing() -> None:
    tried = replace(job(1, 32), numbers=(MAX_ATTEMPTS - 1,))
    engine = Engine(ONE, Policies(worst_fit, fcfs), Snapshot(instance=INSTANCE, jobs=(tried,)))
    connected = ClusterConnected(cluster="alpha", version="22.05")
    engine.handle(NOW, [connected, ClusterMeasured(cluster="alpha", state=state(32))])
    assert engine.job(JobId(1)) is None
    step = engine.handle(NOW, [WorkSubmitted(request=make(component(32)), owner="me")])
    assert any(isinstance(command, SubmitAttempt) for command in step.commands)


def test_when_the_first_is_cancelled_the_next_has_its_turn() -> None:
    play = Play(queueing="fcfs")
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    second = play.submit(component(4, "beta"))
    play.apply(CancelRequested(first))
    assert play.job(second).state is JobState.CLAIMING


def test_one_of_a_better_priority_is_tried_though_nothing_else_has_changed() -> None:
    play = Play(queueing="fcfs")
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    second = play.submit(component(4, "beta"), priority=1)
    assert [play.job(each).state for each in (first, second)] == [JobState.WAITING, JobState.CLAIMING]


def test_a_job_that_comes_back_is_looked_at_again() -> None:
    play = Play(queueing="fcfs")
    job = play.submit(component(4))
    (attempt,) = play.attempts(job)
    play.apply(SubmissionFailed(attempt=attempt, reason=BUSY_QUEUE))
    assert play.job(job).state is JobState.CLAIMING
    assert play.attempts(job) != [attempt]


def state(idle: int) -> ClusterState:
    return ClusterState(measured_at=NOW, total=32, idle=idle, ours=0, others=32 - idle, waiting_local=0)


def job(number: int, processors: int) -> Job:
    wanted = component(processors)
    return Job(
        id=JobId(number), owner="me", request=make(wanted), state=JobState.WAITING, position=number, submitted_at=NOW,
        waiting_since=NOW,
    )  # fmt: skip
