"""The leases of this site, lent and borrowed, and the requests for them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from koalapy.core.due import LEASES, REQUESTS, DueSteps
from koalapy.model.lease import BorrowedLease, Lease, LeaseId, LentLease
from koalapy.model.states import LEASE_TRANSITIONS, LeaseState
from koalapy.model.units import Instant

L = TypeVar("L", bound=LentLease | BorrowedLease)


class Leases:
    """The records of the leases by neighbour and number, in the order in which they were asked for.

    `changed`: those that have changed in this step. One that is gone has no record any more. `examine_at`: when those
    that are lent are examined or measured again, which is derived anew after a restart of koalad.
    """

    def __init__(self, due: DueSteps, leases: Iterable[Lease] = ()) -> None:
        self._due = due
        self.lent: dict[tuple[str, int], LentLease] = {}
        self.borrowed: dict[tuple[str, int], BorrowedLease] = {}
        self.changed: dict[LeaseId, Lease] = {}
        self.examine_at: dict[LeaseId, Instant] = {}
        for each in sorted(leases, key=lambda lease: (lease.asked_at, lease.id)):
            self._put(each)

    def add(self, lease: Lease) -> None:
        """Add a new lease."""
        self._put(lease)
        self.changed[lease.id] = lease
        self._due.wake(REQUESTS | LEASES)

    def change(self, lease: L, **changes: Any) -> L:
        """Change these fields of a lease. Return its new record.

        Raises ValueError for a transition that the table does not have.
        """
        state = changes.get("state")
        if state is not None and state not in LEASE_TRANSITIONS[lease.lent][lease.state]:
            raise ValueError(f"lease {lease.id} cannot go from {lease.state} to {state}")
        changed = replace(lease, **changes)
        self._put(changed)
        self.changed[changed.id] = changed
        return changed

    def drop(self, lease: Lease) -> None:
        """Remove the record of a lease. Raises ValueError if the table does not let it go from its state."""
        self.change(lease, state=LeaseState.GONE)
        self.examine_at.pop(lease.id, None)
        there: dict[tuple[str, int], Any] = self.lent if lease.lent else self.borrowed
        del there[lease.neighbour, lease.number]

    def take_changed(self) -> tuple[Lease, ...]:
        """Return the records that have changed since the last call."""
        changed, self.changed = tuple(self.changed.values()), {}
        return changed

    def all(self) -> list[Lease]:
        """Return the leases, first those that are lent."""
        return [*self.lent.values(), *self.borrowed.values()]

    def lent_to(self, neighbour: str) -> list[LentLease]:
        return [each for each in self.lent.values() if each.neighbour == neighbour]

    def borrowed_of(self, neighbour: str) -> list[BorrowedLease]:
        return [each for each in self.borrowed.values() if each.neighbour == neighbour]

    def borrowed_for(self, lease: LentLease) -> BorrowedLease | None:
        """Return the lease that this one passes on; None if it passes none on, or that is gone."""
        return None if lease.beyond is None else self.borrowed.get(lease.beyond)

    def lent_on(self, lease: BorrowedLease) -> LentLease | None:
        """Return the lease by which this one is passed on; None if it is not, or that is gone."""
        return None if lease.beyond is None else self.lent.get(lease.beyond)

    def _put(self, lease: Lease) -> None:
        if isinstance(lease, LentLease):
            self.lent[lease.neighbour, lease.number] = lease
        else:
            self.borrowed[lease.neighbour, lease.number] = lease
