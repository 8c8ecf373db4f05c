"""Leases: each borrowed one joins the grid while it is bound, and leaves it when it is over; people end them.

The nodes of one that is to be lent are examined first: whether they isolate programs as the lender wants it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence

import structlog
from koalapy_adapters.errors import BatchError

from koalapy.model.change import Change
from koalapy.model.commands import JoinCluster, LeaveCluster
from koalapy.model.ended_lease import EndedLease, key_of
from koalapy.model.errors import KoalaError, Reason, RequestError
from koalapy.model.events import LeaseEndRequested, LeaseExamined
from koalapy.model.lease import Lease
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import Instant
from koalapy.runtime.disk import as_size
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.grid_changes import GridChanges
from koalapy.runtime.service import Service
from koalapy.runtime.upkeep import Upkeep
from koalapy.views.leases import LeaseView, audit_line, began_line, lease_upkeep, leases

_LOG = structlog.get_logger()
_MEASURE_S = 5.0  # between two measurements of what leases have written
_LOOK_S = 1.0  # between looks while there are leases in the grid
_ENDED = Reason("lease_ended", "request", "Its lender has taken it back.", "")


class Leases:
    """The leases of one koalad. Any thread may call it."""

    def __init__(
        self,
        service: Service,
        changes: GridChanges,
        loop: DriverThread,
        examine: Callable[[str, int], Reason | None],
        measure: Callable[[str, int], int],
        recorded: Iterable[Lease] = (),
    ) -> None:
        """`examine`, `measure`: see ClusterLinks.examine_lease and lease_bytes. `recorded`: the leases in the store
        at koalad's start.
        """
        self._service, self._changes, self._loop, self._look_into = service, changes, loop, examine
        self._bytes_of = measure
        self._measuring: threading.Thread | None = None
        self._measured_at = -_MEASURE_S
        self._examined: dict[tuple[str, int], threading.Thread] = {}
        self._begun = {key_of(each) for each in recorded if each.bound_at is not None}  # whose beginning is in the log
        self.upkeep = Upkeep("leases", self._keep)

    # ---- for the API

    def all(self) -> list[LeaseView]:
        """Return the leases that are not over."""
        return self._loop.ask(leases)

    def ended(self, since: Instant | None) -> list[EndedLease]:
        """Return the leases that ended after an instant and were not pruned, the oldest first. Raises KoalaError."""
        return self._service.ended_leases(since)

    def neighbours(self) -> list[Neighbour]:
        """Return the records of the neighbours, by name."""
        return self._loop.ask(lambda engine: [each for _, each in sorted(engine.core.neighbours.records.items())])

    def end(self, name: str, force: bool) -> LeaseView:
        """Begin to end a lease: a lent one is taken back after a notice, a borrowed one is returned. `force`: at once.

        Raises KoalaError if there is none of that name, or if jobs are on a borrowed one and `force` is not given.
        """
        found = next((each for each in self.all() if each.name == name), None)
        if found is None:
            raise RequestError("no_such_lease", f"There is no lease {name}.", "`koala leases` lists them.")
        if found.left and not force:
            message = f"{name} cannot be returned because of {found.left}. Nothing was changed."
            raise RequestError("lease_in_use", message, "`--force` gives it up.")
        lease = found.lease
        self._service.do(
            LeaseEndRequested(
                neighbour=lease.neighbour, lease=lease.number, lent=lease.lent, reason=_ENDED, at_once=force
            )
        )
        return next((each for each in self.all() if each.name == name), found)

    # ---- their upkeep

    def committed(self, change: Change) -> None:
        """Log the leases that have begun and ended. Look after the leases soon if one may have changed."""
        for each in change.leases:
            if each.state.bound and key_of(each) not in self._begun:
                self._begun.add(key_of(each))
                _LOG.info("lease_began", **began_line(each))
        for ended in change.leases_ended:
            self._begun.discard(ended.key)
            _LOG.info("lease_ended", **audit_line(ended))
        if change.leases or any(job.request.pilot is not None and job.request.pilot.lent for job in change.jobs):
            self.upkeep.look_soon()

    def _keep(self) -> float | None:
        """Let leases join and leave the grid. Raises KoalaError. Returns the seconds until it is to be called again."""
        joined = self._changes.leases
        due = self._loop.ask(lambda engine: lease_upkeep(engine, joined))
        for name in due.leave:
            self._changes.carry_out(LeaveCluster(name))
        for cluster in due.join:
            self._changes.carry_out(JoinCluster(cluster))
        for lease in due.examine:
            self._begin_to_examine(lease)
        if due.measure:
            self._begin_to_measure(due.measure)
        return _LOOK_S if joined or due.join or due.examine or due.measure else None

    def _begin_to_measure(self, leases: Sequence[tuple[str, int, int]]) -> None:
        """Measure what leases have written, in a thread of its own, unless that was done a moment ago."""
        is_measuring = self._measuring is not None and self._measuring.is_alive()
        if not is_measuring and time.monotonic() >= self._measured_at + _MEASURE_S:
            self._measuring = threading.Thread(target=self._measure, args=(leases,), name="lease-disk", daemon=True)
            self._measuring.start()

    def _measure(self, leases: Sequence[tuple[str, int, int]]) -> None:
        """End the leases that have written too much. One that cannot be measured now is measured later."""
        for neighbour, number, most in leases:
            try:
                taken = self._bytes_of(neighbour, number)
                if taken <= most:
                    continue
                message = f"Its programs have {as_size(taken)} on the disk there, and may have {as_size(most)}."
                reason = Reason("disk_exceeded", "request", message, "Let them write less, or ask its people.")
                _LOG.warning("lease_over_disk", neighbour=neighbour, lease=number, bytes=taken, most=most)
                self._service.do(LeaseExamined(neighbour=neighbour, lease=number, reason=reason))
            except (KoalaError, BatchError, TimeoutError) as error:
                _LOG.info("lease_not_measured", neighbour=neighbour, lease=number, reason=str(error))
        self._measured_at = time.monotonic()

    def _begin_to_examine(self, lease: tuple[str, int]) -> None:
        """Examine the nodes of a lease in a thread of its own, unless one does so."""
        self._examined = {key: each for key, each in self._examined.items() if each.is_alive()}
        if lease not in self._examined:
            thread = threading.Thread(target=self._examine, args=lease, name="lease-examination", daemon=True)
            self._examined[lease] = thread
            thread.start()

    def _examine(self, neighbour: str, number: int) -> None:
        """Without an answer of the nodes it is tried again, until the lender's time for binding is over."""
        try:
            reason = self._look_into(neighbour, number)
            if reason is not None:
                _LOG.warning("lease_refused", neighbour=neighbour, lease=number, reason=str(reason))
            self._service.do(LeaseExamined(neighbour=neighbour, lease=number, reason=reason))
        except (KoalaError, BatchError) as error:
            _LOG.info("lease_not_examined", neighbour=neighbour, lease=number, reason=str(error))
