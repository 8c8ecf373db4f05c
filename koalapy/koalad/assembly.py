"""koalad without its API: the store, engine, driver and links of one grid, connected to each other."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from koalapy.answers.koalad import RecoveryLine
from koalapy.api.jobs import Reader
from koalapy.common.extras import need_extra
from koalapy.common.locations import JOURNALS, certificate_of
from koalapy.common.registry import registered
from koalapy.config import (
    GridFile,
    borrow_of,
    engine_settings,
    pilot_rules,
    read_cluster,
    with_clusters,
    with_isolation,
    with_temporary,
)
from koalapy.config.difference import PLACE
from koalapy.core.foreign import Foreign
from koalapy.core.remaining import Remaining
from koalapy.driver.driver import Driver
from koalapy.engine import Engine
from koalapy.journal.journal import Journal
from koalapy.koalad.maintenance import maintenance_of
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, Snapshot
from koalapy.model.errors import OurError, RequestError
from koalapy.model.identity import JobId
from koalapy.model.job import Counters
from koalapy.model.lease import is_temporary
from koalapy.model.pilot import pilots_at_start
from koalapy.model.request import Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.textfile.notify import notify_of
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.runtime import current_grid
from koalapy.runtime.accounting import Accounting
from koalapy.runtime.clock import SystemClock, offsets
from koalapy.runtime.cluster_link.connect import may_ask
from koalapy.runtime.collecting.written import WrittenStore
from koalapy.runtime.current_grid import CommandClusters, CurrentGrid
from koalapy.runtime.disk import DiskUse
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.grid_changes import GridChanges, GridParts
from koalapy.runtime.journals import Journals
from koalapy.runtime.leases import Leases
from koalapy.runtime.links import AllLinks, ClusterLinks
from koalapy.runtime.load_policies import frees_when_suspended, policies, scavenging_policies
from koalapy.runtime.logins import Logins
from koalapy.runtime.matchmaking.helper import Matchmaker
from koalapy.runtime.notifications.content import Content
from koalapy.runtime.notifications.sender import NotificationSender
from koalapy.runtime.pilots import Pilots
from koalapy.runtime.sdnotify import Notifier
from koalapy.runtime.service import JobFiles, JobStreams, Service
from koalapy.runtime.staging.input_files import InputFiles
from koalapy.runtime.sweeps import Sweeps
from koalapy.runtime.unknown import UnknownTags, jobs_and_launchers
from koalapy.scheduler.schedule import Policies
from koalapy.sites.joining import leases_at_start
from koalapy.store.contract import Store
from koalapy.store.open import is_shared, open_store
from koalapy.views.recovery import Recovery

if TYPE_CHECKING:
    from koalapy.runtime.sites.changes import SiteChanges

FOREIGN_EVERY = Duration(60 * SECOND)  # between lines of the log about one cluster

_LOG = structlog.get_logger()
_JOURNAL_S = 10.0  # to finish the journals that are being written when koalad ends


class Koalad:
    """The koalad of one grid. `start` returns at once; clusters connect later, each at its own pace.

    Raises KoalaError if the store cannot be opened or a policy is unknown; then nothing was started.
    """

    def __init__(
        self,
        grid: CurrentGrid,
        state_directory: Path,
        read: Reader,
        owner: str,
        read_grid: Callable[[], GridFile],
        taken_over: Callable[[], None] = lambda: None,
        notifier: Notifier | None = None,
    ) -> None:
        """Open the store and connect the parts.

        `taken_over` is called when another koalad has taken the store: this one can only end.
        `read` reads the job files that maintenance submits for `owner`. `read_grid` reads the grid file again.
        """
        self._grid, self._owner = grid, owner
        self._clock = SystemClock()
        shared = is_shared(grid.file.store)
        commanded = CommandClusters() if shared else _with_commanded(grid, state_directory)
        self._settings = self._settings_of(grid.file, commanded.draining)
        self._policies = _loaded(self._settings)
        self._store = open_store(grid.file.store, state_directory)
        snapshot = self._store.load()
        if not shared:
            if (refusal := _other_batch_system(grid.file, commanded.places, snapshot)) is not None:
                self._store.close()
                raise refusal
            commanded = replace(commanded, places=commanded.places | current_grid.places_of(grid.file))
            _save_commanded(state_directory, commanded)
        leases = leases_at_start(snapshot.leases, _known_attempts(snapshot), borrow_of(grid.file.site))
        grid.file = with_temporary(grid.file, [*pilots_at_start(snapshot.pilots), *leases])
        draining = tuple(name for name in commanded.draining if name in grid.file.clusters)
        commanded = replace(commanded, draining=draining)
        self._settings = self._settings_of(grid.file, commanded.draining)
        self._journals = Journals(state_directory / JOURNALS)
        self._journal = Journal(*self._policies, failed=self._journals.write_soon)
        self._foreign = ForeignReportLog()
        for each in self._store.unreadable():
            _LOG.error("record_unreadable", record=each.name, job=each.job, why=each.why)
        input_files = InputFiles(state_directory / "staged")
        logins = Logins((name, may_ask(cluster)) for name, cluster in grid.file.clusters.items())
        self._written = WrittenStore(state_directory / "output", grid.file.disk.output)
        self._pruned = _pruned(self._written.jobs(), self._store, snapshot.counters)
        self._notifications = NotificationSender(
            Content(grid.file.grid, snapshot.instance),
            lambda delivery: self._loop.deliver(delivery),
            lambda job: self._store.work(job) is not None,
            self._clock.now,
        )
        self._matchmaker = Matchmaker()
        self._links = ClusterLinks(
            grid,
            snapshot.instance,
            self._store.epoch,
            self._clock,
            last_number=self._store.next_number - 1,
            input_files=input_files,
            logins=logins,
            recorded=self._store,
            written=self._written,
            notifications=self._notifications,
            matchmaker=self._matchmaker,
        )
        self.sites = self._make_sites(state_directory, snapshot, shared)
        self._driver = self._make_driver(snapshot)
        self._loop = DriverThread(self._driver, self._clock, self._store.check, taken_over, notifier)
        self._accounting = Accounting(
            snapshot.instance, self._store.usage, self._links.ask, self._loop.deliver, self._clock.now
        )
        self.service = self._make_service(state_directory, snapshot, input_files, logins)
        self.maintenance = maintenance_of(grid, self._store, self._loop, self._clock, self.service, read, owner)
        parts = GridParts(
            loop=self._loop, links=self._links, logins=logins, read=read_grid,
            settings=self._settings_of, check=self._check, adopt=self._adopt, state_directory=state_directory,
            shared_store=shared,
        )  # fmt: skip
        self.grid_changes = GridChanges(grid, commanded, parts)
        examine = self._links.examine_lease
        self.leases = Leases(self.service, self._loop, examine, self._links.lease_bytes, snapshot.leases)
        if self.sites is not None:
            self._links.open_lease = self.sites.links.open_lease
            self.sites.links.relay = self._links.relay_lease
            self.sites.links.connected = self._links.retry_leases
        self.pilots = Pilots(
            self.service,
            self.grid_changes,
            self._loop,
            self._clock,
            owner,
            lambda terms, cluster: with_isolation(grid.file, terms, cluster),
        )

    def _make_sites(self, state_directory: Path, snapshot: Snapshot, shared: bool) -> "SiteChanges | None":
        """Return the links to neighbouring sites; None for a grid that is no site. Raises KoalaError."""
        site = self._grid.file.site
        if site is None:
            return None
        need_extra("sites", "A site")
        if shared:
            message = "A site's key and neighbours are in one host's state directory, and this grid's store is shared."
            raise RequestError("shared_store", message, "Give the site a grid of its own, with `store: sqlite`.")
        from koalapy.runtime.sites.changes import SiteChanges
        from koalapy.runtime.sites.links import OwnSite, SiteLinks

        own = OwnSite(
            name=site.name, instance=snapshot.instance, certificate=certificate_of(site.certificate, state_directory),
            listens_on=site.listens_on,
        )  # fmt: skip
        last_number = self._store.next_number - 1
        links = SiteLinks(own, self._store.epoch, last_number, self._clock, snapshot.neighbours)
        return SiteChanges(site, links, state_directory)

    def _settings_of(self, grid: GridFile, draining: Collection[str]) -> Settings:
        """Return the engine's settings, with the UTC offsets of this host, so that hours are those of local time."""
        settings = engine_settings(grid)
        clusters = tuple(
            replace(each, draining=each.name in draining, frees_when_suspended=frees_when_suspended(each.batch))
            for each in settings.clusters
        )
        scavenging = replace(settings.scavenging, offsets=offsets(self._clock.now()))
        rules = tuple(
            (name, replace(rule, request=_with_defaults(grid, rule.request)))
            for name, rule in pilot_rules(grid, self._owner)
        )
        return replace(settings, clusters=clusters, scavenging=scavenging, pilots=rules)

    def _check(self, grid: GridFile) -> None:
        """Raises RequestError if a policy or a task of the grid file cannot be loaded."""
        _loaded(engine_settings(grid))
        self.maintenance.check(grid.maintenance)
        if self.sites is not None and grid.site is not None:
            self.sites.check(grid.site)

    def _adopt(self, grid: GridFile, settings: Settings) -> None:
        """Use these settings, which are committed, wherever they are not read anew each time."""
        before, self._settings = self._settings, settings
        if replace(before, clusters=()) != replace(settings, clusters=()):
            self._policies = _loaded(settings)
            self._journal.use(*self._policies)
            self.service.placement = self._policies[0].placement
        self._written.most, self.service.disk.warn = grid.disk.output, grid.disk.warn
        self.maintenance.replace(grid.maintenance)

    def _renewed(self) -> Engine:
        chosen, of_sweeps = self._policies
        return Engine(self._settings, chosen, self._store.load(), of_sweeps)

    def _make_driver(self, snapshot: Snapshot) -> Driver:
        chosen, of_sweeps = self._policies
        links = AllLinks(
            self._links,
            None if self.sites is None else self.sites.links,
            lambda hint: self.grid_changes.carry_out(hint),
            lambda hint: self.leases.carry_out(hint),
        )
        return Driver(
            Engine(self._settings, chosen, snapshot, of_sweeps),
            self._store,
            links,
            self._clock,
            snapshot.outbox,
            self._store.next_number,
            self._committed,
            self._renewed,
            links.quarantine,
            self._journal,
        )

    def _make_service(
        self, state_directory: Path, snapshot: Snapshot, input_files: InputFiles, logins: Logins
    ) -> Service:
        unknown = UnknownTags(
            snapshot.instance,
            self._links.names,
            self._links.ask,
            lambda ids: jobs_and_launchers(self._store, ids),
            self._clock.now,
            lambda: {each.job for each in self._store.unreadable() if each.may_hide_job},
        )
        files = JobFiles(
            lambda request: input_files.snapshot(_with_defaults(self._grid.file, request)),
            input_files.transfers,
            self._links.fetch,
            self._written,
        )
        return Service(
            self._store,
            self._loop,
            self._clock,
            self._links.read,
            JobStreams(
                self._links.open_stream, self._links.open_terminal, self._links.is_slow, self._links.end_streams
            ),
            self._policies[0].placement,
            Recovery(self._clock.now(), snapshot),
            unknown,
            logins,
            files,
            Sweeps(self._store, self._loop, self._clock, self._links.read_slot),
            DiskUse(self._links.names, self._links.ask, state_directory, self._clock.now, self._grid.file.disk.warn),
            self._journal.taken,
            self._matchmaker,
        )

    def start(self) -> None:
        """Start all threads, and connect to the clusters."""
        _log_recovered(self.service.recovered()["lines"])
        self._written.remove_soon(self._pruned)
        self._links.start(self._loop, self.service.unknown.survey_soon, self.service.slept)
        if self.sites is not None:
            self.sites.links.start(self._loop, self.sites.addresses)
        self._accounting.start()
        self.service.disk.start()
        self._loop.start()  # it sends the last koalad's outbox at once
        self.maintenance.start()

    def cancel_all(self, patience_s: float) -> None:
        """Cancel every job, and wait until all are cleaned up, at most `patience_s` seconds."""
        unfinished = [state for state in JobState if not state.final]
        jobs = [each.id for each in self.service.all_work(unfinished)]
        self.service.cancel(jobs)
        self.service.wait(jobs, patience_s)

    def disconnect(self) -> None:
        """Disconnect from the clusters, and release all threads that wait. Jobs run on."""
        self.maintenance.stop()
        self.grid_changes.close()
        self.service.close()
        self._accounting.close()
        self._notifications.close()
        if self.sites is not None:
            self.sites.links.close()
        self._links.close()

    def stop(self) -> None:
        """End the driver and close the store, after `disconnect`. Requests are refused from now on."""
        self._loop.stop()
        self._journals.close(_JOURNAL_S)
        self._store.close()

    def _committed(self, change: Change) -> None:
        for line in change.history:
            _LOG.info(str(line.kind), job=line.job, **line.details)
        _log_recovered(self.service.committed(change))
        self.leases.committed(change)
        if self.sites is not None:
            self.sites.links.committed(change)
        if change.removed:
            self._written.remove_soon(change.removed)
        self._foreign.log(self._clock.now(), self._driver.engine.core.foreign.foreign)


