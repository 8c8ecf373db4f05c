"""Jobs of a store that was restored from a backup go on where they have got to since."""

from dataclasses import replace

import pytest
from engine_play import from_its_own

from koalapy.coallocation.restored_store import JOBS_AHEAD, UNTIL_KNOWN
from koalapy.core.startup import LONGEST_LOGIN, StartupGate
from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import Hint, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    Event,
    StoreRestored,
    WorkSubmitted,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import ComponentRequest, Request, WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import JobState, ReportedEnding, WrapperPhase
from koalapy.model.units import Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore
from koalapy.views.status import common_waits

SETTINGS = Settings(clusters=(ClusterSettings(name="big", batch="slurm"), ClusterSettings(name="small", batch="slurm")))
REQUEST = Request(name="job", components=(ComponentRequest(processors=4, executable="true"),), communication=False)
RESTORED = StoreRestored(epoch=9, last_number=5000)


def named(cluster: str, processors: int = 4) -> Request:
    component = ComponentRequest(processors=processors, executable="true", cluster=cluster)
    return Request(name="named", components=(component,), communication=False)


def test_after_a_start_waiting_jobs_wait_until_every_cluster_was_met_once() -> None:
    """One that connects late may show that the store is a backup's, and that the job ran since."""
    world = World(restored=False)
    world.connect("big", 8)
    assert world.sent == []
    world.apply(ClusterLost(cluster="small", reason=Reason("unreachable", "transient", "It does not answer.")))
    assert [command.cluster for command, _ in world.sent] == ["big"]


def test_a_cluster_that_reports_nothing_is_not_waited_for_for_ever() -> None:
    world = World(restored=False)
    world.connect("big", 8)
    moment = world.driver.engine.core.startup_gate.wakeup()
    assert moment is not None
    world.time = moment
    world.connect("big", 8)
    assert [command.cluster for command, _ in world.sent] == ["big"]


def test_a_job_that_names_a_connected_cluster_waits_for_no_other() -> None:
    """Only the cluster that it names can have run it, and has reported that it did not."""
    world = World(restored=False, request=named("big"))
    assert common_waits(world.driver.engine) == [
        "Waiting jobs that could be placed on big or small go on once these have answered or are seen to be out of "
        "reach."
    ]
    world.connect("big", 8)
    assert [command.cluster for command, _ in world.sent] == ["big"]
    assert common_waits(world.driver.engine) == [
        "Waiting jobs that could be placed on small go on once it has answered or is seen to be out of reach."
    ]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(REQUEST, id="names none"),
        pytest.param(
            replace(REQUEST, components=(*REQUEST.components, *named("big").components)), id="names one of two"
        ),
        pytest.param(
            replace(
                REQUEST,
                components=(*named("big").components, replace(named("small").components[0], optional=True)),
            ),
            id="goes without the other",
        ),
    ],
)
def test_a_job_that_may_have_run_on_a_silent_cluster_waits_for_it(request_: Request) -> None:
    world = World(restored=False, request=request_)
    world.connect("big", 64)
    assert world.sent == []
    world.apply(WorkSubmitted(request=named("big"), owner="mona"))
    assert [command.attempt.job for command, _ in world.sent] == [2], "others pass it"
    assert world.store.jobs()[0].overtaken == 0, "uncounted: it waits for a cluster, not for processors"
    world.apply(ClusterLost(cluster="small", reason=Reason("unreachable", "transient", "It does not answer.")))
    assert [command.attempt.job for command, _ in world.sent][1:] == [1] * len(
        [each for each in request_.components if not each.optional]
    )


def test_a_held_job_goes_on_as_soon_as_the_silent_cluster_is_connected() -> None:
    """Its measurement may take a while: the job fits elsewhere."""
    world = World(restored=False)
    world.connect("big", 8)
    assert world.sent == []
    world.apply(ClusterConnected(cluster="small", version="1", recalled=()))
    assert [command.cluster for command, _ in world.sent] == ["big"]


def test_a_held_job_makes_no_choice_before_the_last_cluster_is_measured() -> None:
    spread = ComponentRequest(processors=12, executable="true", spread=True)
    world = World(restored=False, request=Request(name="job", components=(spread,)))
    world.connect("big", 64)
    world.apply(ClusterConnected(cluster="small", version="1", recalled=()))
    assert world.sent == []
    world.connect("small", 4)
    assert [command.cluster for command, _ in world.sent] == ["big"]


