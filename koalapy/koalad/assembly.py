"""koalad without its API: store, engine, driver and links, put together for one grid."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from koalapy.api.jobs import Reader
from koalapy.config import GridFile, engine_settings
from koalapy.core.foreign import Foreign
from koalapy.driver import Driver
from koalapy.engine import Engine
from koalapy.journal.journal import Journal
from koalapy.koalad.maintenance import maintenance_of
from koalapy.locations import JOURNALS
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.identity import JobId
from koalapy.model.job import Counters
from koalapy.model.request import KeepOutput, Request
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.runtime.accounting import Accounting
from koalapy.runtime.clock import SystemClock, offsets
from koalapy.runtime.collecting.written import WrittenStore
from koalapy.runtime.disk import DiskUse
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.journals import Journals
from koalapy.runtime.links import ClusterLinks
from koalapy.runtime.load_policies import policies, scavenging_policies
from koalapy.runtime.logins import Logins
from koalapy.runtime.sdnotify import Notifier
from koalapy.runtime.service import JobFiles, Service
from koalapy.runtime.staging.input_files import InputFiles
from koalapy.runtime.sweeps import Sweeps
from koalapy.runtime.unknown import UnknownTags
from koalapy.runtime.uplink.connect import may_ask
from koalapy.store.contract import Store
from koalapy.store.open import open_store
from koalapy.views.recovery import Line, Recovery

FOREIGN_EVERY = Duration(60 * SECOND)  # between lines of the log about one cluster

_LOG = structlog.get_logger()
_JOURNAL_S = 10.0  # for a journal that is being written when koalad ends


class Koalad:
    """One grid's koalad. `start` returns at once; clusters connect in their own time.

    Raises KoalaError where the store cannot be opened or a policy is not known; then nothing was started.
    """

    def __init__(
        self,
        grid: GridFile,
        state_directory: Path,
        read: Reader,
        owner: str,
        taken_over: Callable[[], None] = lambda: None,
        notifier: Notifier | None = None,
    ) -> None:
        """`taken_over` hears that another koalad has the store now: this one can only end.

        `read` reads the job files that maintenance submits for `owner`.
        """
        self.grid = grid.grid
        self._clock = SystemClock()
        settings = _by_the_wall(engine_settings(grid), self._clock.now())
        chosen, of_sweeps = policies(settings), scavenging_policies(settings)
        self._store = open_store(grid.store, state_directory)
        snapshot = self._store.load()
        for each in self._store.unreadable():
            _LOG.error("record_unreadable", record=each.name, job=each.job, why=each.why)
        last_number = self._store.next_number - 1
        input_files = InputFiles(state_directory / "staged")
        written = self._written = WrittenStore(state_directory / "output", grid.disk.output)
        self._pruned = _pruned(written.jobs(), self._store, snapshot.counters)
        logins = Logins((name, may_ask(cluster)) for name, cluster in grid.clusters.items())
        self._links = ClusterLinks(
            grid,
            snapshot.instance,
            self._store.epoch,
            self._clock,
            last_number=last_number,
            input_files=input_files,
            logins=logins,
            recorded=self._store,
            written=written,
        )
        renew = lambda: Engine(settings, chosen, self._store.load(), of_sweeps)  # noqa: E731
        self._journals = Journals(state_directory / JOURNALS)
        self._journal = Journal(chosen, of_sweeps, failed=self._journals.write_soon)
        driver = self._driver_of(Engine(settings, chosen, snapshot, of_sweeps), snapshot.outbox, renew)
        self._driver, self._foreign = driver, ForeignSpeech()
        self._loop = DriverThread(driver, self._clock, self._store.check, taken_over, notifier)
        recovery = Recovery(self._clock.now(), snapshot)
        jobs = lambda ids: self._store.jobs(ids=ids)  # noqa: E731
        held = lambda: {each.job for each in self._store.unreadable() if each.kind == "job"}  # noqa: E731
        unknown = UnknownTags(snapshot.instance, list(grid.clusters), self._links.ask, jobs, self._clock.now, held)
        self._accounting = Accounting(
            snapshot.instance, self._store.usage, self._links.ask, self._loop.deliver, self._clock.now
        )
        keep = lambda request: input_files.snapshot(_kept_as(grid.keep_output, request))  # noqa: E731
        files = JobFiles(keep, input_files.transfers, self._links.fetch, written)
        self.service = Service(
            self._store,
            self._loop,
            self._clock,
            self._links.read,
            chosen.placement,
            recovery,
            unknown,
            logins,
            files,
            Sweeps(self._store, self._loop, self._clock, self._links.read_slot),
            DiskUse(list(grid.clusters), self._links.ask, state_directory, self._clock.now, grid.disk.warn),
            self._journal.taken,
        )
        self.maintenance = maintenance_of(grid, self._store, self._loop, self._clock, self.service, read, owner)

    def start(self) -> None:
        _log_recovered(self.service.recovered().lines)
        self._written.remove_soon(self._pruned)
        self._links.start(self._loop, self.service.unknown.survey_soon, self.service.slept)
        self._accounting.start()
        self.service.disk.start()
        self._loop.start()  # which sends at once what the last koalad had begun
        self.maintenance.start()

    def cancel_all(self, patience_s: float) -> None:
        """End every job, and wait until nothing of them is left."""
        unfinished = [state for state in JobState if not state.final]
        jobs = [job.id for job in self.service.jobs(unfinished)]
        self.service.cancel(jobs)
        self.service.wait(jobs, patience_s)

    def disconnect(self) -> None:
        """Leave the clusters, and let go of whoever waits for something. Jobs run on."""
        self.maintenance.stop()
        self.service.close()
        self._accounting.close()
        self._links.close()

    def stop(self) -> None:
        """The end, after `disconnect`; what comes in from now on is refused."""
        self._loop.stop()
        self._journals.close(_JOURNAL_S)
        self._store.close()

    def _driver_of(self, engine: Engine, outbox: Sequence[OutboxEntry], renew: Callable[[], Engine]) -> Driver:
        return Driver(
            engine, self._store, self._links, self._clock, outbox, self._store.next_number, self._committed, renew,
            self._links.quarantine, self._journal,
        )  # fmt: skip

    def _committed(self, change: Change) -> None:
        for line in change.history:
            _LOG.info(line.kind, job=line.job, **line.details)
        _log_recovered(self.service.committed(change))
        if change.removed:
            self._written.remove_soon(change.removed)
        self._foreign.log(self._clock.now(), self._driver.engine.core.foreign.foreign)


class ForeignSpeech:
    """Logs what clusters say of what is not on them: a count, at most once a minute of each. Called by one thread."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[Instant, int]] = {}  # when, and up to which count

    def log(self, now: Instant, foreign: Mapping[str, Foreign]) -> None:
        """Tell of each cluster what it has said since it was told last, unless that is less than a minute ago."""
        for cluster, said in foreign.items():
            at, count = self._logged.get(cluster, (Instant(now - FOREIGN_EVERY), 0))
            if said.count > count and now - at >= FOREIGN_EVERY:
                self._logged[cluster] = now, said.count
                _LOG.warning("foreign_speech", cluster=cluster, count=said.count - count, last=said.last)


def _pruned(jobs: Sequence[JobId], store: Store, counters: Counters) -> list[JobId]:
    """Those of them that the store had and has no more: koalad was killed before it removed what was at home.

    A restored store may never have had jobs of before: none of these is named.
    """
    known = {job.id for job in store.jobs(ids=jobs)} | {each.job for each in store.unreadable()}
    return [job for job in jobs if counters.doubtful_below <= job < counters.next_job and job not in known]


def _log_recovered(lines: Iterable[Line]) -> None:
    for line in lines:
        about = {"job": line.job, "attempt": line.attempt and str(line.attempt), "cluster": line.cluster}
        _LOG.info("recovered", kind=line.kind, text=line.text, **{k: v for k, v in about.items() if v is not None})


def _kept_as(keep: KeepOutput, request: Request) -> Request:
    """The request with the grid file's `keep_output` where it has none. A sweep never has one."""
    if request.keep_output is not None or request.parameters is not None:
        return request
    return replace(request, keep_output=keep)


def _by_the_wall(settings: Settings, now: Instant) -> Settings:
    """Hours are those of this host's clock on the wall."""
    return replace(settings, scavenging=replace(settings.scavenging, offsets=offsets(now)))
