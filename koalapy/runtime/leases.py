"""Leases: they are listed, and people end them; their beginning and end are logged, and lent ones examined."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from koalapy_adapters.errors import BatchError

from koalapy.model.change import Change
from koalapy.model.commands import ExamineNodes, LeaseHint, MeasureLease
from koalapy.model.ended_lease import EndedLease, key_of
from koalapy.model.errors import KoalaError, Reason, RequestError
from koalapy.model.events import LeaseEndRequested, LeaseExamined
from koalapy.model.lease import Lease
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import Instant
from koalapy.runtime.disk import as_size
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.service import Service
from koalapy.views.leases import LeaseView, audit_line, began_line, leases

_LOG = structlog.get_logger()
_ENDED = Reason("lease_ended", "request", "Its lender has taken it back.", "")


class Leases:
    """The leases of one koalad. Any thread may call it."""

    def __init__(
        self,
        service: Service,
        loop: DriverThread,
        examine: Callable[[str, int], Reason | None],
        measure: Callable[[str, int], int],
        recorded: Iterable[Lease] = (),
    ) -> None:
        """`examine`, `measure`: see ClusterLinks.examine_lease and lease_bytes. `recorded`: the leases in the store
        at koalad's start.
        """
        self._service, self._loop, self._look_into, self._bytes_of = service, loop, examine, measure
        self._looking: dict[tuple[type, str, int], threading.Thread] = {}
        self._begun = {key_of(each) for each in recorded if each.bound_at is not None}  # whose beginning is in the log

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
        if found.remaining and not force:
            message = f"{name} cannot be returned because of {found.remaining}. Nothing was changed."
            raise RequestError("lease_in_use", message, "`--force` gives it up.")
        lease = found.lease
        self._service.do(
            LeaseEndRequested(
                neighbour=lease.neighbour, lease=lease.number, lent=lease.lent, reason=_ENDED, at_once=force
            )
        )
        return next((each for each in self.all() if each.name == name), found)

    # ---- for the driver

    def committed(self, change: Change) -> None:
        """Log the leases that have begun and ended."""
        for each in change.leases:
            if each.state.bound and key_of(each) not in self._begun:
                self._begun.add(key_of(each))
                _LOG.info("lease_began", **began_line(each))
        for ended in change.leases_ended:
            self._begun.discard(ended.key)
            _LOG.info("lease_ended", **audit_line(ended))

    def carry_out(self, hint: LeaseHint) -> None:
        """Examine or measure a lease in a thread of its own, unless one does so. Returns at once."""
        key = type(hint), hint.neighbour, hint.lease
        self._looking = {each: thread for each, thread in self._looking.items() if thread.is_alive()}
        if key not in self._looking:
            look = self._examine if isinstance(hint, ExamineNodes) else self._measure
            thread = threading.Thread(target=self._answer, args=(look, hint), name="lease-examination", daemon=True)
            self._looking[key] = thread
            thread.start()

    def _answer(self, look: Callable[[Any], None], hint: LeaseHint) -> None:
        """Carry out a hint. Without an answer of the nodes the engine repeats it."""
        try:
            look(hint)
        except (KoalaError, BatchError, TimeoutError) as error:
            _LOG.info("lease_not_examined", neighbour=hint.neighbour, lease=hint.lease, reason=str(error))

    def _examine(self, hint: ExamineNodes) -> None:
        reason = self._look_into(hint.neighbour, hint.lease)
        if reason is not None:
            _LOG.warning("lease_refused", neighbour=hint.neighbour, lease=hint.lease, reason=str(reason))
        self._service.do(LeaseExamined(neighbour=hint.neighbour, lease=hint.lease, reason=reason))

    def _measure(self, hint: MeasureLease) -> None:
        taken = self._bytes_of(hint.neighbour, hint.lease)
        if taken > hint.most:
            message = f"Its programs have {as_size(taken)} on the disk there, and may have {as_size(hint.most)}."
            reason = Reason("disk_exceeded", "request", message, "Let them write less, or ask its people.")
            _LOG.warning("lease_over_disk", neighbour=hint.neighbour, lease=hint.lease, bytes=taken, most=hint.most)
            self._service.do(LeaseExamined(neighbour=hint.neighbour, lease=hint.lease, reason=reason))