def test_a_koalad_that_began_with_no_waiting_job_waits_for_nobody() -> None:
    gate = StartupGate(["big", "small"], [])
    assert not gate.give_up_late(Instant(0), chooses=False)
    assert not gate.holds(REQUEST)
    assert gate.wakeup() is None


def test_a_job_that_chooses_among_clusters_waits_for_each_of_them_for_a_while() -> None:
    gate = StartupGate(["big", "small"], [])
    assert not gate.give_up_late(Instant(0), chooses=False)
    assert not gate.give_up_late(Instant(1), chooses=True)
    assert gate.wakeup() == Instant(LONGEST_LOGIN), "from the start on"
    gate.reached("big")
    assert gate.holds(REQUEST)
    assert not gate.holds(named("big"))
    assert gate.give_up_late(Instant(LONGEST_LOGIN), chooses=True)
    assert not gate.holds(REQUEST)
    assert gate.wakeup() is None


class World:
    """A driver over a store that holds one waiting job, and that was then restored; what is sent is remembered."""

    def __init__(self, restored: bool = True, request: Request = REQUEST) -> None:
        self.store = MemoryStore()
        self.sent: list[tuple[SubmitAttempt, bool]] = []
        self.time = 1000
        first = self._driver()
        first.step([Delivery((WorkSubmitted(request=request, owner="mona"),))])
        self.store = self.store.reopened()
        self.driver = self._driver()
        if restored:
            self.apply(RESTORED)

    def _driver(self) -> Driver:
        engine = Engine(SETTINGS, Policies(worst_fit, fpfs), self.store.load())
        return Driver(engine, self, self, self, next_number=self.store.next_number)

    def apply(self, *events: Event) -> None:
        self.driver.step([Delivery(tuple(from_its_own(self.driver.engine, event) for event in events))])

    def connect(self, cluster: str, idle: int, *recalled: AttemptId) -> None:
        state = ClusterState(measured_at=Instant(self.time), total=idle, idle=idle, ours=0, others=0, waiting_local=0)
        self.apply(
            ClusterConnected(cluster=cluster, version="1", recalled=recalled),
            ClusterMeasured(cluster=cluster, state=state),
        )

    @property
    def submits(self) -> list[tuple[str, AttemptId, bool]]:
        return [(command.cluster, command.attempt, doubt) for command, doubt in self.sent]

    def now(self) -> Instant:
        self.time += 1000
        return Instant(self.time)

    def commit(self, change: Change) -> None:
        self.store.commit(change)

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        if isinstance(entry.command, SubmitAttempt):
            self.sent.append((entry.command, doubt))

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def slept(self) -> Duration:
        return Duration(0)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        raise AssertionError(reason)


@pytest.fixture
def world() -> World:
    return World()


def attempt(number: int, job: int = 1) -> AttemptId:
    return AttemptId(JobId(job), 0, number)


def test_a_leap_leaves_ids_and_numbers_behind(world: World) -> None:
    counters = world.store.load().counters
    assert (counters.next_job, counters.doubtful_below) == (2 + JOBS_AHEAD, 2)
    assert (world.store.epoch, world.store.next_number) == (9, 5001)
    assert [line.kind for line in world.store.history(JobId(1))][-1] == "store_restored"
    world.apply(WorkSubmitted(request=REQUEST, owner="mona"))
    assert [job.id for job in world.store.jobs()] == [1, 2 + JOBS_AHEAD]


def test_a_doubtful_job_waits_until_all_clusters_have_reported_and_a_new_one_does_not(world: World) -> None:
    world.connect("big", 8)
    world.apply(WorkSubmitted(request=REQUEST, owner="mona"))
    assert world.submits == [("big", attempt(1, 2 + JOBS_AHEAD), False)]
    assert world.driver.engine.unrecalled_clusters == ["small"]
    assert world.store.jobs()[0].excluded == (("big", UNTIL_KNOWN), ("small", UNTIL_KNOWN))
    world.connect("small", 4)
    assert world.driver.engine.unrecalled_clusters == []
    assert world.submits[1:] in ([("big", attempt(1), True)], [("small", attempt(1), True)])


