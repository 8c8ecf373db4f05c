"""The simulated koalad: its processes, disk, clock and user, and its links to the clusters."""

from collections.abc import Sequence

import pytest

from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import CancelRequested, ClusterConnected, ClusterLost, Event
from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.store.contract import Store
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of, behaviour_of
from koalapy.world.koalad.file_operations import MISSING_FILE
from koalapy.world.koalad.host import NoKoaladObserver
from koalapy.world.world import World

SETTINGS = Settings(clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")))


class Notes(NoKoaladObserver):
    """An observer that records koalad's actions."""

    def __init__(self) -> None:
        self.starts: list[Snapshot] = []
        self.events: list[Event] = []
        self.decided: list[Instant] = []
        self.changes: list[Change] = []
        self.submits: list[tuple[int, bool]] = []

    def started(self, snapshot: Snapshot, engine: Engine) -> None:
        self.starts.append(snapshot)

    def deciding(self, now: Instant, deliveries: Sequence[Delivery]) -> None:
        self.decided.append(now)
        self.events += [event for delivery in deliveries for event in delivery.events]

    def committed(self, change: Change, store: Store) -> None:
        self.changes.append(change)

    def sent(self, entry: OutboxEntry, doubt: bool) -> None:
        if isinstance(entry.command, SubmitAttempt):
            self.submits.append((entry.number, doubt))

    def count(self, kind: type) -> int:
        return sum(isinstance(event, kind) for event in self.events)


@pytest.fixture
def world() -> World:
    """A world with a running koalad and connected clusters."""
    made = World(3, settings=SETTINGS)
    made.koalad.observer = Notes()
    made.run_for(Duration(30 * SECOND))
    return made


def notes_of(world: World) -> Notes:
    notes = world.koalad.observer
    assert isinstance(notes, Notes)
    return notes


def request(**fields: object) -> Request:
    program = ComponentRequest(processors=1, executable=EXECUTABLE, arguments=arguments_of(Behaviour()))
    return Request(**{"name": "job", "components": (program,), **fields})  # type: ignore[arg-type]


def only_job(world: World) -> JobState:
    (job,) = world.koalad.store.jobs()
    return job.state


# ---- processes


def test_koalad_connects_to_its_clusters(world: World) -> None:
    assert notes_of(world).count(ClusterConnected) == 2
    assert [len(cluster.kcms) for cluster in world.clusters.values()] == [1, 1]


def test_a_killed_koalad_does_nothing_more_and_its_clusters_notice(world: World) -> None:
    koalad, decided = world.koalad, len(notes_of(world).decided)
    koalad.kill()
    assert not koalad.alive
    assert koalad.engine is None
    assert not koalad.submit(request())
    world.run_for(Duration(10 * SECOND))
    assert len(notes_of(world).decided) == decided
    assert [len(cluster.kcms) for cluster in world.clusters.values()] == [0, 0]


def test_the_next_process_starts_with_the_committed_records(world: World) -> None:
    koalad = world.koalad
    assert koalad.submit(request(), key="mine")
    world.run_for(Duration(3 * SECOND))
    koalad.kill()
    koalad.start()
    koalad.start()
    assert koalad.starts == 2
    assert [job.key for job in notes_of(world).starts[-1].jobs] == ["mine"]
    assert world.settle(Duration(10 * MINUTE))
    assert only_job(world) is JobState.DONE


@pytest.mark.parametrize("lossy", [False, True])
def test_a_crash_point_kills_koalad_between_two_steps(world: World, lossy: bool) -> None:
    """It dies at the second step of the batch that claims the job, during the commit."""
    koalad, notes = world.koalad, notes_of(world)
    koalad.lossy = lossy
    koalad.crash_point.left = 2
    koalad.submit(request())
    changes = len(notes.changes)
    world.run_for(Duration(SECOND))
    assert not koalad.alive
    assert len(notes.changes) == changes
    koalad.start()
    assert not koalad.store.jobs()


def test_a_restarted_koalad_sends_its_commands_again_as_doubtful(world: World) -> None:
    koalad, notes = world.koalad, notes_of(world)
    koalad.submit(request())
    while not notes.submits:
        world.agenda.step()
    koalad.lossy = True
    koalad.kill()
    koalad.start()
    assert world.settle(Duration(10 * MINUTE))
    (number, first), (again, second) = notes.submits
    assert (number, first, second) == (again, False, True)
    assert only_job(world) is JobState.DONE


# ---- disk and clock


def test_on_a_full_disk_no_event_is_handled_and_none_is_lost(world: World) -> None:
    koalad = world.koalad
    koalad.submit(request())
    koalad.disk_full = True
    world.run_for(Duration(MINUTE))
    assert koalad.store.jobs() == []
    assert not koalad.accepted
    assert not koalad.submit(request())
    assert not koalad.request(CancelRequested(JobId(1)))
    koalad.disk_full = False
    assert world.settle(Duration(10 * MINUTE))
    assert koalad.accepted == [1]
    assert only_job(world) is JobState.DONE


def test_a_commit_that_fails_is_tried_again(world: World) -> None:
    koalad = world.koalad
    koalad.commits_to_fail = 3
    koalad.submit(request())
    world.run_for(Duration(10 * SECOND))
    assert koalad.commits_to_fail == 0
    assert koalad.accepted == [1]


@pytest.mark.parametrize("ahead", [Duration(MINUTE), Duration(-MINUTE)])
def test_a_clock_jump_takes_effect_in_the_next_process(world: World, ahead: Duration) -> None:
    koalad = world.koalad
    koalad.jump(ahead)
    assert koalad.now() == world.agenda.now
    koalad.kill()
    koalad.start()
    assert koalad.now() == world.agenda.now + ahead
    koalad.submit(request())
    assert world.settle(Duration(10 * MINUTE))
    assert only_job(world) is JobState.DONE


# ---- sleep


def lost(world: World) -> list[str]:
    return [event.reason.code for event in notes_of(world).events if isinstance(event, ClusterLost)]


def test_koalad_does_nothing_while_its_host_sleeps_and_notices_the_lost_time(world: World) -> None:
    koalad, decided = world.koalad, len(notes_of(world).decided)
    koalad.sleep(Duration(30 * SECOND))
    assert not koalad.submit(request())
    world.run_for(Duration(29 * SECOND))
    assert len(notes_of(world).decided) == decided
    world.run_for(Duration(MINUTE))
    assert koalad.now() == world.agenda.now
    assert koalad.slept == 30 * SECOND
    assert lost(world) == ["host_slept", "host_slept"]
    assert notes_of(world).count(ClusterConnected) == 4
    assert koalad.submit(request())
    assert world.settle(Duration(10 * MINUTE))
    assert only_job(world) is JobState.DONE


def test_events_of_sessions_before_a_sleep_are_handled_only_when_repeated(world: World) -> None:
    """The KCM repeats the event; the job that was submitted before the sleep continues."""
    koalad, notes = world.koalad, notes_of(world)
    koalad.submit(request())
    while not notes.submits:
        world.agenda.step()
    koalad.sleep(Duration(30 * SECOND))
    assert world.settle(Duration(10 * MINUTE))
    assert only_job(world) is JobState.DONE
    assert [doubt for _, doubt in notes.submits] == [False, True]


def test_a_short_sleep_ends_no_session(world: World) -> None:
    world.koalad.sleep(Duration(SECOND))
    world.run_for(Duration(MINUTE))
    assert lost(world) == []


def test_a_koalad_that_died_before_a_sleep_is_started_after_it(world: World) -> None:
    koalad = world.koalad
    koalad.kill()
    koalad.sleep(Duration(MINUTE))
    koalad.start()
    assert not koalad.alive
    world.run_for(Duration(2 * MINUTE))
    assert koalad.alive
    assert lost(world) == []


# ---- user


def test_the_same_key_is_the_same_job(world: World) -> None:
    koalad = world.koalad
    for _ in range(2):
        assert koalad.submit(request(), key="mine")
    world.run_for(Duration(5 * SECOND))
    assert koalad.submit(request(), key="mine")
    assert koalad.accepted == [1]
    assert world.settle(Duration(10 * MINUTE))
    assert koalad.submit(request(), key="mine")
    assert len(koalad.store.jobs()) == 1


def test_files_are_staged_in_and_output_is_collected(world: World) -> None:
    writes = ComponentRequest(
        processors=1, executable=EXECUTABLE, arguments=arguments_of(Behaviour(files=("result",))), cluster="alpha"
    )
    world.koalad.submit(request(components=(writes,), stage_in=("data", "more"), stage_out=("result",)))
    world.koalad.submit(request(components=(writes,), stage_out=("result", "other")))
    world.koalad.submit(request(components=(writes,), stage_in=("data", MISSING_FILE)))
    assert world.settle(Duration(10 * MINUTE))
    jobs = world.koalad.store.jobs()
    assert [(job.state, job.reason and job.reason.code) for job in jobs] == [
        (JobState.DONE, None),
        (JobState.FAILED, "no_output_file"),
        (JobState.FAILED, "no_such_file"),
    ]


def test_behaviour_is_encoded_in_arguments() -> None:
    behaviour = Behaviour(runs=Duration(17), exit_status=3, deaf=True, files=("a", "b"))
    assert behaviour_of(arguments_of(behaviour)) == behaviour


# ---- links


def test_a_cut_connection_is_replaced(world: World) -> None:
    process, notes = world.koalad.process, notes_of(world)
    assert process is not None
    pipe = process.links["alpha"].pipe
    assert pipe is not None
    pipe.cut()
    world.run_for(Duration(MINUTE))
    assert notes.count(ClusterLost) == 1
    assert notes.count(ClusterConnected) == 3


def test_a_silent_connection_is_closed(world: World) -> None:
    process, notes = world.koalad.process, notes_of(world)
    assert process is not None
    pipe = process.links["alpha"].pipe
    assert pipe is not None
    pipe.stall(Duration(10 * MINUTE))
    world.run_for(Duration(2 * MINUTE))
    assert [event.reason.code for event in notes.events if isinstance(event, ClusterLost)] == ["silent"]
    assert notes.count(ClusterConnected) == 3


def test_an_unreachable_cluster_is_tried_again_and_reported_as_lost_once(world: World) -> None:
    process, notes = world.koalad.process, notes_of(world)
    assert process is not None
    world.clusters["alpha"].out_of_reach(Duration(5 * MINUTE))
    pipe = process.links["alpha"].pipe
    assert pipe is not None
    pipe.cut()
    world.run_for(Duration(4 * MINUTE))
    assert notes.count(ClusterLost) == 2, "cut, then unreachable"
    world.run_for(Duration(2 * MINUTE))
    assert notes.count(ClusterConnected) == 3
