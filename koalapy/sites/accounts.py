"""The accounts of a site with its neighbours: each lease that has ended, at the charge that its lender has measured."""

from koalapy.core.core import Core
from koalapy.model.ended_lease import EndedLease
from koalapy.model.errors import Reason
from koalapy.model.lease import BorrowedLease, Lease, LentLease
from koalapy.model.units import Instant

LARGEST = 1 << 53  # a record may have no larger number; the sums of accounts have no bound


def close_lent(core: Core, now: Instant, lease: LentLease, charge: int, reason: Reason) -> None:
    """Charge a neighbour for a lease that has ended."""
    record = core.neighbours.records[lease.neighbour]
    core.neighbours.change(record.name, lent=min(record.lent + charge, LARGEST))
    core.records.end_lease(_account(core, now, lease, charge, charge, reason))


def close_borrowed(core: Core, now: Instant, lease: BorrowedLease, charge: int | None, reason: Reason) -> None:
    """Enter what a neighbour has charged for a lease. `charge`: None if it will not report that any more."""
    if charge is not None:
        borrowed = core.neighbours.records[lease.neighbour].borrowed + charge
        core.neighbours.change(lease.neighbour, borrowed=min(borrowed, LARGEST))
    core.records.end_lease(_account(core, now, lease, charge, measured(now, lease), reason))


def measured(now: Instant, lease: Lease) -> int:
    """Return the processor-microseconds of a lease until now; 0 for one that was never bound."""
    return 0 if lease.bound_at is None else lease.processors * max(0, now - lease.bound_at)


def _account(core: Core, now: Instant, lease: Lease, charge: int | None, own: int, reason: Reason) -> EndedLease:
    job = None if lease.job is None else core.records.jobs.get(lease.job)
    if isinstance(lease, LentLease):
        cluster = "" if job is None else job.request.components[0].cluster or ""
    else:
        cluster = "" if lease.beyond is not None else lease.cluster
    origin = lease.origin
    return EndedLease(
        neighbour=lease.neighbour,
        lent=lease.lent,
        number=lease.number,
        asked_at=lease.asked_at,
        began_at=min(now, now if lease.bound_at is None else lease.bound_at),
        ended_at=now,
        processors=lease.processors,
        charge=charge or 0,
        measured=own,
        reported=charge is not None,
        job=lease.job,
        cluster=cluster,
        beyond="" if lease.beyond is None else lease.beyond[0],
        links=lease.length,
        site="" if origin is None else origin.site,
        request=(lease.job or 0) if origin is None else origin.number,
        user=lease.user,
        name=lease.name,
        code=reason.code,
        message=reason.message,
    )
