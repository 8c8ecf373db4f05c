"""The driver: no command is sent before it is committed, and none is dropped before it is confirmed."""

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest
from engine_play import present

from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.commands import (
    CancelAttempt,
    DelegateRequest,
    ForgetAttempt,
    Hint,
    RejectRequest,
    SubmitAttempt,
)
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import (
    AttemptForgotten,
    AttemptSubmitted,
    CancelRequested,
    ClusterConnected,
    ClusterMeasured,
    Event,
    MessageReceived,
    NeighbourConnected,
    NeighbourJoined,
    PruneRequested,
    StoreRestored,
    WorkSubmitted,
)
from koalapy.model.header import Outcome
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.lease import Lend, Origin
from koalapy.model.neighbour import Relation
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.units import HOUR, MINUTE, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore


class Recorder:
    """Clock, links and store in one object. It records the order of the calls and passes commits on to a real store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.actions: list[tuple[str, object]] = []
        self.failing = False
        self.time = 0
        self.asleep = Duration(0)
        self.sessions: dict[str, int] = {}

    def now(self) -> Instant:
        self.time += 1000
        return Instant(self.time)

    def slept(self) -> Duration:
        slept, self.asleep = self.asleep, Duration(0)
        return slept

    def commit(self, change: Change) -> None:
        if self.failing:
            raise TransientError("store_full", "The disk is full.", "Make room.")
        self.store.commit(change)
        self.actions.append(("commit", change))

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        self.actions.append(("doubt" if doubt else "send", entry))

    def hint(self, hint: Hint) -> None:
        self.actions.append(("hint", hint))

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        self.actions.append(("acknowledge", (cluster, epoch, number)))

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        self.actions.append(("end", reason.code))
        return self.sessions

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.actions if kind != "hint"]

    def sent(self, kind: str = "send") -> list[OutboxEntry]:
        return [what for done, what in self.actions if done == kind and isinstance(what, OutboxEntry)]


SETTINGS = Settings(clusters=(ClusterSettings(name="alpha", batch="slurm"),))
STATE = ClusterState(measured_at=Instant(1000), total=8, idle=8, ours=0, others=0, waiting_local=0)
REQUEST = Request(name="job", components=(ComponentRequest(processors=4, executable="true"),))


def driven(recorder: Recorder, snapshot: Snapshot, settings: Settings = SETTINGS) -> Driver:
    engine = Engine(settings, Policies(worst_fit, fpfs), snapshot)
    number = recorder.store.next_number
    return Driver(engine, recorder, recorder, recorder, snapshot.outbox, number)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(MemoryStore())


@pytest.fixture
def driver(recorder: Recorder) -> Driver:
    made = driven(recorder, recorder.store.load())
    made.step(
        [Delivery((ClusterConnected(cluster="alpha", version="1"), ClusterMeasured(cluster="alpha", state=STATE)))]
    )
    recorder.actions.clear()
    return made


def submit(driver: Driver) -> None:
    driver.step([Delivery((WorkSubmitted(request=REQUEST, owner="me"),))])


def test_a_command_is_committed_before_it_is_sent(driver: Driver, recorder: Recorder) -> None:
    submit(driver)
    assert recorder.kinds == ["commit", "send"]
    (entry,) = recorder.sent()
    assert isinstance(entry.command, SubmitAttempt)
    assert recorder.store.load().outbox == (entry,)


def test_no_command_is_sent_while_the_store_fails_and_all_are_sent_afterwards(
    driver: Driver, recorder: Recorder
) -> None:
    recorder.failing = True
    with pytest.raises(TransientError):
        submit(driver)
    assert recorder.kinds == []
    recorder.failing = False
    driver.retry()
    assert recorder.kinds == ["commit", "send"]
    driver.retry()
    assert recorder.kinds == ["commit", "send"]


def count_calls(act: Callable[[], None]) -> int:
    """Number of calls that `act` makes, of the interpreter's functions too: a cost equal on every machine."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def calls_to_cancel(jobs: int) -> int:
    """Number of calls that cancel `jobs` jobs with unconfirmed submits in one step."""
    store = MemoryStore()
    driver = driven(Recorder(store), store.load())
    state = replace(STATE, total=4 * jobs, idle=4 * jobs)
    driver.step(
        [Delivery((ClusterConnected(cluster="alpha", version="1"), ClusterMeasured(cluster="alpha", state=state)))]
    )
    driver.step([Delivery((WorkSubmitted(request=REQUEST, owner="me"),)) for _ in range(jobs)])
    assert len(store.load().outbox) == jobs
    cancels = [Delivery((CancelRequested(JobId(number)),)) for number in range(1, jobs + 1)]
    calls = count_calls(lambda: driver.step(cancels))
    left = [entry.command for entry in store.load().outbox]
    assert len(left) == jobs
    assert all(isinstance(command, CancelAttempt) for command in left)
    return calls


