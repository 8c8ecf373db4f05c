"""A neighbour: another site, with which this one exchanges messages."""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.errors import Reason
from koalapy.model.lease import BorrowedLease, Refusal
from koalapy.model.units import Instant


class Relation(StrEnum):
    """The relation of a neighbour to a site (SC'07, section 4.1). Siblings have the same parent, or none has one."""

    PARENT = "parent"
    CHILD = "child"
    SIBLING = "sibling"

    @property
    def reverse(self) -> "Relation":
        """The relation of the site to this neighbour."""
        return _REVERSE[self]


_REVERSE = {
    Relation.PARENT: Relation.CHILD,
    Relation.CHILD: Relation.PARENT,
    Relation.SIBLING: Relation.SIBLING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Requests of one direction, and how they were answered. `refused`: by the code of the reason, sorted."""

    asked: int = 0
    granted: int = 0
    refused: tuple[tuple[str, int], ...] = ()
    last_refusal: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCounts:
    """The counts of a link since the neighbour joined. `ours`: this site's requests to it, `theirs`: its requests here.

    `misbehaved`: what it did that it should not, by kind, sorted.
    """

    ours: RequestCounts = RequestCounts()
    theirs: RequestCounts = RequestCounts()
    misbehaved: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """The record of a neighbour: what this site has received from it, and what it has been sent.

    `instance`: that of the neighbour's store. `received`: the number of the newest message of that store. Messages of a
    lower number were handled already. `free`: the processors that the neighbour reported last, `reported_at` when.
    `sent_free`: the number that it was sent last. `gone`: the neighbour was removed, and so is its record.

    `refusals`: why it did not serve jobs that wait here. `next_lease`: the number of the next request to it. `lent`,
    `borrowed`: processor-microseconds of ended leases. `given_up`: borrowed leases that ended without
    its report, the newest ones; it may charge for each once.
    """

    name: str
    relation: Relation
    instance: str = ""
    received: int = 0
    free: int | None = None
    reported_at: Instant | None = None
    sent_free: int | None = None
    gone: bool = False
    refusals: tuple[Refusal, ...] = ()
    next_lease: int = 1
    lent: int = 0
    borrowed: int = 0
    counts: LinkCounts = LinkCounts()
    given_up: tuple[BorrowedLease, ...] = ()
