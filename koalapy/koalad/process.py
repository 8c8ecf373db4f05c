"""The process of koalad: it stands by if needed, then has its store and serves until it is ended."""

import os
import signal
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from koalapy.answers import koalad as answers
from koalapy.api.app import create_app
from koalapy.api.clusters import GridCalls
from koalapy.api.jobs import Reader
from koalapy.api.metrics import MetricsOnly
from koalapy.api.server import Server, bind, bind_port
from koalapy.api.standby import ExchangeableApp, create_standby_app
from koalapy.common.locations import Locations
from koalapy.common.registry import registered
from koalapy.config import GridFile
from koalapy.koalad.assembly import Koalad
from koalapy.koalad.gridfile import WatchedFile, read_grid_file
from koalapy.model.change import Snapshot
from koalapy.model.errors import KoalaError, OurError, Reason, RequestError, TransientError
from koalapy.model.identity import InstanceId
from koalapy.model.units import SECOND, Instant
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.runtime.driver_thread import TAKEN_OVER
from koalapy.runtime.grid_changes import Reloaded
from koalapy.runtime.sdnotify import Notifier
from koalapy.store import lockfile
from koalapy.store.contract import StoreError, StoreLocked, StoreUnreadable
from koalapy.store.open import is_shared
from koalapy.views.recovery import Recovery

_LOG = structlog.get_logger()
_CANCEL_S = 600.0
_STAND_BY_S = 1.0  # between tries to get the store
_LOCK = "koalad.lock"  # in the state directory, even if the store is elsewhere


