"""One process of a simulated koalad, from its start to a kill: the real driver over real engine, store and links."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from koalapy_adapters.clock import SleepWatch
from koalapy_adapters.messages.kcm import Welcome

from koalapy.coallocation.restored_store import doubtful
from koalapy.driver.driver import Delivery, Driver, Recorder
from koalapy.engine import Engine
from koalapy.link.conversation import known_attempts, lost
from koalapy.link.restore_check import CONNECTS, RestoreCheck, Verdict
from koalapy.link.session import LinkStatus
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.commands import (
    ClusterCommand,
    CollectOutput,
    CompareAds,
    GridHint,
    Hint,
    LeaseHint,
    NeighbourCommand,
    NotificationCommand,
)
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import Event, StoreRestored
from koalapy.model.identity import AttemptId, JobId, is_site, site_of
from koalapy.model.lease import lease_of_cluster
from koalapy.model.records import Step
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.store.contract import Store
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.koalad.cluster_link import SimClusterLink
from koalapy.world.koalad.file_operations import Receiver
from koalapy.world.koalad.link_host import PipeConnection
from koalapy.world.koalad.matchmaker import compared
from koalapy.world.koalad.notifications import NotificationObserver, Recipients, SimSender
from koalapy.world.koalad.site_link import Neighbourhood, SimSiteLinks
from koalapy.world.processes import CrashPoint, Process
from koalapy.world.random_streams import between, stream

_BATCH = 500  # deliveries; a larger flood is handled in several commits
_RETRY = Duration(SECOND)  # between tries to commit while the store is failing
_CHANGED = Reason("settings_changed", "transient", "Its settings have changed.", "koalad connects anew.")
_COMPARING = Duration(MILLISECOND), Duration(SECOND)  # from a comparison's question to its answer
_IDLE_STEPS = 50  # wake-ups at one instant that change nothing: time alone makes a busy loop


class KoaladObserver(Receiver, NotificationObserver, Protocol):
    """An observer of koalad, across all its processes. No call changes anything."""

    def started(self, snapshot: Snapshot, engine: Engine) -> None: ...

    def engine_replaced(self, engine: Engine) -> None:
        """This engine decides from now on, in place of the process's former one."""
        ...

    def linked(self, cluster: str) -> None:
        """A new link to the cluster begins while koalad runs."""
        ...

    def deciding(self, now: Instant, deliveries: Sequence[Delivery]) -> None:
        """koalad begins to handle a batch; `now` is the time of its clock."""
        ...

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        """The engine is given these events: also koalad's own, and none of ended sessions."""
        ...

    def committed(self, change: Change, store: Store) -> None: ...

    def sent(self, entry: OutboxEntry, doubt: bool) -> None:
        """A command is about to be sent to its cluster."""
        ...

    def reported(self, status: LinkStatus) -> None:
        """A try to connect has this outcome, or the session was lost."""
        ...

    def retry_requested(self, cluster: str) -> None:
        """A person asks for another try to connect."""
        ...

    def acknowledged(self, cluster: str, epoch: int, number: int) -> None:
        """Events up to this one are about to be acknowledged."""
        ...


class Host(Protocol):
    """koalad's host, with its faults."""

    agenda: Agenda
    crash_point: CrashPoint
    observer: KoaladObserver
    recorder: Recorder
    recipients: Recipients
    starts: int  # how often koalad was started
    lossy: bool  # koalad's last messages are lost with it

    def now(self) -> Instant: ...

    @property
    def asleep(self) -> bool: ...

    @property
    def slept(self) -> Duration:
        """The total time that the host has slept."""
        ...

    def may_commit(self) -> None:
        """Raises KoalaError while the disk is full."""
        ...

    def committed(self, change: Change) -> None:
        """Note a commit of koalad."""
        ...

    def change_grid(self, hint: GridHint) -> None:
        """Begin to carry out a hint; returns at once."""
        ...

    def examine(self, hint: LeaseHint) -> None:
        """Begin to carry out a hint on a lease; returns at once."""
        ...


