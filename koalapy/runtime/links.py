"""The links to all clusters of a grid as one object, and with those to neighbouring sites, which the driver uses."""

import functools
import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from koalapy_adapters.connections.bootstrap import DEFAULT_DIRECTORY
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.connections.protocol import Connection
from koalapy_adapters.frames import MAX_CHUNK
from koalapy_adapters.layout import LEASE_SHARED, attempt_directory, lease_directory
from koalapy_adapters.messages.details import disk_used
from koalapy_adapters.messages.files import DiskUse
from koalapy_adapters.messages.kcm import Done, Welcome
from koalapy_adapters.messages.streams import OpenStream

from koalapy.coallocation.event_origin import is_elsewhere
from koalapy.coallocation.restored_store import doubtful
from koalapy.config import Leased, Pilot, cluster_config, lent_config
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.link.conversation import known_attempts, lost
from koalapy.link.reconnect import Cluster, Timing
from koalapy.link.restore_check import CONNECTS, RestoreCheck, Verdict
from koalapy.link.session import LinkStatus
from koalapy.model.attempt import Attempt, attempt_value
from koalapy.model.change import OutboxEntry
from koalapy.model.commands import (
    ClusterCommand,
    ClusterHint,
    CollectOutput,
    CompareAds,
    ForgetAttempt,
    GridHint,
    Hint,
    LeaseHint,
    NeighbourCommand,
    NotificationCommand,
)
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import StoreRestored
from koalapy.model.identity import AttemptId, InstanceId, JobId, is_site, site_of, tag_of
from koalapy.model.job import Job
from koalapy.model.lease import is_temporary, lease_of_cluster
from koalapy.model.pilot import is_bound, job_of_pilot
from koalapy.model.request import Isolate, PilotOptions
from koalapy.model.states import JobState, LeaseState
from koalapy.model.sweep import Sweep
from koalapy.model.work import Work
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.cluster_link.connect import connection_of
from koalapy.runtime.cluster_link.link import CLOSE_S, Link, LinkServices, Relay
from koalapy.runtime.cluster_link.pilot import LeaseConnection, Lent, PilotConnection, allocation_environment, examined
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.collecting.collector import Collector, Recorded
from koalapy.runtime.collecting.written import WrittenStore
from koalapy.runtime.current_grid import CurrentGrid, no_such_cluster
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.logins import Logins
from koalapy.runtime.matchmaking.helper import Matchmaker
from koalapy.runtime.rendezvous import RendezvousHub
from koalapy.runtime.session.exchange import understood
from koalapy.runtime.staging.input_files import InputFiles
from koalapy.runtime.streams import Stream

if TYPE_CHECKING:
    from koalapy.runtime.sites.links import SiteLinks


_LOG = structlog.get_logger()
_COUNTED_S = 60.0  # within which a KCM counts bytes; it ends its count after 40 s

OpenLease = Callable[[str, int], Stream]  # by lender and number of the lease


class Notifications(Protocol):
    """The sender of notifications."""

    def send(self, number: int, command: NotificationCommand, doubt: bool) -> None:
        """Begin to carry out a command; returns at once. `number`: its number in the outbox."""
        ...


class _WithDirectories(Mapping[str, Link]):
    """The links by which what attempts wrote is read: of a pilot that has ended, that to the cluster around it.

    Both have one shared directory. Where no link is left, or the pilot's record is pruned, there is none.
    """

    def __init__(self, links: Mapping[str, Link], recorded: Recorded | None) -> None:
        self._links, self._recorded = links, recorded

    def __getitem__(self, cluster: str) -> Link:
        pilot = None if cluster in self._links or self._recorded is None else job_of_pilot(cluster)
        job = self._recorded.job(pilot) if pilot is not None and self._recorded is not None else None
        return self._links[cluster if job is None else job.request.components[0].cluster or ""]

    def __iter__(self) -> Iterator[str]:
        return iter(self._links)

    def __len__(self) -> int:
        return len(self._links)


