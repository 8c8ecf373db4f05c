"""Leases: each borrowed one joins the grid while it is bound, and leaves it when it is over; people end them."""

import threading

import structlog

from koalapy.model.change import Change
from koalapy.model.errors import KoalaError, Reason, RequestError
from koalapy.model.events import LeaseEndRequested
from koalapy.model.neighbour import Neighbour
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.grid_changes import GridChanges
from koalapy.runtime.service import Service
from koalapy.views.leases import LeaseView, lease_upkeep, leases

_LOG = structlog.get_logger()
_LOOK_S = 1.0  # between looks while there are leases in the grid
_AGAIN_S = 5.0  # after a failure
_ENDED = Reason("lease_ended", "request", "Its lender has taken it back.", "")


class Leases:
    """The leases of one koalad. Any thread may call it."""

    def __init__(self, service: Service, changes: GridChanges, loop: DriverThread) -> None:
        self._service, self._changes, self._loop = service, changes, loop
        self._look = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)

    # ---- for the API

    def all(self) -> list[LeaseView]:
        """Return the leases that are not over."""
        return self._loop.ask(leases)

    def neighbours(self) -> list[Neighbour]:
        """Return the records of the neighbours, by name."""
        return self._loop.ask(lambda engine: [each for _, each in sorted(engine.core.neighbours.records.items())])

    def end(self, name: str, force: bool) -> LeaseView:
        """Begin to end a lease: a lent one is taken back, a borrowed one is returned.

        Raises KoalaError if there is none of that name, or if jobs are on a borrowed one and `force` is not given.
        """
        found = next((each for each in self.all() if each.name == name), None)
        if found is None:
            raise RequestError("no_such_lease", f"There is no lease {name}.", "`koala leases` lists them.")
        if found.left and not force:
            message = f"{name} cannot be returned: there is {found.left}. Nothing was changed."
            raise RequestError("lease_in_use", message, "`--force` gives it up.")
        lease = found.lease
        self._service.do(
            LeaseEndRequested(neighbour=found.neighbour, lease=lease.number, lent=lease.lent, reason=_ENDED)
        )
        return next((each for each in self.all() if each.name == name), found)

    # ---- their upkeep

    def start(self) -> None:
        """Begin to keep the leases."""
        self._look.set()  # a former koalad may have left some
        self._thread.start()

    def committed(self, change: Change) -> None:
        """Look after the leases soon if one may have changed."""
        if change.neighbours:
            self._look.set()

    def stop(self) -> None:
        """Stop keeping them; they go on."""
        self._closed = True
        self._look.set()
        if self._thread.is_alive():
            self._thread.join(_AGAIN_S)

    def _run(self) -> None:
        wait_s: float | None = None
        while True:
            self._look.wait(wait_s)
            if self._closed:
                return
            self._look.clear()
            try:
                wait_s = self._keep()
            except KoalaError as error:
                _LOG.warning("leases_not_kept", reason=str(error))
                wait_s = _AGAIN_S
            except Exception:
                _LOG.exception("leases_failed")
                wait_s = _AGAIN_S

    def _keep(self) -> float | None:
        """Let leases join and leave the grid. Raises KoalaError. Returns the seconds until it is to be called again."""
        joined = self._changes.leases
        due = self._loop.ask(lambda engine: lease_upkeep(engine, joined))
        for name in due.leave:
            self._changes.leave_held(name)
        for lender, number in due.join:
            self._changes.join_lease(lender, number)
        return _LOOK_S if joined or due.join else None
