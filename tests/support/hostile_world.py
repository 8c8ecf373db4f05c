"""A driver as koalad has it, over a store in memory, with clusters that a test plays: good, evil and a third."""

from dataclasses import replace
from typing import Any

from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry
from koalapy.model.cluster import ClusterSettings, ClusterState, Node
from koalapy.model.commands import ClusterHint, Hint, SubmitAttempt
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import ClusterConnected, ClusterMeasured, Event, WorkSubmitted, WrapperReported
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState, WrapperPhase
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
        if isinstance(entry.command, SubmitAttempt):
            self._fail("send", entry.command.cluster)
            (self._world.resent if doubt else self._world.sent).append(entry.command)

    def hint(self, hint: Hint) -> None:
        if isinstance(hint, ClusterHint):
            self._fail("hint", hint.cluster)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        return {}

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        self._fail("acknowledge", cluster)
        self._world.acknowledged.append((cluster, epoch, number))

    def _fail(self, call: str, cluster: str) -> None:
        if (call, cluster) in self._world.failing:
            raise ZeroDivisionError(call)


class World:
    """A driver as koalad has it, over a store that is in memory; clusters and users are the test."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.honest: list[JobId] = []
        self.time = 10**12
        self.sent: list[SubmitAttempt] = []
        self.resent: list[SubmitAttempt] = []  # in doubt
        self.failing: set[tuple[str, str]] = set()  # calls, each with the cluster over whose link it raises
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
        self.driver.step([self.deliver(name, ClusterConnected(cluster=name, version="1")) for name in CLUSTERS])
        self.driver.step([self.deliver(name, measured(name, 8)) for name in ("good", "third")])

    def renew(self) -> Engine:
        self.renewed += 1
        return Engine(SETTINGS, POLICIES, self.store.load())

    def deliver(self, cluster: str, *events: Event) -> Delivery:
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
    return Delivery((WorkSubmitted(request=Request(name="job", components=(part,)), owner="me"),))


def reported(cluster: str, attempt: AttemptId, **facts: Any) -> WrapperReported:
    nodes = (Node("n1", "10.0.0.1", 2),)
    report = WrapperReported(cluster=cluster, attempt=attempt, batch_id="1", phase=WrapperPhase.AT_BARRIER, nodes=nodes)
    return replace(report, **{"at_barrier_at": Instant(10**12), **facts})
