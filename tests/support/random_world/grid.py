"""koalad in the random world: engine, driver and store, kills and restarts, and connections."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from koalapy.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import ClusterCommand, CollectOutput, Hint
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import (
    ClusterChanged,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    ClusterLost,
    Event,
    OutputCollected,
)
from koalapy.model.identity import InstanceId
from koalapy.model.settings import Settings
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.policies.placement import best_fit, cluster_minimisation, worst_fit
from koalapy.policies.queueing import fcfs, fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore

from .cluster import Cluster, promise
from .kcm import Kcm
from .promises import Promises

INSTANCE = InstanceId("abcde")
CUT = Reason("cut", "transient", "The connection was lost.", "")
NO_OUTPUT = Reason("no_output_file", "request", "There is no such file.", "")
FULL = TransientError("store_full", "The disk is full.", "Make room.")


class Killed(Exception):
    """koalad was killed."""


class Grid:
    """koalad and its clusters. It serves as koalad's links, and as a store that may fail or kill koalad."""

    def __init__(self, rng: Random) -> None:
        self.now = Instant(1_000_000 * SECOND)
        self.settings = _settings(rng)
        queue = rng.choice((fcfs, fpfs, fpfs))
        self.policies = Policies(rng.choice((worst_fit, worst_fit, cluster_minimisation, best_fit)), queue)
        self.clusters = {each.name: Cluster(each, rng.choice((4, 6, 8)), INSTANCE) for each in self.settings.clusters}
        self.promises = Promises(self, queue is fcfs)
        self.store = MemoryStore(INSTANCE)
        self.kcms: dict[str, Kcm] = {}
        self._epoch = 0
        self.full = False  # the store's disk
        self.killed_in = 0  # after this many more calls of commit and send; 0 for never
        self.start()

    # ---- koalad

    def start(self) -> None:
        """Start a new koalad on the same store; messages to the last one are lost."""
        self.kcms, self.inbox, self.stuck, self.killed_in = {}, list[Delivery](), False, 0
        self.collecting: dict[int, CollectOutput] = {}
        self.store = self.store.reopened()
        snapshot = self.store.load()
        self.engine = Engine(self.settings, self.policies, snapshot)
        self.handled_at = Instant(0)
        self.driver = Driver(self.engine, self, self, _Clock(self), snapshot.outbox, self.store.next_number)
        self._do(self.driver.start)
        self.drive([])

    def drive(self, deliveries: list[Delivery]) -> None:
        """Handle one batch. Not called while the store is failing."""
        promise(not self.stuck, "one commit at a time")
        self.decided_at = self.handled_at = self.now
        self.promises.of_events(event for delivery in deliveries for event in delivery.events)
        self._do(lambda: self.driver.step(deliveries))

    def retry(self) -> None:
        self._do(self.driver.retry)

    def _do(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TransientError:
            self.stuck = True
        except Killed:
            self.start()
        else:
            self.stuck = False
            self._check_engine()

    def _check_engine(self) -> None:
        self.promises.of_engine(self.store.load())
        for _ in range(3):
            wakeup = self.engine.next_wakeup()
            if wakeup is None or wakeup > self.now or self.full or self.killed_in > 0:
                return
            self.decided_at = self.handled_at = self.now
            self.driver.step([])
        promise(False, "time alone makes no busy loop", wakeup)

    # ---- its store and its links

    def commit(self, change: Change) -> None:
        if self.full:
            raise FULL
        self._count_down_to_kill()
        self.promises.of_commit(change)
        self.store.commit(change)
        self._count_down_to_kill()

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        self._count_down_to_kill()
        command = entry.command
        if doubt:
            self.promises.of_doubt(command)
        if isinstance(command, CollectOutput):
            self.collecting[entry.number] = command
        elif isinstance(command, ClusterCommand) and command.cluster in self.kcms:
            self.kcms[command.cluster].send(entry.number, command)

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        kcm = self.kcms.get(cluster)
        if kcm is not None and kcm.epoch == epoch:
            kcm.acknowledge(number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        raise AssertionError(reason)

    def _count_down_to_kill(self) -> None:
        self.killed_in -= 1
        if self.killed_in == 0:
            raise Killed

    # ---- its clusters, which change only while the store works: the live tests kill koalad in the middle

    def join(self, settings: ClusterSettings, size: int) -> None:
        if self._changes(ClusterJoined(settings=settings)):
            self.clusters[settings.name] = Cluster(settings, size, INSTANCE)

    def change(self, settings: ClusterSettings) -> None:
        if self._changes(ClusterChanged(settings=settings)):
            self.clusters[settings.name].settings = settings

    def leave(self, name: str) -> None:
        """Let the cluster leave. All of its batch jobs end with it."""
        if self._changes(ClusterLeft(name=name)):
            self.promises.of_leave(name)
            del self.clusters[name]
            self.kcms.pop(name, None)
            for number, command in list(self.collecting.items()):
                if any(cluster == name for cluster, _ in command.sources):
                    self.collecting[number] = replace(command, sources=())
                    self.collect(number, False)

    def _changes(self, event: Event) -> bool:
        """Handle the event by itself, unless the store fails or koalad is about to be killed. Return whether it was."""
        if self.stuck or self.full or self.killed_in > 0:
            return False
        self.settings = changed_by(self.settings, event)
        self.drive([Delivery((event,))])
        return True

    # ---- its connections

    def connect(self, name: str) -> None:
        self._epoch += 1
        records = self.engine.records
        known = [attempt.id for attempt in records.live(name)]
        pending_cancels = [attempt for attempt, each in records.pending_cancels.items() if each.cluster == name]
        self.kcms[name] = Kcm(self.clusters[name], self._epoch, known + pending_cancels)
        self.deliver(ClusterConnected(cluster=name, version="1"))

    def cut(self, name: str) -> None:
        del self.kcms[name]
        self.deliver(ClusterLost(cluster=name, reason=CUT))

    def deliver(self, *events: Event) -> None:
        self.inbox.append(Delivery(events))

    def collect(self, number: int, found: bool) -> None:
        command = self.collecting.pop(number)
        for cluster, attempt in command.sources:
            there = attempt in self.clusters[cluster].traces
            promise(there, "output is collected before its attempt is forgotten", attempt)
        reason = None if found else NO_OUTPUT
        self.inbox.append(Delivery((OutputCollected(job=command.job, reason=reason),), (number,)))


class _Clock:
    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def now(self) -> Instant:
        return self._grid.now

    def slept(self) -> Duration:
        return Duration(0)


def changed_by(settings: Settings, event: Event) -> Settings:
    """Return the settings of a grid file that says what the event says."""
    clusters = {each.name: each for each in settings.clusters}
    if isinstance(event, ClusterLeft):
        del clusters[event.name]
    elif isinstance(event, ClusterJoined | ClusterChanged):
        clusters[event.settings.name] = event.settings
    return replace(settings, clusters=tuple(clusters.values()))


def _settings(rng: Random) -> Settings:
    def cluster(name: str) -> ClusterSettings:
        exclusive = rng.random() < 0.2
        return ClusterSettings(
            name=name,
            batch="slurm",
            network=rng.choice(("default", "default", "default", "other")),
            processors_per_node=2 if exclusive else None,
            exclusive=exclusive,
            backlog=rng.choice((None, None, 2, 20)),
        )

    return Settings(
        clusters=tuple(cluster(name) for name in ("alpha", "beta", "gamma")[: rng.choice((2, 3))]),
        max_overtakes=rng.choice((0, 1, 2, 20)),
        max_submission_failures=rng.choice((1, 2, 3)),
        max_completion_failures=rng.choice((0, 1, 3)),
        queue_after=rng.choice((Duration(0), Duration(30 * SECOND), Duration(5 * MINUTE))),
        barrier_timeout=rng.choice((Duration(MINUTE), Duration(5 * MINUTE), Duration(20 * MINUTE))),
    )
