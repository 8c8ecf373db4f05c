"""A walk through the random world: random actions and faults, then healing, in which every job must end."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, HoldRequested, MeasurementFailed, ReleaseRequested, WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest, Request, RetryOn, WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import MILLISECOND, MINUTE, SECOND, Duration, Instant
from koalapy.views.clusters import left_on

from .cluster import Cluster, Trace, promise
from .grid import Grid

SICK = Reason("batch_system", "transient", "The batch system does not answer.", "")
ROUNDS = 600  # after healing, within which every job must be final
MOST_JOBS = 8
NAMES = ("alpha", "beta", "gamma", "delta")
MOST_CLUSTERS = 3
ENDS = ("signalled", "restarted", "cancelled", "killed", "walltime", "memory", "", "vanished")  # see Cluster.kill


class Walk:
    """One grid, and a random generator that is seeded again for every step."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.grid = Grid(self.rng)
        self._acts = [act for act, weight in ACTIONS.items() for _ in range(weight)]
        self._acts += [act for act, weight in FAULTS.items() for _ in range(weight * self.rng.choice((0, 0, 1, 3)))]
        self._smooth = self.rng.random() < 0.4  # batch systems and nodes refuse nothing
        self._well = self.rng.random() < 0.3  # programs succeed
        self._begin(self.rng.choice((0, 6, 10)))

    def _begin(self, rounds: int) -> None:
        """Submit some jobs before the first step, sometimes to busy clusters."""
        for cluster in self.grid.clusters.values() if self.rng.random() < 0.4 else ():
            cluster.enqueue(cluster.size)
        for _ in range(rounds):
            self.submit()
            self.flow()
            self._pass(SECOND)

    def step(self, seed: int) -> None:
        self.rng = Random(seed)
        self.rng.choice(self._acts)(self)
        self.grid.promises.of_world()

    # ---- time and messages

    def wait(self) -> None:
        spans = (MILLISECOND, SECOND, SECOND, 10 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 11 * MINUTE)
        self._pass(self.rng.choice(spans))

    def wake(self) -> None:
        """Wake koalad at the instant of its next wake-up."""
        moment = self.grid.engine.next_wakeup()
        if moment is not None and not self.grid.stuck:
            self._pass(max(0, moment - self.grid.now))
            self.grid.drive([])

    def _pass(self, span: int) -> None:
        self.grid.now = Instant(self.grid.now + span)
        for cluster in self.grid.clusters.values():
            cluster.clocks(self.grid.now)

    def drive(self) -> None:
        """Let koalad handle the oldest deliveries as one batch."""
        grid = self.grid
        if grid.stuck:
            grid.retry()
            return
        count = self.rng.randint(0, len(grid.inbox))
        batch, grid.inbox = grid.inbox[:count], grid.inbox[count:]
        grid.drive(batch)

    def receive(self) -> None:
        for kcm in self.grid.kcms.values():
            for _ in range(self.rng.randint(0, len(kcm.up))):
                delivery = kcm.receive()
                if delivery is not None:
                    self.grid.inbox.append(delivery)

    def handle(self) -> None:
        for kcm in self.grid.kcms.values():
            for _ in range(self.rng.randint(0, len(kcm.down))):
                kcm.handle(self.grid.now, self.rng, self._smooth)

    def look(self) -> None:
        for kcm in self.grid.kcms.values():
            if self.rng.random() < 0.7:
                kcm.look(self.grid.now, self.rng)

    def measure(self) -> None:
        for kcm in self.grid.kcms.values():
            if self.rng.random() < 0.7:
                kcm.emit(kcm.cluster.measure(self.grid.now))

    def connect(self) -> None:
        for name in self.grid.clusters:
            if name not in self.grid.kcms and not self.grid.stuck and self.rng.random() < 0.6:
                self.grid.connect(name)

    def flow(self) -> None:
        """Advance every part by a step, and deliver all messages."""
        self.connect()
        self.start_jobs()
        self.work()
        self.measure()
        for kcm in self.grid.kcms.values():
            while kcm.down:
                kcm.handle(self.grid.now, self.rng, self._smooth)
            kcm.look(self.grid.now, self.rng)
            while kcm.up:
                self.grid.inbox += [each for each in [kcm.receive()] if each is not None]
        if self.grid.stuck:
            self.grid.retry()
        else:
            batch, self.grid.inbox = self.grid.inbox, []
            self.grid.drive(batch)

    # ---- clusters

    def start_jobs(self) -> None:
        for cluster in self.grid.clusters.values():
            cluster.start_jobs(self.rng)

    def work(self) -> None:
        for cluster in self.grid.clusters.values():
            for trace in list(cluster.ours()):
                if self.rng.random() < 0.6:
                    cluster.step(trace, self.grid.now, self.rng, self._smooth, self._well)

    def local_job(self) -> None:
        cluster = self._cluster()
        theirs = [job for job in cluster.queue if job.attempt is None and job.state == "running"]
        if theirs and self.rng.random() < 0.6:
            self.rng.choice(theirs).end("exited")
        elif len(cluster.queue) < 8:
            cluster.enqueue(self.rng.randint(1, cluster.size))

    def join(self) -> None:
        """Let a cluster join, under a new name or one that has left."""
        if len(self.grid.clusters) < MOST_CLUSTERS:
            name = self.rng.choice([each for each in NAMES if each not in self.grid.clusters])
            network = self.rng.choice(("default", "other"))
            self.grid.join(ClusterSettings(name=name, batch="slurm", network=network), self.rng.choice((4, 6, 8)))

    def drain(self) -> None:
        """Drain a cluster, or end that; or change what its batch queue may hold."""
        settings = self._cluster().settings
        if self.rng.random() < 0.7:
            self.grid.change(replace(settings, draining=not settings.draining))
        else:
            self.grid.change(replace(settings, backlog=self.rng.choice((None, 2, 20))))

    def leave(self) -> None:
        """Let a cluster leave: one that is drained and empty, or any with all that is on it, which then ends there."""
        if len(self.grid.clusters) > 1 and (self.rng.random() < 0.3 or not left_on(self.grid.engine, self._last())):
            self.grid.leave(self._last())

    def _last(self) -> str:
        return next(reversed(self.grid.clusters))

    def collect(self) -> None:
        for number, command in list(self.grid.collecting.items()):
            if all(cluster in self.grid.kcms for cluster, _ in command.sources):
                self.grid.collect(number, self._well or self.rng.random() < 0.8)

    # ---- users

    def submit(self) -> None:
        if self.grid.engine.records.counters.next_job <= MOST_JOBS:
            key = self.rng.choice(("", "", "", "a", "b"))
            self.grid.deliver(WorkSubmitted(request=self._request(), owner="me", key=self._unused(key)))

    def _unused(self, key: str) -> str:
        """The key, unless a final job has it: koalad's API answers for such keys."""
        known = self.grid.store.id_of_key("me", key)
        return "" if known is not None and self.grid.engine.job(known) is None else key

    def _request(self) -> Request:
        rng = self.rng
        components = [self._component(index) for index in range(rng.choice((1, 2, 2, 3)))]
        return Request(
            name="job",
            components=tuple(components),
            priority=rng.choice((5, 10, 10, 10)),
            when_busy=rng.choice((WhenBusy.WAIT, WhenBusy.WAIT, WhenBusy.QUEUE)),
            retry_on=rng.choice(((RetryOn.LOST, RetryOn.KILLED), (), (RetryOn.LOST, RetryOn.KILLED, RetryOn.EXIT))),
            communication=rng.random() < 0.7,
            stage_out=rng.choice(((), (), ("result",))),
        )

    def _component(self, index: int) -> ComponentRequest:
        return ComponentRequest(
            processors=self.rng.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 6, 9)),
            executable="./program",
            cluster=self.rng.choice((None, None, *self.grid.clusters)),
            walltime=Duration(self.rng.choice((5, 60)) * MINUTE),
            optional=index > 0 and self.rng.random() < 0.3,
        )

    def cancel(self) -> None:
        if (job := self._job()) is not None:
            self.grid.deliver(CancelRequested(job, self.rng.random() < 0.4))

    def hold(self) -> None:
        if (job := self._job()) is not None:
            self.grid.deliver(self.rng.choice((HoldRequested, ReleaseRequested))(job))

    def release(self) -> None:
        self.grid.deliver(*(ReleaseRequested(job) for job in self._held()))

    def _held(self) -> list[JobId]:
        return [job.id for job in self.grid.engine.records.jobs.values() if job.state is JobState.HELD]

    # ---- faults

    def cut(self) -> None:
        if self.grid.kcms:
            self.grid.cut(self.rng.choice(list(self.grid.kcms)))

    def repeat(self) -> None:
        for kcm in self.grid.kcms.values():
            kcm.repeat_events()

    def kill(self) -> None:
        if (trace := self._trace()) is not None:
            trace[0].kill(trace[1], self.grid.now, self.rng.choice(ENDS))

    def hide(self) -> None:
        """Hide an existing batch job from the queue's list, or show it again."""
        if (trace := self._trace()) is not None and trace[1].batch is not None:
            trace[1].batch.listed = self.rng.random() < 0.5

    def suspend(self) -> None:
        if (trace := self._trace()) is not None and trace[1].batch is not None:
            trace[1].batch.suspended = not trace[1].batch.suspended

    def fail_to_measure(self) -> None:
        for name, kcm in self.grid.kcms.items():
            if self.rng.random() < 0.5:
                kcm.emit(MeasurementFailed(cluster=name, reason=SICK))

    def fill_disk(self) -> None:
        self.grid.full = not self.grid.full

    def kill_koalad(self) -> None:
        self.grid.killed_in = self.rng.randint(1, 4)

    def _cluster(self) -> Cluster:
        return self.rng.choice(list(self.grid.clusters.values()))

    def _trace(self) -> tuple[Cluster, Trace] | None:
        found = [(cluster, trace) for cluster in self.grid.clusters.values() for trace in cluster.ours()]
        return self.rng.choice(found) if found else None

    def _job(self) -> JobId | None:
        jobs = list(self.grid.engine.records.jobs)
        return self.rng.choice(jobs) if jobs else None

    # ---- the end

    def finish(self) -> None:
        """End all faults; then check that every job becomes final, and that nothing else is left.

        A job that is too large, and was there when koalad started, fails when the clusters' sizes have settled.
        """
        self._smooth, self._well, self.grid.full, self.grid.killed_in = True, True, False, 0
        if self.grid.stuck:
            self.grid.retry()
        for cluster in list(self.grid.clusters.values()):
            self.grid.change(replace(cluster.settings, draining=False))
        for turn in range(2 * ROUNDS):
            if turn == ROUNDS:
                self.grid.now = Instant(self.grid.now + self.grid.settings.settles)
            self._healed_round()
            if self._at_rest():
                break
        promise(not self.grid.engine.records.jobs, "every job becomes final", self.grid.engine.records.jobs)
        promise(
            not self.grid.engine.records.pending_cancels,
            "pending cancels are confirmed",
            self.grid.engine.records.pending_cancels,
        )
        promise(not self.grid.store.load().outbox, "the outbox becomes empty", self.grid.store.load().outbox)
        for cluster in self.grid.clusters.values():
            promise(not list(cluster.ours()), "no batch job of ours is left", cluster.traces)
            self._check_directories(cluster)

    def _healed_round(self) -> None:
        grid = self.grid
        for name in grid.clusters:
            if name not in grid.kcms and not grid.stuck:
                grid.connect(name)
        for cluster in grid.clusters.values():
            _heal(cluster)
            cluster.start_jobs(self.rng)
            for trace in list(cluster.ours()):
                cluster.step(trace, grid.now, self.rng, True, True)
        self.collect()
        self.release()
        self.flow()
        self.measure()
        self._pass(self.rng.choice((MILLISECOND, SECOND, 10 * SECOND, 30 * SECOND)))

    def _at_rest(self) -> bool:
        grid = self.grid
        quiet = not any(kcm.up or kcm.down for kcm in grid.kcms.values()) and not grid.inbox
        records = grid.engine.records
        return quiet and not (records.jobs or records.pending_cancels or grid.store.load().outbox)

    def _check_directories(self, cluster: Cluster) -> None:
        """Check that only directories of last attempts are left, whose output may be fetched."""
        for attempt in cluster.traces:
            job = self.grid.store.job(attempt.job)
            last = job is not None and job.components[attempt.component].attempt == attempt.number
            promise(last, "earlier attempts are forgotten", attempt)