class ForeignReportLog:
    """Logs the number of reports about attempts that are not on the reporting cluster, at most once a minute for each.

    Only one thread may call it.
    """

    def __init__(self) -> None:
        self._logged: dict[str, tuple[Instant, int]] = {}  # (time of the last line, its count)

    def log(self, now: Instant, foreign: Mapping[str, Foreign]) -> None:
        """Log for each cluster the reports since its last line, unless that line is less than a minute old."""
        for cluster, reports in foreign.items():
            at, count = self._logged.get(cluster, (Instant(now - FOREIGN_EVERY), 0))
            if reports.count > count and now - at >= FOREIGN_EVERY:
                self._logged[cluster] = now, reports.count
                _LOG.warning("foreign_reports", cluster=cluster, count=reports.count - count, last=reports.last)


def _pruned(jobs: Sequence[JobId], store: Store, counters: Counters) -> list[JobId]:
    """Return the jobs that were pruned from the store, but whose output was not removed before koalad was killed.

    Jobs that a restored store may never have had are not among them.
    """
    known = {each.id for each in store.all_work(ids=jobs)} | {each.job for each in store.unreadable()}
    return [job for job in jobs if counters.doubtful_below <= job < counters.next_job and job not in known]


def _log_recovered(lines: Iterable[RecoveryLine]) -> None:
    for line in lines:
        about = {"job": line["job"], "attempt": line["attempt"], "cluster": line["cluster"]}
        known = {name: each for name, each in about.items() if each is not None}
        _LOG.info("recovered", kind=line["kind"], text=line["text"], **known)


