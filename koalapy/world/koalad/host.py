"""The host of a simulated koalad: its disk, clock, user and sleep; koalad is killed and started again on it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from koalapy.driver.driver import Delivery, NoRecorder, Recorder
from koalapy.engine import Engine
from koalapy.link.reconnect import Cluster, Timing
from koalapy.link.session import LinkStatus
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.commands import CollectOutput, GridHint, LeaseHint
from koalapy.model.errors import Reason
from koalapy.model.events import Event, OutputCollected, WorkSubmitted
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.job import Job
from koalapy.model.lease import LeasedCluster, lease_of_cluster
from koalapy.model.notification import NotificationId
from koalapy.model.pilot import Pilot, pilots_at_start
from koalapy.model.records import Step
from koalapy.model.request import Request
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scheduler.schedule import Policies
from koalapy.sites.joining import leases_at_start
from koalapy.store.contract import Store, StoreError, StoreFull
from koalapy.world.agenda import Agenda
from koalapy.world.koalad.cluster_link import Outside, SimClusterLink
from koalapy.world.koalad.file_operations import Collecting
from koalapy.world.koalad.grid_changes import SimGrid
from koalapy.world.koalad.koalad_process import KoaladObserver, KoaladProcess
from koalapy.world.koalad.notifications import Recipients
from koalapy.world.koalad.site_link import Neighbourhood
from koalapy.world.processes import CrashPoint
from koalapy.world.random_streams import between, stream
from koalapy.world.streams import StreamLog

OWNER = "me"
SLOW_PINGS = Timing(ping=10.0, silence=30.0)  # a quarter of the messages would be pings otherwise
_LOOKS = (Duration(50 * MILLISECOND), Duration(5 * SECOND))  # after it woke up, until koalad looks at the time
_FULL = ("store_full", "The disk is full.", "Make room.")
_FAILS = ("store_failed", "The disk does not answer.", "Look at the disk.")


def pilot_settings(pilot: Pilot) -> ClusterSettings:
    """Return the settings of the cluster that a pilot is, as `koalapy.config.inside` gives them."""
    if pilot.fills is not None:
        return ClusterSettings(name=pilot.name, batch="local", only_named=True, sweeps_only=True)
    shared = pilot.options.shared
    return ClusterSettings(name=pilot.name, batch="local", only_named=not shared, scavenge=Scavenge(off=not shared))


def lease_settings(lease: LeasedCluster) -> ClusterSettings:
    """Return the settings of the cluster that a lease is, as `koalapy.config.pilots` gives them."""
    return ClusterSettings(
        name=lease.name,
        batch="local",
        network=lease.network,
        scavenge=Scavenge(off=not lease.sweeps),
        isolation=lease.isolation,
    )


class NoKoaladObserver:
    """An observer that ignores every call."""

    def started(self, snapshot: Snapshot, engine: Engine) -> None: ...

    def engine_replaced(self, engine: Engine) -> None: ...

    def linked(self, cluster: str) -> None: ...

    def deciding(self, now: Instant, deliveries: Sequence[Delivery]) -> None: ...

    def handling(self, now: Instant, events: Sequence[Event]) -> None: ...

    def committed(self, change: Change, store: Store) -> None: ...

    def sent(self, entry: OutboxEntry, doubt: bool) -> None: ...

    def reported(self, status: LinkStatus) -> None: ...

    def retry_requested(self, cluster: str) -> None: ...

    def acknowledged(self, cluster: str, epoch: int, number: int) -> None: ...

    def collected(self, command: CollectOutput, path: str, source: tuple[str, AttemptId], content: str) -> None: ...

    def missing(self, command: CollectOutput, path: str) -> None: ...

    def notified(self, notification: NotificationId) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The part of koalad that outlives its process. `open_store` opens the same store again."""

    settings: Settings
    policies: Policies
    open_store: Callable[[], Store]
    timing: Timing = field(default_factory=lambda: SLOW_PINGS)
    sweep_policies: ScavengingPolicies = field(default_factory=ScavengingPolicies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The surroundings of a koalad that is a site: its neighbours, and the way to the cluster of a lease.

    `examine` begins to carry out a hint on a lease, and returns at once.
    """

    neighbourhood: Neighbourhood
    way: Callable[[str], Outside]
    examine: Callable[[LeaseHint], None]


class SimKoalad:
    """`start` it; it may be killed, by `kill` or when `crash_point` has burnt down, and started again.

    The fuse's steps are: a batch is taken, a commit begins, a commit is done, a command or an acknowledgement leaves.
    `accepted`: the jobs whose number the user has received, also from earlier processes of koalad.
    """

    def __init__(self, agenda: Agenda, seed: int, installation: Installation, clusters: Mapping[str, Outside]) -> None:
        self.agenda = agenda
        self.crash_point = CrashPoint()
        self.observer: KoaladObserver = NoKoaladObserver()
        self.recorder: Recorder = NoRecorder()
        self.disk_full = False
        self.commits_to_fail = 0
        self.lossy = False
        self.accepted: list[JobId] = []
        self.pilots: dict[JobId, Job] = {}  # the jobs of all pilots so far
        self.build_filler: Callable[[Pilot], None] = lambda pilot: None  # builds the inside of a filler
        self.starts = 0
        self.process: KoaladProcess | None = None
        self.site: Site | None = None
        self._seed, self._installed, self._clusters = seed, installation, clusters
        self._rng = stream(seed, "koalad")
        self.recipients = Recipients(agenda, stream(seed, "recipients"))
        self._clock_ahead = self._ahead = Duration(0)
        self._slept = Duration(0)
        self._asleep_since: Instant | None = None
        self._to_start = False  # at the end of its sleep
        self.store = installation.open_store()
        self.grid = SimGrid(self, installation.settings)

    # ---- processes

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.os_process.alive

    @property
    def engine(self) -> Engine | None:
        """The engine of the running koalad."""
        return self.process.engine if self.process is not None and self.alive else None

    def start(self) -> None:
        """Start koalad unless it runs. A sleeping host starts it when it wakes up."""
        if self.alive:
            return
        if self.asleep:
            self._to_start = True
            return
        if self.process is not None:
            self.store = self._installed.open_store()
        self.starts += 1
        self._ahead = self._clock_ahead
        snapshot = self.store.load()
        self.grid.read_files([*self._pilots_of(snapshot), *self._leases_of(snapshot)])
        engine = self._engine_of(snapshot)
        process = self.process = KoaladProcess(
            self, self.store, engine, snapshot, self._renewed, None if self.site is None else self.site.neighbourhood
        )
        self.observer.started(snapshot, engine)
        process.start({each.name: self.link(each.name) for each in engine.settings.clusters}, self._collect)

    def _pilots_of(self, snapshot: Snapshot) -> list[ClusterSettings]:
        """Return the pilots that a former koalad left."""
        return [pilot_settings(each) for each in pilots_at_start(snapshot.pilots) if each.name in self._clusters]

    def _leases_of(self, snapshot: Snapshot) -> list[ClusterSettings]:
        """Return the leases that a former koalad left, and those on which attempts are known."""
        held = leases_at_start(snapshot.leases, _known_attempts(snapshot), self.grid.settings.borrow)
        return [lease_settings(each) for each in held]

    def _renewed(self) -> Engine:
        return self._engine_of(self.store.load())

    def _engine_of(self, snapshot: Snapshot) -> Engine:
        installed = self._installed
        return Engine(self.grid.settings, installed.policies, snapshot, installed.sweep_policies)

    def kill(self) -> None:
        """Kill koalad by SIGKILL. Its store keeps the last commit."""
        if self.process is not None:
            self.process.os_process.kill()

    def now(self) -> Instant:
        """koalad's clock: the system's clock at its start plus the time since, sleep included."""
        return Instant(self.agenda.now + self._ahead)

    def jump(self, ahead: Duration) -> None:
        """Set the system's clock this far ahead of the world's. It takes effect at koalad's next start."""
        self._clock_ahead = ahead

    # ---- sleep

    @property
    def asleep(self) -> bool:
        return self._asleep_since is not None

    @property
    def slept(self) -> Duration:
        """The total time that the host has slept until now."""
        since = self._asleep_since
        return Duration(self._slept + (0 if since is None else self.agenda.now - since))

    def sleep(self, duration: Duration) -> None:
        """Let the host sleep for a while. Nothing happens if it sleeps already."""
        if self.asleep:
            return
        self._asleep_since = self.agenda.now
        if self.process is not None:
            self.process.fall_asleep()
        self.agenda.after(duration, self.wake)

    def wake(self) -> None:
        """Wake the host. Nothing happens if it is awake."""
        if not self.asleep:
            return
        self._slept, self._asleep_since = self.slept, None
        if self.process is not None:
            self.process.wake(between(self._rng, *_LOOKS))
        if self._to_start:
            self._to_start = False
            self.start()

    # ---- disk

    def may_commit(self) -> None:
        """Check that the disk takes a commit. Raises StoreFull or StoreError."""
        if self.disk_full:
            raise StoreFull(*_FULL)
        if self.commits_to_fail > 0:
            self.commits_to_fail -= 1
            raise StoreError(*_FAILS)

    def committed(self, change: Change) -> None:
        """Note a commit of koalad."""
        self.pilots |= {job.id: job for job in change.jobs if job.request.pilot is not None}

    def change_grid(self, hint: GridHint) -> None:
        """Begin to carry out a hint; returns at once."""
        self.grid.carry_out(hint)

    def examine(self, hint: LeaseHint) -> None:
        """Begin to carry out a hint on a lease; returns at once."""
        if self.site is not None:
            self.site.examine(hint)

    def temporary_settings(self, held: Pilot | LeasedCluster) -> ClusterSettings | None:
        """Return the settings of the cluster of a pilot or lease; None before the processors of a pilot are there."""
        if isinstance(held, LeasedCluster):
            return lease_settings(held)
        if held.fills is not None:
            self.build_filler(held)
        return pilot_settings(held) if held.name in self._clusters else None

    # ---- user

    def submit(self, request: Request, key: str = "") -> bool:
        """Submit a job. Returns False if it was refused at once. Its number is added to `accepted` later, or never."""
        if not self.takes_requests:
            return False
        known = self.store.id_of_key(OWNER, key) if key else None
        if known is not None:
            self._accept(known)
            return True
        return self.request(WorkSubmitted(request=request, owner=OWNER, key=key), after=self._made(request, key))

    def request(self, *events: Event, after: Callable[[Step], None] | None = None) -> bool:
        """Hand a user's request to koalad. Returns False if koalad does not take it."""
        if self.process is None or not self.takes_requests:
            return False
        self.process.deliver(Delivery(events=events, after=after))
        return True

    @property
    def takes_requests(self) -> bool:
        """Return whether koalad runs, is awake, and can record something new."""
        return self.process is not None and self.alive and not self.process.stuck and not self.asleep

    def _made(self, request: Request, key: str) -> Callable[[Step], None]:
        def after(step: Step) -> None:
            made = [each.id for each in step.work if each.request is request]
            found = made[0] if made else self.store.id_of_key(OWNER, key)
            if found is not None:
                self._accept(found)

        return after

    def _accept(self, job: JobId) -> None:
        if job not in self.accepted:
            self.accepted.append(job)

    # ---- links

    @property
    def timing(self) -> Timing:
        """The timing of koalad's links."""
        return self._installed.timing

    def log_in(self, cluster: str) -> None:
        """Let a person ask for another try to connect. Nothing happens if koalad cannot be asked."""
        process = self.process
        if process is not None and self.alive and not self.asleep and cluster in process.links:
            self.observer.retry_requested(cluster)
            process.enter(process.links[cluster].retry)

    def open_stream(self, log: StreamLog, rng: Random) -> None:
        """Let a user connect to a process of a running attempt. Nothing happens if there is none."""
        process, engine = self.process, self.engine
        if process is None or engine is None or self.asleep:
            return
        found = [
            (each, job)
            for job in engine.records.jobs.values()
            for each in job.attempts
            if each is not None and each.state is AttemptState.RUNNING and each.cluster in process.links
        ]
        if found:
            each, job = rng.choice(found)
            asked = job.request.components[each.id.component]
            tag, rank = tag_of(self.store.instance, each.id), rng.randrange(asked.processors + 1)
            streams = process.links[each.cluster].streams
            process.enter(lambda: streams.open(log, tag, rank, rng))

    def link(self, name: str) -> SimClusterLink:
        """Return a new link of the present process to a cluster."""
        process = self.process
        assert process is not None
        outside = self._clusters[name] if self.site is None or not lease_of_cluster(name) else self.site.way(name)
        instance = self.store.instance
        cluster = Cluster(
            name=name, instance=instance, config=dict(outside.config()), grace=self._installed.settings.grace,
            timing=self._installed.timing,
        )  # fmt: skip
        return SimClusterLink(cluster, outside, process, stream(self._seed, f"link {name} {self.starts}"))

    # ---- the output of jobs

    def _collect(self, number: int, command: CollectOutput) -> None:
        process = self.process
        assert process is not None

        def done(reason: Reason | None) -> None:
            del process.collecting[number]
            event = OutputCollected(job=command.job, reason=reason)
            process.deliver(Delivery(events=(event,), confirmed=(number,)))

        Collecting(self.store.instance, command, process.links, self.observer, process.after, self._rng, done).start()

    # ---- rest

    @property
    def quiescent(self) -> bool:
        """Return whether koalad runs, and has nothing to do or to wait for."""
        process = self.process
        if process is None or not self.alive or self.asleep or process.stuck or process.inbox or process.collecting:
            return False
        records = process.engine.records
        return not records.all_work() and not records.pending_cancels and not self.store.load().outbox


def _known_attempts(snapshot: Snapshot) -> tuple[Attempt, ...]:
    """Return all attempts of a store that are not cleaned up."""
    present = [each for job in snapshot.jobs for each in job.all_attempts if not each.cleaned_up]
    return (*present, *snapshot.launchers, *snapshot.pending_cancels)