def test_it_goes_on_where_its_newest_attempt_is(world: World) -> None:
    world.connect("big", 64, attempt(1), attempt(2))
    assert world.submits == []
    world.connect("small", 4, attempt(3))
    assert world.submits[-1] == ("small", attempt(3), True)
    again = [line for line in world.store.history(JobId(1)) if line.kind == "attempt_recalled"][-1]
    assert again.details == {"component": 0, "attempt": 3, "cluster": "small"}


def test_a_job_on_a_group_goes_on_with_all_its_components() -> None:
    """No cluster alone has its 12 processors. Before the restore it had some on each."""
    spread = ComponentRequest(processors=12, executable="true", spread=True)
    world = World(request=Request(name="job", components=(spread,)))
    world.connect("big", 8, attempt(1))
    assert world.submits == []
    second = AttemptId(JobId(1), 1, 1)
    world.connect("small", 8, second)
    assert world.submits == [("big", attempt(1), True), ("small", second, True)]
    job = world.store.jobs()[0]
    assert [each.processors for each in job.present] == [6, 6]
    assert job.written == Request(name="job", components=(spread,))


def test_a_choice_is_not_taken_until_all_clusters_have_reported() -> None:
    spread = ComponentRequest(processors=4, executable="true", spread=True)
    world = World(request=Request(name="job", components=(spread,)))
    world.connect("big", 8)
    assert world.submits == []
    world.connect("small", 4, attempt(2))
    assert world.submits == [("small", attempt(2), True)]


def test_it_is_released_already_if_its_wrapper_reports_it(world: World) -> None:
    world.connect("small", 4)
    world.connect("big", 8, attempt(1))
    world.apply(AttemptSubmitted(attempt=attempt(1), batch_id="17"))
    node = Node(name="n1", address="10.0.0.1", processes=4)
    running = WrapperReported(
        attempt=attempt(1), phase=WrapperPhase.RUNNING, batch_id="17", nodes=(node,), started_at=Instant(900)
    )
    world.apply(running)
    found = world.store.jobs()[0]
    assert found.state is JobState.RUNNING
    world.apply(
        replace(running, phase=WrapperPhase.ENDED, ending=ReportedEnding.EXITED, exit_status=0, ended_at=Instant(2000))
    )
    world.apply(AttemptCleanedUp(attempt=attempt(1)))
    ended = world.store.jobs()[0]
    assert (ended.state, ended.completion_failures) == (JobState.DONE, 0)


def test_all_of_it_survives_the_next_restart(world: World) -> None:
    world.store = world.store.reopened()
    world.driver = world._driver()
    world.sent.clear()
    world.connect("big", 64)
    assert world.submits == []
    world.connect("small", 4, attempt(1))
    assert world.submits == [("small", attempt(1), True)]


def test_a_job_that_raced_goes_on_where_its_winner_runs() -> None:
    """The newest attempt is a loser on small; the one that has won, and runs on big, is older."""
    world = World(request=replace(REQUEST, when_busy=WhenBusy.QUEUE))
    world.connect("big", 64, attempt(1))
    world.connect("small", 4, attempt(2))
    assert world.submits == [("small", attempt(2), True), ("big", attempt(1), True)]
    world.apply(
        WrapperReported(
            attempt=attempt(1), batch_id="7", phase=WrapperPhase.RUNNING, started_at=Instant(world.now()),
            nodes=(Node("n", "10.0.0.1", 4),), released_at=Instant(world.now()),
        )
    )  # fmt: skip
    (job,) = world.store.jobs()
    assert job.state is JobState.RUNNING
    assert [each.id for each in job.present] == [attempt(1)]
    assert [each.id for each in job.candidates if each.cancelling] == [attempt(2)]


def test_nothing_is_released_while_another_attempt_may_have_won() -> None:
    world = World(request=replace(REQUEST, when_busy=WhenBusy.QUEUE))
    world.connect("big", 64, attempt(1))
    world.connect("small", 4, attempt(2))
    at_barrier = WrapperReported(
        attempt=attempt(2), batch_id="8", phase=WrapperPhase.AT_BARRIER, at_barrier_at=Instant(world.now()),
        nodes=(Node("n", "10.0.0.1", 4),),
    )  # fmt: skip
    world.apply(at_barrier)
    assert world.store.jobs()[0].state is JobState.CLAIMING, "the other one is not gone yet"
    world.apply(AttemptCleanedUp(attempt=attempt(1)))
    assert world.store.jobs()[0].state is JobState.RUNNING