def test_the_cost_of_a_cancel_does_not_grow_with_the_outbox() -> None:
    assert calls_to_cancel(800) < 5 * calls_to_cancel(200)


def calls_of_a_step(unconfirmed: int) -> int:
    """Number of calls of a step that connects no cluster, with `unconfirmed` commands in the outbox."""
    recorder = Recorder(MemoryStore())
    forget = (ForgetAttempt(cluster="left", attempt=AttemptId(JobId(number), 0, 1)) for number in range(unconfirmed))
    recorder.store.commit(Change(sent=tuple(OutboxEntry(number, each) for number, each in enumerate(forget, 1))))
    driver = driven(recorder, recorder.store.load())
    return count_calls(lambda: driver.step([]))


def test_the_cost_of_a_step_that_connects_no_cluster_does_not_grow_with_the_outbox() -> None:
    assert calls_of_a_step(2000) == calls_of_a_step(20)


def final_job(cluster: str) -> Job:
    """A final job whose last attempt has its directory on `cluster`."""
    request = REQUEST.components[0]
    attempt = Attempt(
        id=AttemptId(JobId(1), 0, 2),
        request=request,
        state=AttemptState.CLEANED_UP,
        ending=Ending.DONE,
        cluster=cluster,
    )
    return Job(
        id=JobId(1), owner="me", request=REQUEST, state=JobState.DONE, position=1, submitted_at=Instant(1),
        finished_at=Instant(5), attempts=(attempt,), numbers=(2,), outcome=Outcome.DONE,
    )  # fmt: skip


def test_pruning_a_job_removes_its_commands_to_a_cluster_that_left(recorder: Recorder) -> None:
    job, store = final_job("left"), recorder.store
    other = OutboxEntry(2, ForgetAttempt(cluster="left", attempt=AttemptId(JobId(9), 0, 1)))
    entries = (OutboxEntry(1, ForgetAttempt(cluster="left", attempt=AttemptId(job.id, 0, 1))), other)
    store.commit(Change(jobs=(job,), attempts=tuple(job.present), sent=entries))
    driver = driven(recorder, store.load())
    prune = PruneRequested(work=(job,), before=Instant(9), records=True)
    driver.step([Delivery((prune,))])
    assert store.jobs() == [job]
    driver.step([Delivery((replace(prune, without=("left",)),))])
    assert (store.jobs(), store.load().outbox) == ([], (other,))


def test_a_prune_on_a_full_disk_is_committed_once_and_loses_nothing(recorder: Recorder) -> None:
    job, store = final_job("alpha"), recorder.store
    store.commit(Change(jobs=(job,), attempts=tuple(job.present)))
    driver = driven(recorder, store.load())
    driver.step([Delivery((ClusterConnected(cluster="alpha", version="1"),))])
    recorder.actions.clear()
    prune = Delivery((PruneRequested(work=(job,), before=Instant(9), records=True),))
    recorder.failing = True
    with pytest.raises(TransientError):
        driver.step([prune])
    assert (recorder.kinds, store.jobs(), store.load().outbox) == ([], [job], ())
    recorder.failing = False
    driver.retry()
    driver.step([prune])
    (entry,) = recorder.sent()
    forgotten = AttemptForgotten(cluster="alpha", attempt=AttemptId(job.id, 0, 2))
    recorder.failing = True
    with pytest.raises(TransientError):
        driver.step([Delivery((forgotten,), (entry.number,), acknowledge=("alpha", 1, 1))])
    assert (store.jobs(), store.load().outbox) == ([job], (entry,))
    assert "acknowledge" not in recorder.kinds
    recorder.failing = False
    driver.retry()
    driver.step([prune])
    assert (store.jobs(), store.load().outbox) == ([], ())
    removals = [what.removed for _, what in recorder.actions if isinstance(what, Change) and what.removed]
    assert removals == [(job.id,)]
    assert recorder.sent() == [entry]


