"""The promises of the KCM's machine in a small world where actions fail, come late, or happen in any order."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from koalapy_adapters.batch.protocol import ENDED, QUEUED, RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.kcm import BatchStatus, CleanedUp, Done, Event, Refused, Report, Submitted
from koalapy_adapters.messages.koalad import Acknowledge, Cancel, ClusterConfig, Hello, Submit

TAGS = ("kabcde000000001", "kabcde000000002")
ERROR = failure("trouble", "transient", "Trouble.")
QUIET = 4_000  # wake-ups within which everything has to settle once nothing fails any more


@dataclass
class Job:
    """A job of the batch system."""

    tag: str
    state: str = QUEUED
    won: bool = False  # its wrapper has the start lock
    forgotten: bool = False


@dataclass
class World:
    """Batch system, shared directory and wrappers. An action is executed at one instant and its outcome comes later."""

    now: int = 1_000 * do.SECOND
    jobs: dict[str, Job] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)  # tags whose submit reaches the batch system after its command ended
    start_locks: dict[str, str] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    connected: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)
    submits: dict[str, int] = field(default_factory=dict)
    ran: dict[str, int] = field(default_factory=dict)
    pending: list[Any] = field(default_factory=list)
    outcomes: list[Any] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    ended_submits: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        config = ClusterConfig("w", "local", grace=1.0, orphan_timeout=60.0)
        self.kcm = Machine(self.now, Hello(1, "0", 1, "abcde", 0, {}), config)
        self.take(self.kcm.start(self.now))

    # ---- the machine

    def happen(self, event: Any) -> None:
        self.take(self.kcm.handle(self.now, event))

    def take(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, do.Send):
                self.receive(action.message)
            elif isinstance(action, do.SendToWrapper):
                if type(action.message).__name__ == "Stop" and action.tag in self.connected:
                    self.stopping.add(action.tag)
            elif isinstance(action, do.EndSubmit):
                self.ended_submits.add(action.tag)
            else:
                self.pending.append(action)

    def receive(self, message: Any) -> None:
        if isinstance(message, Event):
            self.received.append(from_json(message.body))
            self.outcomes.append(Acknowledge(message.number))
            if isinstance(self.received[-1], CleanedUp):
                self.assert_harmless(self.received[-1].tag)
        else:
            self.received.append(message)
            if isinstance(message, Refused):
                self.assert_harmless(self.tag_of[message.id])

    def assert_harmless(self, tag: str) -> None:
        """Assert that no job of this tag can run its program from now on."""
        live = [job for job in self.jobs.values() if job.tag == tag and job.state != ENDED]
        assert not any(job.won for job in live), "reported as ended, but its wrapper runs"
        assert self.start_locks.get(tag) or not (live or tag in self.late), (
            "reported as ended, but a job may take its start lock"
        )

    # ---- moves of the world

    def start(self, number: int, lucky: bool) -> None:
        queued = [job for job in self.jobs.values() if job.state == QUEUED]
        if not queued:
            return
        job = queued[number % len(queued)]
        job.state, job.won = (
            RUNNING,
            self.start_locks.setdefault(job.tag, "taken") == "taken" and not self.ran.get(job.tag),
        )
        if not job.won:
            job.state = ENDED
            return
        self.ran[job.tag] = self.ran.get(job.tag, 0) + 1
        if lucky:
            self.connect(job.tag)

    def connect(self, tag: str) -> None:
        self.connected.add(tag)
        self.happen(do.WrapperConnected(tag, self.now))
        if self.kcm_cancels(tag):
            self.stopping.add(tag)
        self.happen(do.WrapperReported(tag, report(tag, "at_barrier")))

    def kcm_cancels(self, tag: str) -> bool:
        return tag in self.stopping

    def finish(self, number: int, recorded: bool) -> None:
        """End a running job: by itself, because it was stopped, or killed without an exit record."""
        running = [job for job in self.jobs.values() if job.state == RUNNING]
        if not running:
            return
        self.end(running[number % len(running)], recorded)

    def end(self, job: Job, recorded: bool) -> None:
        job.state, job.won = ENDED, False
        if recorded:
            self.records[job.tag] = report(job.tag, "ended")
            if job.tag in self.connected:
                self.happen(do.WrapperReported(job.tag, self.records[job.tag]))
        if job.tag in self.connected:
            self.connected.discard(job.tag)
            self.happen(do.WrapperDisconnected(job.tag))

    def arrive_late(self) -> None:
        if self.late:
            self.jobs[str(len(self.jobs) + 1)] = Job(self.late.pop(0))

    def forget(self) -> None:
        """Let the queue no longer list ended jobs."""
        for job in self.jobs.values():
            job.forgotten = job.state == ENDED

    # ---- actions: executed at one instant, their outcomes given later

    def execute(self, number: int, fails: bool) -> None:
        if not self.pending:
            return
        action = self.pending.pop(number % len(self.pending))
        self.outcomes.append(getattr(self, "do_" + type(action).__name__)(action, fails))

    def give_outcome(self, number: int) -> None:
        if self.outcomes:
            self.happen(self.outcomes.pop(number % len(self.outcomes)))

    def do_Prepare(self, action: do.Prepare, fails: bool) -> Any:
        return do.Prepared(action.tag, ERROR if fails else None)

    def do_SubmitJob(self, action: do.SubmitJob, fails: bool) -> Any:
        assert not self.submits.get(action.tag), "submitted twice"
        if action.tag in self.ended_submits or (fails and self.now % 3 == 0):
            return do.JobSubmitted(action.tag, error=ERROR, doubt=False)
        self.submits[action.tag] = 1
        if fails:  # the command fails in doubt; its job is in the queue, or comes late
            self.late.append(action.tag)
            if self.now % 3 == 1:
                self.arrive_late()
            return do.JobSubmitted(action.tag, error=ERROR, doubt=True)
        batch_id = str(len(self.jobs) + 1)
        self.jobs[batch_id] = Job(action.tag)
        return do.JobSubmitted(action.tag, batch_id)

    def do_Look(self, action: do.Look, fails: bool) -> Any:
        if fails:
            return do.Looked(action.tag, error=ERROR, submitting=action.submitting)
        found = [status for status in self.statuses().values() if status.name == action.tag]
        found.sort(key=lambda status: status.state == ENDED)
        return do.Looked(action.tag, found[0] if found else None, submitting=action.submitting)

    def do_TakeStartLock(self, action: do.TakeStartLock, fails: bool) -> Any:
        if fails:
            return do.StartLockTaken(action.tag, False, ERROR)
        return do.StartLockTaken(action.tag, self.start_locks.setdefault(action.tag, "void") == "void")

    def do_CancelJob(self, action: do.CancelJob, fails: bool) -> Any:
        job = self.jobs.get(action.batch_id)
        if job is not None and not fails and job.state != ENDED:
            self.end(job, recorded=self.now % 2 == 0 and job.state == RUNNING)
        return do.JobCancelled(action.tag, ERROR if fails else None)

    def do_CheckJobs(self, action: do.CheckJobs, fails: bool) -> Any:
        if fails:
            return do.JobsChecked(action.batch_ids, {}, ERROR)
        statuses = self.statuses()
        return do.JobsChecked(action.batch_ids, {key: statuses[key] for key in action.batch_ids if key in statuses})

    def do_Inspect(self, action: do.Inspect, fails: bool) -> Any:
        if fails:
            return do.Inspected(action.tags, {}, 0, ERROR, action.submitting)
        directories = {
            tag: do.DirectoryStatus(self.start_locks.get(tag, ""), self.records.get(tag)) for tag in action.tags
        }
        return do.Inspected(action.tags, directories, 1, None, action.submitting)

    def do_Measure(self, action: do.Measure, fails: bool) -> Any:
        if fails:
            return do.CapacityMeasured(self.now, None, ERROR, 10)
        return do.CapacityMeasured(self.now, Capacity(8, 8, 0, 0, 0, [], [], [], self.statuses()), None, 10)

    def statuses(self) -> dict[str, JobStatus]:
        return {key: JobStatus(key, job.tag, job.state) for key, job in self.jobs.items() if not job.forgotten}

    # ---- once nothing fails any more

    def settle(self) -> None:
        for _ in range(QUIET):
            while self.pending or self.outcomes:
                self.execute(0, fails=False)
                self.give_outcome(0)
            for tag in sorted(self.stopping):
                for job in [job for job in self.jobs.values() if job.tag == tag and job.state == RUNNING]:
                    self.end(job, recorded=True)
            self.forget()
            if self.is_settled():
                return
            self.now = max(self.now + 1, self.kcm.wakeup() or 0)
            self.take(self.kcm.tick(self.now))

    def is_settled(self) -> bool:
        """Return whether every Submit is answered, every cancelled tag cleaned up, and every exit record reported."""
        answered = {message.id for message in self.received if isinstance(message, (Submitted, Refused, Done))}
        cleaned_up = {message.tag for message in self.received if isinstance(message, CleanedUp)}
        reported = {
            message.tag for message in self.received if isinstance(message, Report) and message.phase == "ended"
        }
        all_reported = set(self.records) <= reported | cleaned_up
        return self.asked <= answered and self.cancelled <= cleaned_up and all_reported and not self.pending

    asked: set[int] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    tag_of: dict[int, str] = field(default_factory=dict)


def report(tag: str, phase: str) -> dict[str, Any]:
    return {"tag": tag, "batch_id": "", "phase": phase, "nodes": []}


STEPS = 120
MOVES = (
    ("execute", 24),
    ("outcome", 24),
    ("start", 9),
    ("finish", 6),
    ("reconnect", 3),
    ("late", 3),
    ("forget", 6),
    ("wait", 12),
    ("wake", 2),
    ("submit", 3),
    ("cancel", 1),
)


def move(world: World, dice: Random, name: str, tag: str) -> None:
    """Let one thing happen: in koalad, in an action of the KCM, or in the world."""
    number = len(world.asked) + 1
    if name == "submit":
        world.asked.add(number)
        world.tag_of[number] = tag
        world.happen(Submit(number, tag, {}, {"grace": 1.0}, [], dice.random() < 0.5))
    elif name == "cancel":
        world.asked.add(number)
        world.cancelled.add(tag)
        world.happen(Cancel(number, tag, "", dice.random() < 0.3))
    elif name == "execute":
        world.execute(dice.randrange(9), fails=dice.random() < 0.25)
    elif name == "reconnect":
        if any(job.tag == tag and job.won for job in world.jobs.values()):
            world.connect(tag)
    elif name == "wait":
        world.now += dice.choice((1, 1_000, 100_000, 5_000_000, 90_000_000))
        world.take(world.kcm.tick(world.now))
    elif name == "outcome":
        world.give_outcome(dice.randrange(9))
    elif name == "start":
        world.start(dice.randrange(3), dice.random() < 0.7)
    elif name == "finish":
        world.finish(dice.randrange(3), dice.random() < 0.7)
    elif name == "late":
        world.arrive_late()
    elif name == "forget":
        world.forget()
    else:
        world.happen(do.Woken())


@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_attempts_run_once_and_commands_are_answered_once_in_every_order(seed: int) -> None:
    dice, world = Random(seed), World()
    names, weights = zip(*MOVES, strict=True)
    world.asked.add(1)
    world.tag_of[1] = TAGS[0]
    world.happen(Submit(1, TAGS[0], {}, {"grace": 1.0}))
    for name in dice.choices(names, weights, k=STEPS):
        move(world, dice, name, dice.choice(TAGS))
    world.settle()
    assert world.is_settled(), [message for message in world.received if not isinstance(message, BatchStatus)]
    for tag in world.cancelled:
        world.assert_harmless(tag)
    assert all(times == 1 for times in world.ran.values())
    answered = [message.id for message in world.received if isinstance(message, (Submitted, Refused, Done))]
    assert len(answered) == len(set(answered)), "answered twice"


@pytest.mark.parametrize("tag", TAGS)
def test_a_refused_attempt_never_runs(tag: str) -> None:
    world = World()
    world.asked.add(1)
    world.tag_of[1] = tag
    world.happen(Submit(1, tag, {}, {"grace": 1.0}))
    world.execute(1, fails=False)  # prepare
    world.give_outcome(0)
    world.now += (1 - world.now) % 3 + 1  # this doubtful submit reaches the batch system late
    world.execute(1, fails=True)
    world.give_outcome(0)
    world.settle()
    assert [type(message) for message in world.received if isinstance(message, (Submitted, Refused))] == [Refused]
    world.arrive_late()
    world.start(0, lucky=True)
    assert world.ran == {}