class ClusterLinks:
    """One link per cluster of the grid file. Nothing happens before `start`.

    Raises ClusterError of koalapy_adapters if the installed code cannot be packed for the clusters.
    """

    def __init__(
        self,
        grid: CurrentGrid,
        instance: InstanceId,
        epoch: int,
        clock: SystemClock,
        timing: Timing | None = None,
        last_number: int = 0,
        input_files: InputFiles | None = None,
        logins: Logins | None = None,
        recorded: Recorded | None = None,
        written: WrittenStore | None = None,
        notifications: Notifications | None = None,
        matchmaker: Matchmaker | None = None,
    ) -> None:
        """`epoch` and `last_number`: those of the store when it was opened.

        `logins` pass on the questions of connections. `recorded`, `written`: see Collector.
        `notifications` sends notifications; without it none is sent. `matchmaker` compares ads.
        """
        self._matchmaker = matchmaker or Matchmaker()
        self._recorded, self._written, self._notifications = recorded, written, notifications
        self._grid, self._instance, self._clock = grid, instance, clock
        self._timing = timing or Timing()
        self._epochs = itertools.count(epoch * CONNECTS + 1)
        self._restore_check, self._check_lock = RestoreCheck(epoch, last_number), threading.Lock()
        self._packed = packed()
        self._input_files = input_files or InputFiles()
        self._logins = logins or Logins((name, False) for name in grid.file.clusters)
        self._links: dict[str, Link] = {}
        self._with_directories = _WithDirectories(self._links, recorded)
        self._current: dict[str, object] = {}  # by cluster a mark of its present link
        self.open_lease: OpenLease | None = None  # set by who has links to other sites

    def start(
        self,
        loop: DriverThread,
        connected: Callable[[str], None] = lambda cluster: None,
        slept: Callable[[Reason], None] = lambda reason: None,
    ) -> None:
        """Connect in the background; events are delivered to the loop.

        `connected` is called for every cluster that begins to take commands, `slept` if the host has slept. Both return
        at once.
        """
        self._loop, self._connected, self._slept = loop, connected, slept
        self._hub = RendezvousHub(self._peers, self._put)
        self._links |= {name: self._link(name) for name in self._grid.file.clusters}
        transfers = self._input_files.transfers
        self._collector = Collector(
            self._instance, self._with_directories, loop.deliver, self._timing.retry_max, transfers, self._collects,
            self._recorded, self._written, self._has_pending_cancel,
        )  # fmt: skip
        self._hub.start()
        self._matchmaker.start(loop.deliver)
        for link in self._links.values():
            link.start()

    def join(self, cluster: str) -> None:
        """Connect to a cluster of the present grid in the background, once the engine has it."""
        link = self._links[cluster] = self._link(cluster)
        link.start()

    def leave(self, cluster: str) -> None:
        """End the connection to a cluster; jobs there continue. A login that hangs delays it by 20 s at most."""
        if (link := self._links.pop(cluster, None)) is not None:
            link.close()
            self._current.pop(cluster, None)

    def renew(self, cluster: str) -> None:
        """Connect to a cluster anew, by the present grid's values. Its session ends before the next one begins."""
        self.leave(cluster)
        reason = Reason("settings_changed", "transient", "Its settings have changed.", "koalad connects anew.")
        self._loop.deliver(lost(cluster, reason))
        self.join(cluster)

    def close(self) -> None:
        """End all connections; jobs continue. All logins that hang together delay it by 20 s at most."""
        links = list(self._links.values())
        for link in links:
            link.end()
        deadline = time.monotonic() + CLOSE_S
        for link in links:
            link.close(max(0.0, deadline - time.monotonic()))
        if links:
            self._collector.close()
            self._hub.close()
            self._matchmaker.close()

    # ---- for the driver; no call blocks

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        command = entry.command
        if isinstance(command, CollectOutput):
            self._collector.collect(entry.number, command)
        elif isinstance(command, NotificationCommand):
            if self._notifications is not None:
                self._notifications.send(entry.number, command, doubt)
        elif isinstance(command, ClusterCommand) and (link := self._links.get(command.cluster)) is not None:
            if isinstance(command, ForgetAttempt):
                self._hub.forget(command.attempt)
            link.send(entry.number, command, doubt)

    def hint(self, hint: ClusterHint | CompareAds) -> None:
        if isinstance(hint, CompareAds):
            self._matchmaker.compare_soon(hint)
        elif (link := self._links.get(hint.cluster)) is not None:
            link.hint(hint)

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        if (link := self._links.get(cluster)) is not None:
            link.acknowledge(epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        """End every session at once, to begin new ones. Returns the epochs of the ended sessions, by cluster."""
        _LOG.warning(reason.code, reason=reason.message)
        self._slept(reason)
        ended = {name: link.end_session(reason) for name, link in list(self._links.items())}
        return {name: epoch for name, epoch in ended.items() if epoch is not None}

    def quarantine(self, cluster: str, reason: Reason, error: Exception) -> None:
        """End the session with a cluster whose events made koalad fail. The link connects again after a while."""
        _LOG.error("cluster_quarantined", cluster=cluster, reason=str(reason), exc_info=error)
        if (link := self._links.get(cluster)) is not None:
            link.end_session(reason)

    # ---- for the API's threads

    @property
    def names(self) -> Collection[str]:
        """The names of the clusters that have a link; the collection changes with them."""
        return self._links.keys()

    def read(
        self, cluster: str, attempt: AttemptId, stream: str, positions: Mapping[int, int], follow: bool
    ) -> Iterator[bytes]:
        """Yield output of an attempt; see Link.read. Raises KoalaError."""
        return _named(self._with_directories, cluster).read(attempt, stream, positions, follow)

    def read_slot(self, cluster: str, attempt: AttemptId, path: str, offset: int, size: int) -> Iterator[bytes]:
        """Yield `size` bytes at most of a Launcher's slot output, from `offset`. Raises KoalaError."""
        for piece in _named(self._with_directories, cluster).fetch(attempt, "slot", path, offset, size=size):
            yield piece[:size]
            size -= len(piece)
            if size <= 0:
                return

    def open_stream(self, cluster: str, attempt: AttemptId, rank: int, port: int) -> Stream:
        """Open a byte stream to an attempt; see Link.open_stream. Raises KoalaError."""
        return _named(self._links, cluster).open_stream(attempt, rank, port)

    def open_terminal(self, cluster: str, attempt: AttemptId) -> Stream:
        """Attach to the terminal of an attempt; see Link.open_terminal. Raises KoalaError."""
        return _named(self._links, cluster).open_terminal(attempt)

    def is_slow(self, cluster: str) -> bool:
        """Return whether bytes of streams travel in files there. Raises KoalaError."""
        return bool(_named(self._links, cluster).cluster.config.get("relay") == "files")

    def end_streams(self, job: Job) -> None:
        """Reset the streams of this job's attempts that have ended. Returns at once."""
        for link in list(self._links.values()):
            link.streams.committed(job)

    def fetch(self, command: CollectOutput, timeout_s: float) -> Collected | None:
        """Collect files for a person; see Collector.fetch. Raises KoalaError."""
        return self._collector.fetch(command, timeout_s)

    def ask(self, cluster: str, request: Callable[[int], Any], timeout_s: float) -> Done:
        """Return the KCM's answer to a request; see Link.ask. Raises KoalaError or TimeoutError."""
        return _named(self._links, cluster).ask(request, timeout_s)

    def status(self) -> list[LinkStatus]:
        """Return the state of each link, in the order of the grid file."""
        return [link.status() for link in list(self._links.values())]

    # ---- callbacks of links and hub

    def _link(self, name: str) -> Link:
        grid, login = self._grid.file, self._logins.of(name)
        mark = self._current[name] = object()
        services = LinkServices(
            now=self._clock.now,
            deliver=functools.partial(self._deliver, name, mark),
            next_epoch=lambda: next(self._epochs),
            known=functools.partial(self._known, name),
            doubtful=self._doubtful,
            check=functools.partial(self._check, name),
            put=functools.partial(self._hub.put, name),
            input_files=self._input_files,
            connected=functools.partial(self._welcomed, name),
            stream_timeout=grid.stream_timeout,
            report=lambda status, number: login.record_outcome(status.state, status.reason, number),
        )
        settings = grid.clusters[name]
        named = settings.connection
        connection: Connection
        if isinstance(named, Pilot):
            advice = f"`koala show {named.job}` has the history of its job; `koala pilots close {name}` ends it."
            connection = PilotConnection(name, functools.partial(self._run_in_pilot, JobId(named.job)), advice)
        elif isinstance(named, Leased):
            connection = LeaseConnection(name, functools.partial(self._open_kcm, named.lender, named.number))
        else:
            connection = connection_of(settings, login)
        config = cluster_config(grid, name)
        if "python" not in settings.model_fields_set:
            config["python"] = connection.python
        cluster = Cluster(name=name, instance=self._instance, config=config, timing=self._timing)
        link = Link(cluster, connection, self._packed, services)
        login.serve(link.retry)
        return link

    def retry_leases(self) -> None:
        """Try to reach the leases at once, since a neighbouring site is connected."""
        for name, link in list(self._links.items()):
            if lease_of_cluster(name) is not None:
                link.retry()

    def _run_in_pilot(self, pilot: JobId, command: str) -> Stream:
        """Start a shell command on the first node of a pilot. Raises KoalaError."""
        found = self._loop.ask(lambda engine: _held_by(engine, pilot))
        if found is None:
            raise TransientError(
                "not_bound", f"The pilot's job {pilot} does not run.", "`koala pilots` shows its state."
            )
        attempt, options = found
        prefix = allocation_environment(attempt, options, self._clock.now())
        return _named(self._links, attempt.cluster).open_command(attempt.id, prefix + command)

    def _open_kcm(self, lender: str, number: int) -> Stream:
        """Open a stream to the KCM that the lender starts on a lease. Raises KoalaError."""
        if self.open_lease is None:
            raise TransientError("no_site", "This grid is no site any more, so that leases cannot be reached.", "")
        return self.open_lease(lender, number)

    def relay_lease(
        self, neighbour: str, number: int, opening: OpenStream, back: Callable[[Any], None]
    ) -> Relay | None:
        """Return the way of a borrower's stream to a KCM on the first node of the pilot that holds its lease.

        The command that starts the KCM is this lender's own, whatever the borrower has sent. None: the number of the
        stream is used already. Raises KoalaError.
        """
        attempt, surrounding, lent = self._lent(neighbour, number, LeaseState.BOUND)
        own = opening._replace(command=surrounding + lent.kcm(), terminal=False)
        return _named(self._links, attempt.cluster).relay(attempt.id, own, back)

    def examine_lease(self, neighbour: str, number: int) -> Reason | None:
        """Return why the nodes of a lease that is being bound cannot be lent; None if they can. Blocks.

        It starts the queue of the lease there. Raises KoalaError, or BatchError if they do not answer.
        """
        attempt, surrounding, lent = self._lent(neighbour, number, LeaseState.BINDING)
        link = _named(self._links, attempt.cluster)
        opened = PilotConnection("The lease", functools.partial(link.open_command, attempt.id))
        errors: list[str] = []
        channel = opened.open(surrounding + lent.examination(), errors.append)
        try:
            printed = b"".join(iter(lambda: channel.read(MAX_CHUNK), b""))
        finally:
            channel.close()
        return examined(printed, errors)

    def lease_bytes(self, neighbour: str, number: int) -> int:
        """Return the bytes that a lent lease has on its cluster's disk, or more than so many. Blocks.

        Raises KoalaError if the cluster does not answer, TimeoutError if it does not answer in time.
        """
        attempt, _, _ = self._lent(neighbour, number, LeaseState.BOUND)
        tag = tag_of(self._instance, attempt.id)
        answer = self.ask(attempt.cluster, lambda request: DiskUse(request, tag), _COUNTED_S)
        return understood(disk_used, answer.details).bytes

    def _lent(self, neighbour: str, number: int, state: LeaseState) -> tuple[Attempt, str, Lent]:
        """Return what holds a lease that is in this state, the prefix of commands there, and its place.

        Raises TransientError if it is not, or does not run.
        """
        job = self._loop.ask(lambda engine: _pilot_of(engine, neighbour, number, state))
        if job is None or job.request.pilot is None or not is_bound(job):
            raise TransientError("not_bound", "The lease is not bound.", "")
        (attempt,) = job.present
        terms, file = job.request.pilot, self._grid.file
        if attempt.cluster not in file.clusters:
            raise no_such_cluster(attempt.cluster, file.clusters)
        shared = file.clusters[attempt.cluster].shared or DEFAULT_DIRECTORY
        lent = Lent(
            home=lease_directory(attempt_directory(shared, self._instance, tag_of(self._instance, attempt.id))),
            pushed=f"{shared}/bin/{self._packed.digest}.pyz",
            hides=terms.isolate is not Isolate.NONE,
            config=lent_config(file, attempt.cluster, job.id, terms) | {"shared": LEASE_SHARED},
        )
        return attempt, allocation_environment(attempt, terms, self._clock.now()), lent

    def _deliver(self, cluster: str, mark: object, delivery: Delivery) -> None:
        """Pass on a delivery of the cluster's present link; an abandoned login of an earlier one may still report."""
        if self._current.get(cluster) is mark:
            self._loop.deliver(delivery)

    def _welcomed(self, cluster: str) -> None:
        self._hub.connected(cluster)
        self._connected(cluster)
        for name, link in list(self._links.items()):
            if is_temporary(name):
                link.retry()  # the cluster may be the one that its job runs on

    def _check(self, cluster: str, session: int, welcome: Welcome) -> Verdict:
        with self._check_lock:
            judgement = self._restore_check.judge(cluster, session, welcome)
        if (restored := judgement.restored) is not None:
            _LOG.warning("store_restored", cluster=cluster, epoch=restored.epoch, last_number=restored.last_number)
            self._loop.deliver(Delivery(events=(restored,), after=lambda step: self._restore_committed(restored)))
        return judgement.verdict

    def _restore_committed(self, restored: StoreRestored) -> None:
        with self._check_lock:
            self._restore_check.committed(restored)
            self._epochs = itertools.count(restored.epoch * CONNECTS + 1)

    def _doubtful(self) -> list[JobId]:
        return self._loop.ask(lambda engine: [job.id for job in doubtful(engine.records)])

    def _known(self, cluster: str) -> list[tuple[AttemptId, str]]:
        return self._loop.ask(lambda engine: known_attempts(engine.records, cluster))

    def _collects(self, job: JobId) -> bool:
        return self._loop.ask(lambda engine: _collects(engine.records.work(job)))

    def _has_pending_cancel(self, job: JobId) -> bool:
        return self._loop.ask(lambda engine: any(attempt.job == job for attempt in engine.records.pending_cancels))

    def _peers(self, attempt: AttemptId, cluster: str | None) -> list[tuple[str, AttemptId]]:
        return self._loop.ask(lambda engine: _peers(engine, attempt, cluster))

    def _put(self, cluster: str, attempt: AttemptId, key: str, value: str) -> None:
        if (link := self._links.get(cluster)) is not None:
            link.put(attempt, key, value)


def _collects(found: Work | None) -> bool:
    return isinstance(found, Job | Sweep) and found.collecting and found.state is JobState.RUNNING


def _named(links: Mapping[str, Link], cluster: str) -> Link:
    link = links.get(cluster)
    if link is None:
        raise no_such_cluster(cluster, links)
    return link


def _held_by(engine: Engine, pilot: JobId) -> tuple[Attempt, PilotOptions] | None:
    """Return the attempt with the processors of a pilot, and its options; None while no command can be run there."""
    record, job = engine.core.pilots.records.get(pilot), engine.job(pilot)
    if record is not None and record.fills is not None:
        found = engine.core.records.attempt(record.fills)
        return (attempt_value(found), record.options) if found is not None and found.state.at_barrier else None
    if job is None or job.request.pilot is None or not is_bound(job):
        return None
    (attempt,) = job.present
    return attempt, job.request.pilot


def _pilot_of(engine: Engine, neighbour: str, number: int, state: LeaseState) -> Job | None:
    """Return the job that holds a lease of a neighbour, if the lease is in this state."""
    lease = engine.core.leases.lent.get((neighbour, number))
    if lease is None or lease.job is None or lease.state is not state:
        return None
    return engine.job(lease.job)


def _peers(engine: Engine, attempt: AttemptId, cluster: str | None) -> list[tuple[str, AttemptId]]:
    """Return the other components of the same try of the job, as (cluster, attempt).

    There are none if the attempt is not the job's present one, or belongs to another cluster.
    """
    if cluster is not None and is_elsewhere(engine.records, cluster, attempt):
        engine.core.foreign.note(cluster, f"a key of attempt {attempt}")
        return []
    found = engine.records.attempt(attempt)
    if found is None or found.launcher is not None:
        return []
    present = engine.records.jobs[attempt.job].present
    return [(each.cluster, each.id) for each in present if each.id != attempt]


class AllLinks:
    """Passes each call to the links of its destination. See Links of the driver."""

    def __init__(
        self,
        clusters: ClusterLinks,
        sites: "SiteLinks | None",
        change_grid: Callable[[GridHint], None],
        examine: Callable[[LeaseHint], None],
    ) -> None:
        """`change_grid`, `examine`: see GridChanges.carry_out and Leases.carry_out."""
        self._clusters, self._sites, self._change_grid, self._examine = clusters, sites, change_grid, examine

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        if not isinstance(entry.command, NeighbourCommand):
            self._clusters.send(entry, doubt)
        elif self._sites is not None:
            self._sites.neighbours.send(entry.number, entry.command)

    def hint(self, hint: Hint) -> None:
        if isinstance(hint, GridHint):
            self._change_grid(hint)
        elif isinstance(hint, LeaseHint):
            self._examine(hint)
        else:
            self._clusters.hint(hint)

    def acknowledge(self, origin: str, epoch: int, number: int) -> None:
        if not is_site(origin):
            self._clusters.acknowledge(origin, epoch, number)
        elif self._sites is not None:
            self._sites.neighbours.acknowledge(site_of(origin), epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        of_sites = {} if self._sites is None else self._sites.neighbours.end_sessions(reason)
        return {**self._clusters.end_sessions(reason), **of_sites}

    def quarantine(self, origin: str, reason: Reason, error: Exception) -> None:
        """End the session with a cluster or neighbour whose events made koalad fail. It begins anew after a while."""
        if not is_site(origin):
            self._clusters.quarantine(origin, reason, error)
        elif self._sites is not None:
            self._sites.quarantine(site_of(origin), reason, error)