def test_an_event_is_acknowledged_after_its_commit(driver: Driver, recorder: Recorder) -> None:
    event = WorkSubmitted(request=REQUEST, owner="me")
    driver.step([Delivery((event,), acknowledge=("alpha", 7, 3))])
    assert recorder.kinds == ["commit", "acknowledge", "send"]


def test_an_unconfirmed_command_is_sent_again_as_doubtful(driver: Driver, recorder: Recorder) -> None:
    submit(driver)
    (entry,) = recorder.sent()
    driver.step([Delivery((ClusterConnected(cluster="alpha", version="1"),))])
    assert recorder.sent("doubt") == [entry]
    driver.step([Delivery(confirmed=(entry.number,))])
    driver.step([Delivery((ClusterConnected(cluster="alpha", version="1"),))])
    assert recorder.sent("doubt") == [entry]
    assert recorder.store.load().outbox == ()


def test_a_restored_store_sends_the_submits_of_its_old_jobs_in_doubt(
    recorder: Recorder,
) -> None:
    """After the backup koalad may have submitted a job that the backup shows as waiting."""
    connected = ClusterConnected(cluster="alpha", version="1", recalled=())
    submit(driven(recorder, recorder.store.load()))
    recorder.store = recorder.store.reopened()
    driver = driven(recorder, recorder.store.load())
    driver.step([Delivery((StoreRestored(epoch=9, last_number=5000),))])
    driver.step([Delivery((connected, ClusterMeasured(cluster="alpha", state=STATE)))])
    submit(driver)
    (in_doubt,), (without,) = recorder.sent("doubt"), recorder.sent()
    assert (in_doubt.number, without.number) == (5001, 5002)
    old, new = (job.id for job in recorder.store.jobs())
    assert isinstance(in_doubt.command, SubmitAttempt)
    assert isinstance(without.command, SubmitAttempt)
    assert (in_doubt.command.attempt.job, without.command.attempt.job) == (old, new)


def test_a_new_koalad_sends_the_commands_of_the_outbox_again(driver: Driver, recorder: Recorder) -> None:
    submit(driver)
    (entry,) = recorder.sent()
    again = driven(recorder, recorder.store.load())
    again.start()
    again.step([Delivery((ClusterConnected(cluster="alpha", version="1"),))])
    assert recorder.sent("doubt") == [entry]
    again.step([Delivery((CancelRequested(JobId(1)),))])
    assert recorder.sent()[-1].number > entry.number


def test_a_cancel_replaces_the_unsent_submit_of_its_attempt(driver: Driver, recorder: Recorder) -> None:
    submit(driver)
    driver.step([Delivery((CancelRequested(JobId(1)),))])
    (left,) = recorder.store.load().outbox
    assert isinstance(left.command, CancelAttempt)


def test_a_caller_is_answered_after_the_commit(driver: Driver, recorder: Recorder) -> None:
    answers = []
    event = WorkSubmitted(request=REQUEST, owner="me")
    driver.step([Delivery((event,), after=lambda step: answers.append((recorder.kinds[:], step.jobs[0].id)))])
    assert answers == [(["commit", "send"], JobId(1))]


def test_a_batch_that_changes_nothing_commits_nothing(driver: Driver, recorder: Recorder) -> None:
    driver.step([])
    assert recorder.kinds == []


# ---- a host that sleeps

SLEPT = Duration(8 * MINUTE)


def test_after_a_sleep_every_cluster_is_lost_before_any_event_is_handled(driver: Driver, recorder: Recorder) -> None:
    """A delivery of an old session is lost with it: neither handled nor confirmed nor acknowledged."""
    submit(driver)
    (entry,) = recorder.sent()
    recorder.asleep, recorder.sessions = SLEPT, {"alpha": 7}
    submitted = AttemptSubmitted(attempt=AttemptId(JobId(1), 0, 1), batch_id="12")
    driver.step([Delivery((submitted,), (entry.number,), ("alpha", 7, 3), session=("alpha", 7))])
    assert recorder.actions[-1] == ("end", "host_slept")
    assert not driver.engine.core.information.is_connected("alpha")
    (job,) = recorder.store.jobs()
    assert present(job).state is AttemptState.SUBMITTING
    assert recorder.store.load().outbox == (entry,)
    assert driver.engine.core.information.clusters["alpha"].trouble == Reason(
        "host_slept", "transient", "koalad's host slept for 8m.", "koalad connects again by itself."
    )