def _with_defaults(grid: GridFile, request: Request) -> Request:
    """Return the request with the grid file's `keep_output` and `notify` where it has none.

    A sweep never has a `keep_output`. The grid file's `notify` is for the end of a flow, not for those of its jobs.
    """
    changes: dict[str, Any] = {}
    if request.site is not None:
        pass  # that site keeps its output
    elif request.jobs:
        quiet = [replace(each.request, notify=each.request.notify or ()) for each in request.jobs]
        jobs = zip(request.jobs, quiet, strict=True)
        changes["jobs"] = tuple([replace(job, request=_with_defaults(grid, inner)) for job, inner in jobs])
    elif request.keep_output is None and request.parameters is None:
        changes["keep_output"] = grid.keep_output
    if request.notify is None and grid.notify:
        changes["notify"] = notify_of(grid.notify)
    return replace(request, **changes) if changes else request


def _loaded(settings: Settings) -> tuple[Policies, ScavengingPolicies]:
    return policies(settings), scavenging_policies(settings)


def _with_commanded(grid: CurrentGrid, state_directory: Path) -> CommandClusters:
    """Add the clusters that were added by command, except those that the grid file has by now.

    The places in the answer are still those of the last start or change. Raises RequestError if their file cannot be
    read, or has a cluster that cannot be used with this grid file.
    """
    found = current_grid.load_commanded(state_directory)
    added = {name: values for name, values in found.added.items() if name not in grid.file.clusters}
    systems = list(registered("koalapy.batch_systems"))
    clusters = {name: read_cluster(name, values, systems) for name, values in added.items()}
    grid.file = with_clusters(grid.file, clusters)
    draining = tuple(name for name in found.draining if name in grid.file.clusters or is_temporary(name))
    return CommandClusters(added, draining, found.places)


