"""Leases that have ended: the account of each at one side of a link, and sums of what was lent and borrowed.

The lender measures what a lease costs, and reports it at the end: its *charge*, which both sides record. The borrower
has measured too. Where the two figures differ, the difference is shown.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import JobId
from koalapy.model.lease import Lease
from koalapy.model.units import DAY, Instant


class LeaseKey(NamedTuple):
    """The identity of an account. A neighbour that joins anew counts its leases from 1 again, but asks later."""

    neighbour: str
    lent: bool
    number: int
    asked_at: Instant


def key_of(lease: Lease) -> LeaseKey:
    """Return the key that the account of a lease has, or will have."""
    return LeaseKey(lease.neighbour, lease.lent, lease.number, lease.asked_at)


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class EndedLease:
    """The account of a lease that has ended, by the clock of this side.

    `neighbour`, `lent`, `number`, `asked_at`, `job`, `beyond`, `links`: as in Lease, whose `length` are the links.
    `cluster`: the one whose processors were lent, or the one that the lease was here. `site`, `request`: where the
    request began, and its number there. `user`, `name`: of the job there, as that site reported them. `code` and
    `message`: why the lease ended. `charge`, `measured`: the lender's figure and this side's own, in
    processor-microseconds. `reported`: the lender's figure is known; without it the charge is 0.
    """

    neighbour: str
    lent: bool
    number: int
    asked_at: Instant
    began_at: Instant
    ended_at: Instant
    processors: int
    charge: int
    measured: int
    reported: bool = True
    job: JobId | None = None
    cluster: str = ""
    beyond: str = ""
    links: int = 0
    site: str = ""
    request: int = 0
    user: str = ""
    name: str = ""
    code: str = ""
    message: str = ""

    @property
    def key(self) -> LeaseKey:
        return LeaseKey(self.neighbour, self.lent, self.number, self.asked_at)


class Charged(NamedTuple):
    """Sums over leases with one neighbour, in processor-microseconds, and the number of the leases.

    `lent`, `borrowed`: what the lender charged. `measured`: of the borrowed ones, what this side has measured.
    `lent_now`, `borrowed_now`: of leases that go on, up to now; they are not charged yet.
    """

    lent: int = 0
    borrowed: int = 0
    measured: int = 0
    leases: int = 0
    lent_now: int = 0
    borrowed_now: int = 0

    def plus(self, other: "Charged") -> "Charged":
        return Charged(*(mine + its for mine, its in zip(self, other, strict=True)))


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDay:
    """The sums of one neighbour on a UTC day, of accounts that were pruned. `day`: the instant of its midnight."""

    day: Instant
    neighbour: str
    charged: Charged


def charges(
    leases: Iterable[EndedLease],
    since: Instant | None = None,
    until: Instant | None = None,
    days: Iterable[LeaseDay] = (),
) -> dict[str, Charged]:
    """Sum leases within [since, until) by neighbour. `days` count whole, if they begin within the bounds."""
    found: dict[str, Charged] = {}
    for each in leases:
        start = each.began_at if since is None else max(since, each.began_at)
        end = each.ended_at if until is None else min(until, each.ended_at)
        if start < end or (start == end == each.began_at == each.ended_at):
            found[each.neighbour] = found.get(each.neighbour, Charged()).plus(_part(each, start, end))
    for day in days:
        if (since is None or since <= day.day) and (until is None or day.day < until):
            found[day.neighbour] = found.get(day.neighbour, Charged()).plus(day.charged)
    return found


def charged_now(leases: Iterable[Lease], now: Instant, since: Instant | None = None) -> dict[str, Charged]:
    """Sum the leases that go on, by neighbour, from `since` until now."""
    found: dict[str, Charged] = {}
    for each in leases:
        if each.bound_at is not None and not each.state.ended:
            time = each.processors * max(0, now - max(each.bound_at, since or each.bound_at))
            part = Charged(lent_now=time) if each.lent else Charged(borrowed_now=time)
            found[each.neighbour] = found.get(each.neighbour, Charged()).plus(part)
    return found


def lease_days(leases: Iterable[EndedLease]) -> list[LeaseDay]:
    """Return the leases summed by UTC day and neighbour, in this order."""
    found: dict[tuple[int, str], Charged] = {}
    for each in leases:
        for start, end in _pieces(each):
            key = (start // DAY * DAY, each.neighbour)
            found[key] = found.get(key, Charged()).plus(_part(each, start, end))
    return [
        LeaseDay(day=Instant(day), neighbour=name, charged=charged) for (day, name), charged in sorted(found.items())
    ]


def _pieces(lease: EndedLease) -> Iterator[tuple[Instant, Instant]]:
    """Yield the lease's span, cut at midnight."""
    start = lease.began_at
    while start // DAY < (lease.ended_at - 1) // DAY:
        midnight = Instant((start // DAY + 1) * DAY)
        yield start, midnight
        start = midnight
    yield start, lease.ended_at


def _part(lease: EndedLease, start: Instant, end: Instant) -> Charged:
    """Return what belongs to a part of the lease's span. All parts of a lease together have its very charge.

    The lease is counted at its last part, so that no two days count it.
    """
    charge, measured = (_share(lease, amount, start, end) for amount in (lease.charge, lease.measured))
    last = int(end == lease.ended_at)
    return Charged(lent=charge, leases=last) if lease.lent else Charged(0, charge, measured, last)


def _share(lease: EndedLease, amount: int, start: Instant, end: Instant) -> int:
    span = lease.ended_at - lease.began_at
    return amount * (end - lease.began_at) // span - amount * (start - lease.began_at) // span if span else amount