def test_a_delivery_from_a_session_before_the_sleep_is_dropped(driver: Driver, recorder: Recorder) -> None:
    """A delivery of the next session is handled, and so is one without a session."""
    recorder.asleep, recorder.sessions = SLEPT, {"alpha": 7}
    submit(driver)
    assert [job.id for job in recorder.store.jobs()] == [1]
    connected = ClusterConnected(cluster="alpha", version="1")
    driver.step([Delivery((connected,), session=("alpha", 7))])
    assert not driver.engine.core.information.is_connected("alpha")
    driver.step([Delivery((connected,), session=("alpha", 8))])
    assert driver.engine.core.information.is_connected("alpha")


def test_a_confirmation_of_no_session_is_taken_after_a_sleep(driver: Driver, recorder: Recorder) -> None:
    submit(driver)
    (entry,) = recorder.sent()
    recorder.asleep, recorder.sessions = SLEPT, {"alpha": 7}
    driver.step([Delivery(confirmed=(entry.number,))])
    assert recorder.store.load().outbox == ()


def test_a_sleep_ends_all_sessions_once(driver: Driver, recorder: Recorder) -> None:
    driver.step([])
    assert "end" not in recorder.kinds
    recorder.asleep = SLEPT
    driver.step([])
    driver.step([])
    assert recorder.kinds.count("end") == 1


class Lender:
    """A site that lends to nl and paris, whose koalad restarts from its store. `recorder`: of its present koalad."""

    def __init__(self) -> None:
        self.store, self._number, self._time = MemoryStore(), 0, 0
        self._settings = replace(SETTINGS, lend=Lend(to=("nl", "paris"), processors=8, strangers=True))
        self.start()
        self._deliver(*[NeighbourJoined(neighbour=each, relation=Relation.SIBLING) for each in ("nl", "paris")])
        self._deliver(*[NeighbourConnected(neighbour=each, instance=f"store-{each}") for each in ("nl", "paris")])

    def start(self) -> None:
        """The next koalad goes on with what the last one has committed, and with nothing else."""
        self.store = self.store.reopened()
        recorder = Recorder(self.store)
        recorder.time = self._time
        self._recorder, self._driver = recorder, driven(recorder, self.store.load(), self._settings)
        self._deliver(ClusterConnected(cluster="alpha", version="1"), ClusterMeasured(cluster="alpha", state=STATE))

    def let_pass(self, duration: Duration) -> None:
        self._time = self._recorder.time = self._recorder.time + duration

    def answer(self, neighbour: str, lease: int, origin: Origin) -> str:
        """Let the neighbour ask for more than there is. Returns the code of the rejection."""
        self._number += 1
        asked = DelegateRequest(
            neighbour=neighbour, lease=lease, processors=40, walltime=HOUR, origin=origin, dttl=2, within=MINUTE
        )
        self._deliver(
            MessageReceived(neighbour=neighbour, instance=f"store-{neighbour}", number=self._number, message=asked)
        )
        answers = [each.command for each in self._recorder.sent()]
        (found,) = [each for each in answers if isinstance(each, RejectRequest) and each.lease == lease]
        assert found.neighbour == neighbour
        return found.reason.code

    def _deliver(self, *events: Event) -> None:
        self._driver.step([Delivery(events)])
        self._time = self._recorder.time


def test_a_request_seen_before_a_restart_is_refused_when_it_comes_again_by_another_neighbour() -> None:
    lender, origin = Lender(), Origin("delft", 3, 1)
    assert lender.answer("nl", 1, origin) == "busy"
    lender.start()
    assert lender.answer("paris", 1, origin) == "seen"
    assert lender.answer("paris", 2, origin._replace(round=2)) == "busy"  # its next round is another request
    lender.let_pass(HOUR)
    assert lender.answer("paris", 3, origin) == "busy"
    assert [each.origin for each in lender.store.load().requests_seen] == [origin]  # those of an hour ago are gone
