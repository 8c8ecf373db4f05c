"""Leases: each borrowed one joins the grid while it is bound, and leaves it when it is over; people end them."""

from koalapy.model.change import Change
from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import LeaseEndRequested
from koalapy.model.neighbour import Neighbour
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.grid_changes import GridChanges
from koalapy.runtime.service import Service
from koalapy.runtime.upkeep import Upkeep
from koalapy.views.leases import LeaseView, lease_upkeep, leases

_LOOK_S = 1.0  # between looks while there are leases in the grid
_ENDED = Reason("lease_ended", "request", "Its lender has taken it back.", "")


class Leases:
    """The leases of one koalad. Any thread may call it."""

    def __init__(self, service: Service, changes: GridChanges, loop: DriverThread) -> None:
        self._service, self._changes, self._loop = service, changes, loop
        self.upkeep = Upkeep("leases", self._keep)

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

    def committed(self, change: Change) -> None:
        """Look after the leases soon if one may have changed."""
        if change.neighbours:
            self.upkeep.look_soon()

    def _keep(self) -> float | None:
        """Let leases join and leave the grid. Raises KoalaError. Returns the seconds until it is to be called again."""
        joined = self._changes.leases
        due = self._loop.ask(lambda engine: lease_upkeep(engine, joined))
        for name in due.leave:
            self._changes.leave_held(name)
        for lender, number in due.join:
            self._changes.join_lease(lender, number)
        return _LOOK_S if joined or due.join else None