def _heal(cluster: Cluster) -> None:
    for job in cluster.queue:
        job.suspended = job.stuck = False
        job.listed = job.state != "ended"
        if job.attempt is None:
            job.end("exited")


ACTIONS: dict[Callable[[Walk], None], int] = {
    Walk.flow: 40,
    Walk.submit: 12,
    Walk.wait: 8,
    Walk.wake: 3,
    Walk.drive: 6,
    Walk.receive: 6,
    Walk.handle: 6,
    Walk.look: 6,
    Walk.measure: 4,
    Walk.connect: 4,
    Walk.start_jobs: 4,
    Walk.work: 8,
    Walk.local_job: 5,
    Walk.collect: 5,
    Walk.join: 2,
    Walk.drain: 1,
    Walk.leave: 2,
    Walk.cancel: 1,
    Walk.hold: 1,
    Walk.release: 2,
}
FAULTS: dict[Callable[[Walk], None], int] = {
    Walk.cut: 5,
    Walk.repeat: 3,
    Walk.kill: 5,
    Walk.hide: 2,
    Walk.suspend: 2,
    Walk.fail_to_measure: 2,
    Walk.fill_disk: 2,
    Walk.kill_koalad: 2,
    Walk.cancel: 1,
}


def walk(seed: int, steps: Sequence[int]) -> None:
    """Walk, then heal. Raises AssertionError or Violation with the name of a broken promise."""
    course = Walk(seed)
    for each in steps:
        course.step(each)
    course.finish()