def _other_batch_system(grid: GridFile, places: Mapping[str, Sequence[Any]], snapshot: Snapshot) -> RequestError | None:
    """Return why koalad may not start with the batch system of a cluster: the store has batch jobs of the former one.

    Their ids mean other jobs, or none, to the new one. `places`: by cluster, as PLACE has them. None if there are none.
    """
    former = {name: str(place[PLACE.index("batch")]) for name, place in places.items()}
    attempts = _known_attempts(snapshot)
    for name, cluster in grid.clusters.items():
        there = [each for each in attempts if each.cluster == name]
        if not there or former.get(name, cluster.batch) == cluster.batch:
            continue
        living = {JobId(each.owner.id) for each in there if not each.is_pending_cancel}
        left = Remaining(tuple(sorted(living)), sum(each.is_pending_cancel for each in there))
        was = former[name]
        message = f"The grid file has {name} with `batch: {cluster.batch}`. It had `batch: {was}`, with {left}."
        advice = f"Write `batch: {was}` again until nothing is left there, or give the new cluster another name."
        return RequestError("other_place", message, advice)
    return None


def _known_attempts(snapshot: Snapshot) -> list[Attempt]:
    attempts = [each for job in snapshot.jobs for each in job.all_attempts if not each.cleaned_up]
    return [*attempts, *snapshot.launchers, *snapshot.pending_cancels]


def _save_commanded(state_directory: Path, contents: CommandClusters) -> None:
    """Record the places of the clusters. A full disk does not keep koalad from its jobs."""
    try:
        current_grid.save_commanded(state_directory, contents)
    except OurError as error:
        _LOG.warning("places_not_written", reason=str(error))