class _ObservedRecorder:
    """The host's recorder, and its observer, which is called with the engine's events."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def begin(self, engine: Engine) -> None:
        self._host.observer.engine_replaced(engine)
        self._host.recorder.begin(engine)

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        self._host.observer.handling(now, events)
        self._host.recorder.handling(now, events)

    def handled(self, step: Step) -> None:
        self._host.recorder.handled(step)

    def failed(self, error: Exception) -> None:
        self._host.recorder.failed(error)
        raise error  # in a world of honest clusters each failure is a mistake of ours


class KoaladProcess:
    """One process of koalad. It serves as its driver's store and links, and may die between any two steps."""

    def __init__(
        self,
        host: Host,
        store: Store,
        engine: Engine,
        snapshot: Snapshot,
        renew: Callable[[], Engine],
        neighbourhood: Neighbourhood | None = None,
    ) -> None:
        """`renew` makes an engine of what the store holds, by the present settings. `neighbourhood`: of a site."""
        self.agenda = host.agenda
        self.os_process = Process(host.agenda, [host.crash_point])
        self.stuck = False  # the store is failing, so no batch is handled
        self.links: dict[str, SimClusterLink] = {}
        self.connections: list[PipeConnection] = []
        self.inbox: list[Delivery] = []
        self.collecting: dict[int, CollectOutput] = {}
        self._host, self._store = host, store
        self._collect: Callable[[int, CollectOutput], None] = lambda number, command: None
        self._epochs = count(store.epoch * CONNECTS + 1)
        self._restore_check = RestoreCheck(store.epoch, store.next_number - 1)
        self._next_step: ScheduledCall | None = None  # the next turn of the driver's thread
        self._sleep = SleepWatch(lambda: host.slept)
        self._sender = SimSender(
            host.recipients, lambda: host.observer, lambda job: store.work(job) is not None, host.now, self.deliver,
            self.after,
        )  # fmt: skip
        self._idle_steps = 0
        self._matchmaker_rng = stream(host.starts, "matchmaker")
        self.driver = Driver(
            engine, self, self, self, snapshot.outbox, store.next_number, renew=renew, quarantine=self._quarantine,
            recorder=_ObservedRecorder(host),
        )  # fmt: skip
        self.sites: SimSiteLinks | None = None
        if neighbourhood is not None:
            rng = stream(host.starts, f"sites of {neighbourhood.site}")
            last_number = store.next_number - 1
            self.sites = SimSiteLinks(neighbourhood, snapshot.instance, store.epoch, last_number, self, rng)
        self.os_process.on_death(self._died)
        if neighbourhood is not None:
            self.os_process.on_death(neighbourhood.lost)

    @property
    def engine(self) -> Engine:
        return self.driver.engine

    def start(self, links: dict[str, SimClusterLink], collect: Callable[[int, CollectOutput], None]) -> None:
        self.links, self._collect = links, collect
        self.enter(self._begin)

    def _begin(self) -> None:
        if self.sites is not None:
            self.sites.start()
        self.driver.start()  # it sends the last koalad's outbox at once
        self._go([])
        for link in self.links.values():
            link.start()

    # ---- clusters that join and leave, as in koalapy.runtime.links

    def join(self, cluster: str, link: SimClusterLink) -> None:
        """Connect to a cluster, once the engine has it."""
        self.links[cluster] = link
        self._host.observer.linked(cluster)
        link.start()

    def leave(self, cluster: str) -> None:
        """End the connection to a cluster; jobs there continue."""
        if (link := self.links.pop(cluster, None)) is not None:
            link.close()

    def renew(self, cluster: str, link: SimClusterLink) -> None:
        """Connect to a cluster anew. Its session ends before the next one begins."""
        self.leave(cluster)
        self.deliver(lost(cluster, _CHANGED))
        self.join(cluster, link)

    # ---- neighbouring sites

    @property
    def answers(self) -> bool:
        """Return whether the engine has nothing that is not committed."""
        return not self.stuck

    def strays(self) -> list[str]:
        """Return what is at the other end of connections that stand, and that no link uses."""
        used: list[object] = [link.connection for link in self.links.values()]
        if self.sites is not None:
            used += [link.connection for link in self.sites.neighbours.links.values()]
        return [each.who for each in self.connections if each.serves and not each.has_ended and each not in used]

    def reach_leases(self) -> None:
        """Try to reach the leases at once, since a neighbour is connected."""
        for name, link in list(self.links.items()):
            if lease_of_cluster(name) is not None:
                link.retry()

    # ---- calls

    def enter(self, call: Callable[[], None]) -> None:
        self.os_process.run(call)

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall:
        """Call after this much time awake: timers stop while the host sleeps."""
        slept = self._host.slept
        return self.os_process.after(delay, lambda: self._call_when_awake(slept, call))

    def _call_when_awake(self, slept: Duration, call: Callable[[], None]) -> None:
        if self._host.slept > slept:
            self.after(Duration(self._host.slept - slept), call)
        else:
            call()

    def now(self) -> Instant:
        return self._host.now()

    def slept(self) -> Duration:
        return Duration(self._sleep.look())

    def fall_asleep(self) -> None:
        self.os_process.freeze()

    def wake(self, looks_after: Duration) -> None:
        """Wake with the host. The driver's thread checks the time after `looks_after`, or with the next delivery."""
        self.os_process.thaw()
        self._step_at(Instant(self.agenda.now + (0 if self.inbox else looks_after)))

    def deliver(self, delivery: Delivery) -> None:
        """Queue a delivery for the driver's thread, in the order of arrival."""
        self.inbox.append(delivery)
        if not self.stuck and len(self.inbox) == 1:
            self._step_at(self.agenda.now)

    # ---- the driver's thread

    def _step_at(self, when: Instant) -> None:
        if self._next_step is not None and self._next_step.call is not None and self._next_step.at == when:
            return
        self.agenda.cancel(self._next_step)
        self._next_step = self.agenda.at(when, lambda: None if self._host.asleep else self.enter(self._step))

    def _step(self) -> None:
        if self.stuck:
            self._try(self.driver.retry)
            return
        batch = self.inbox[:_BATCH]
        del self.inbox[:_BATCH]
        self._go(batch)

    def _go(self, batch: list[Delivery]) -> None:
        self.os_process.step()
        self._host.observer.deciding(self.now(), batch)
        self._try(lambda: self.driver.step(batch))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except KoalaError:
            self.stuck = True
            self._step_at(Instant(self.agenda.now + _RETRY))
        else:
            self.stuck = False
            self._plan()

    def _plan(self) -> None:
        wakeup = self.driver.next_wakeup()
        if self.inbox:
            self._step_at(self.agenda.now)
        elif wakeup is None:
            self.agenda.cancel(self._next_step)
            self._idle_steps = 0
        else:
            ahead = wakeup - self.now()
            self._idle_steps = self._idle_steps + 1 if ahead <= 0 else 0
            if self._idle_steps > _IDLE_STEPS:
                raise AssertionError(f"koalad is woken again and again for {wakeup}, and does nothing")
            self._step_at(Instant(self.agenda.now + max(ahead, MILLISECOND)))

    # ---- its store

    def commit(self, change: Change) -> None:
        self._host.may_commit()
        self._idle_steps = 0
        self.os_process.step()
        self._store.commit(change)
        self._host.observer.committed(change, self._store)
        self._host.committed(change)
        self.os_process.step()

    # ---- its links

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        self.os_process.step()
        command = entry.command
        self._host.observer.sent(entry, doubt)
        if isinstance(command, CollectOutput):
            if entry.number not in self.collecting:
                self.collecting[entry.number] = command
                self._collect(entry.number, command)
        elif isinstance(command, NotificationCommand):
            self._sender.send(entry.number, command, doubt)
        elif isinstance(command, NeighbourCommand):
            if self.sites is not None:
                self.sites.neighbours.send(entry.number, command)
        elif isinstance(command, ClusterCommand) and command.cluster in self.links:
            self.links[command.cluster].send(entry.number, command, doubt)

    def hint(self, hint: Hint) -> None:
        self.os_process.step()
        if isinstance(hint, CompareAds):
            self.after(between(self._matchmaker_rng, *_COMPARING), lambda: self.deliver(compared(hint)))
        elif isinstance(hint, GridHint):
            self._host.change_grid(hint)
        elif isinstance(hint, LeaseHint):
            self._host.examine(hint)
        elif hint.cluster in self.links:
            self.links[hint.cluster].hint(hint)

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        self.os_process.step()
        self._host.observer.acknowledged(cluster, epoch, number)
        if is_site(cluster):
            assert self.sites is not None
            self.sites.neighbours.acknowledge(site_of(cluster), epoch, number)
        elif cluster in self.links:
            self.links[cluster].acknowledge(epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        ended = {name: link.end_session(reason) for name, link in self.links.items()}
        found = {name: epoch for name, epoch in ended.items() if epoch is not None}
        return found if self.sites is None else found | self.sites.neighbours.end_sessions(reason)

    def _quarantine(self, cluster: str, reason: Reason, error: Exception) -> None:
        raise error

    def report(self, status: LinkStatus) -> None:
        self._host.observer.reported(status)

    def next_epoch(self) -> int:
        return next(self._epochs)

    def known(self, cluster: str) -> list[tuple[AttemptId, str]]:
        return known_attempts(self.engine.records, cluster)

    def doubtful(self) -> list[JobId]:
        return [job.id for job in doubtful(self.engine.records)]

    def vet(self, cluster: str, session: int, welcome: Welcome) -> Verdict:
        judgement = self._restore_check.judge(cluster, session, welcome)
        if (restored := judgement.restored) is not None:
            self.deliver(Delivery(events=(restored,), after=lambda step: self._restore_committed(restored)))
        return judgement.verdict

    def _restore_committed(self, restored: StoreRestored) -> None:
        self._restore_check.committed(restored)
        self._epochs = count(restored.epoch * CONNECTS + 1)

    # ---- its end

    def _died(self) -> None:
        """Close all links. Messages sent before may still arrive, unless they are lost with the host's connections."""
        self.agenda.cancel(self._next_step)
        self._store.close()
        for link in self.links.values():
            link.streams.lose()
        for connection in self.connections:
            connection.lose(self._host.lossy)