class KoaladProcess:
    """One koalad process. Raises KoalaError if it can neither open its store nor stand by; then nothing was started."""

    def __init__(
        self,
        locations: Locations,
        grid: CurrentGrid,
        grid_file: WatchedFile,
        read: Reader,
        owner: str,
        notifier: Notifier | None = None,
    ) -> None:
        self._locations, self._grid, self._grid_file = locations, grid, grid_file
        self._read, self._owner = read, owner
        self._read_anew = grid_file  # the grid file as it was when it was last read
        self._notifier = notifier or Notifier()
        self._end = threading.Event()
        self._cancel = self._replaced = False
        self._waiting: Reason | None = None
        self._koalad: Koalad | None = None
        locations.make()
        if is_shared(grid.file.store):
            _hold(locations.state / _LOCK)  # the store's own lock would let a second koalad of this host stand by
        self._koalad = self._open_store()
        self._api = ExchangeableApp(self._app(self._koalad), grid.file.grid, grid_file.path)
        self._metrics = _metrics(self._api, grid.file, grid_file.path)
        self._server = Server(self._api, bind(locations.socket))
        self._link_sockets()

    def start(self) -> None:
        """Start serving or standing by. koalad is ready when this returns."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, on_a_thread(self._end.set))
        # A terminal that is closed sends SIGHUP too, and then ends the koalad in it.
        signal.signal(signal.SIGHUP, on_a_thread(self._end.set if os.isatty(0) else self._reload))
        if self._koalad is None:
            _LOG.info("koalad_stands_by", grid=self._grid.file.grid, pid=os.getpid(), reason=str(self._waiting))
        else:
            self._serve(self._koalad)
        self._server.start()
        if self._metrics is not None:
            self._metrics.start()
        self._notifier.ready(f"stands by: {self._waiting.message}" if self._waiting else "serves")

    def run(self) -> int:
        """Run until a shutdown, or until another koalad replaces this one, and return the exit status.

        Jobs run on, unless the shutdown cancels them. The status is 1 after a replacement, or if standing by failed.
        """
        failed = self._koalad is None and not self._stand_by()
        self._end.wait()
        if self._cancel and self._koalad is not None and not self._replaced:
            _cancel_all(self._koalad)
        self._notifier.stopping()
        for path in self._locations.sockets:
            path.unlink(missing_ok=True)
        if self._koalad is not None:
            self._koalad.disconnect()
        self._server.stop()
        if self._metrics is not None:
            self._metrics.stop()
        if self._koalad is not None:
            self._koalad.stop()
        _LOG.info("koalad_ended", replaced=self._replaced)
        return 1 if failed or self._replaced else 0

    # ---- store

    def _open_store(self) -> Koalad | None:
        """Open the store, or return None if a koalad on another host may have it. Raises StoreError."""
        try:
            return Koalad(
                self._grid,
                self._locations.state,
                self._read,
                self._owner,
                self._read_grid,
                self._taken_over,
                self._notifier,
            )
        except StoreLocked as error:
            if not is_shared(self._grid.file.store):
                raise
            self._waiting = error.reason
            return None

    def _stand_by(self) -> bool:
        """Wait for the store, and take over. Returns False if a newer koalapy has written to the store meanwhile."""
        while not self._end.wait(min(_STAND_BY_S, self._notifier.beat_s or _STAND_BY_S)):
            self._notifier.alive()
            try:
                koalad = self._open_store()
            except StoreUnreadable as error:
                _LOG.error("koalad_cannot_take_over", reason=str(error))
                self._end.set()
                return False
            except StoreError as error:  # the server may be restarting
                self._waiting, koalad = error.reason, None
            if koalad is not None:
                self._take_over(koalad)
                return True
        return True

    def _take_over(self, koalad: Koalad) -> None:
        """Serve with the store, and then exchange the app of the API."""
        _LOG.info("koalad_takes_over", grid=self._grid.file.grid, pid=os.getpid())
        self._serve(koalad)
        self._api.app = self._app(koalad)
        self._koalad = koalad
        self._notifier.status("serves")

    def _serve(self, koalad: Koalad) -> None:
        koalad.start()
        _LOG.info("koalad_started", grid=self._grid.file.grid, pid=os.getpid())

    def _taken_over(self) -> None:
        """End, because another koalad has taken the store."""
        self._replaced = True
        self._end.set()

    # ---- grid file

    def _read_grid(self) -> GridFile:
        """Read the grid file again. Raises RequestError."""
        grid_file = WatchedFile(self._grid_file.path)
        found = read_grid_file(grid_file.path)
        self._read_anew = grid_file
        return found

    def _reload(self) -> None:
        """Read the grid file again, as SIGHUP requests. The log lists what has changed, or states why nothing has."""
        koalad = self._koalad
        try:
            if koalad is None:
                advice = "Reload on the host that has it; this one reads its own grid file when it starts."
                raise TransientError("standing_by", "This koalad stands by for another.", advice)
            self._reload_grid(koalad, check=False)
        except KoalaError as error:
            _LOG.error("grid_file_refused", code=error.reason.code, reason=str(error))

    def _reload_grid(self, koalad: Koalad, check: bool) -> Reloaded:
        """Read the grid file again; see GridChanges.reload. Raises KoalaError."""
        reloaded = koalad.grid_changes.reload(check)
        if not check:
            self._grid_file = self._read_anew
            if koalad.sites is not None and self._grid.file.site is not None:
                koalad.sites.read_again(self._grid.file.site)
        return reloaded

    # ---- API

    def _app(self, koalad: Koalad | None) -> Callable[..., Any]:
        if koalad is not None:
            changes = GridCalls(
                koalad.grid_changes, partial(self._reload_grid, koalad), list(registered("koalapy.batch_systems"))
            )
            return create_app(
                koalad.service, self._read, self._facts, self._shut_down, self._owner, koalad.maintenance, changes,
                koalad.pilots,
                koalad.leases,
                koalad.sites,
            )  # fmt: skip
        nothing = Recovery(Instant(time.time_ns() * SECOND // 10**9), Snapshot(instance=InstanceId(""))).recovered
        return create_standby_app(self._holder, self._facts, self._shut_down, nothing)

    def _holder(self) -> Reason:
        assert self._waiting is not None
        return self._waiting

    def _link_sockets(self) -> None:
        """Link the socket in the state directory for clients with another $XDG_RUNTIME_DIR, or without one."""
        for path in self._locations.sockets[1:]:
            path.unlink(missing_ok=True)
            path.symlink_to(self._locations.socket)

    def _shut_down(self, cancel: bool) -> None:
        self._cancel = cancel
        self._end.set()

    def _facts(self) -> answers.KoaladFacts:
        return {
            "pid": os.getpid(),
            "grid": self._grid.file.grid,
            "grid_file": str(self._grid_file.path),
            "grid_file_changed": self._grid_file.has_changed(),
            "state": self._state(),
        }

    def _state(self) -> answers.KoaladState:
        trouble = self._koalad.service.trouble() if self._koalad is not None else None
        if trouble is not None and trouble.code == TAKEN_OVER:
            return "taken_over"
        if self._end.is_set():
            return "stopping"
        if self._koalad is None:
            return "standing_by"
        return "ready" if trouble is None else "broken" if trouble.code == "broken" else "store_failing"


def on_a_thread(act: Callable[[], None]) -> Callable[[int, object], None]:
    """Return a signal handler that calls `act` on a new thread: the interrupted one may hold a lock that it needs."""

    def handler(number: int, frame: object) -> None:
        with suppress(RuntimeError):  # the interpreter is ending
            start_new_thread(act, ())

    return handler


def _metrics(api: ExchangeableApp, grid: GridFile, path: Path) -> Server | None:
    """Build the server of metrics on a TCP port, if the grid file has one. Raises KoalaError if it cannot be opened."""
    if grid.metrics is None:
        return None
    if path.stat().st_mode & 0o077:
        message = f"{path} has a token in it, and others than you may read it."
        raise RequestError("token_readable", message, f"`chmod 600 {path}`, and write another token into it.")
    return Server(MetricsOnly(api, grid.metrics.token), bind_port(grid.metrics.port))


def _hold(path: Path) -> None:
    """Lock a file for as long as this process lives. Raises OurError."""
    try:
        lockfile.hold(path)
    except OSError as error:
        advice = "Make room there, or name a place that has locks with $XDG_STATE_HOME."
        raise OurError("no_lock", f"{path} cannot be locked: {error.strerror}.", advice) from error


def _cancel_all(koalad: Koalad) -> None:
    try:
        koalad.cancel_all(_CANCEL_S)
    except KoalaError as error:
        _LOG.error("not_cancelled", reason=str(error))
