"""Leases: processors that one site lends to another one."""

from typing import Literal

from typing_extensions import TypedDict

from koalapy.answers.fields import Instant


class Lease(TypedDict):
    """A lease, or the request for it."""

    name: str
    """Of its cluster at the borrower; at the lender, of the pilot that holds it; one that is passed on has two rows."""
    direction: Literal["lent", "borrowed"]
    neighbour: str
    reachable: bool
    """Whether the neighbour is connected."""
    state: Literal["asked", "binding", "bound", "revoking", "closing", "ended"]
    """`asked`: the lender has not answered; `binding`: its pilot does not run yet; `bound`: it is a cluster;
    `revoking`: its lender takes it back."""
    processors: int
    on: str | None
    """The cluster whose processors are lent; null for a borrowed one."""
    beyond: str | None
    """The neighbour on the other side, of a lease that is passed on."""
    links: int
    """From where the processors are to this site; 0 before it is bound."""
    job: int | None
    """For which it was borrowed; at the lender, that which holds it; null for one that is passed on."""
    asked_at: Instant
    bound_at: Instant | None
    ends_at: Instant | None
    jobs: list[int]
    """Jobs that are on a borrowed one."""


class EndedLease(TypedDict):
    """A lease that has ended: who had which processors under whose word, and what it cost. Times are of this site."""

    name: str
    direction: Literal["lent", "borrowed"]
    neighbour: str
    processors: int
    on: str | None
    """The cluster whose processors were lent, or that the lease was here; null for one that was passed on."""
    beyond: str | None
    links: int
    job: int | None
    """As in Lease."""
    site: str | None
    """Where the request began; null for this site."""
    request: int
    """The job's id there."""
    user: str
    """Of the job, as that site reported it; so is its name."""
    job_name: str
    asked_at: Instant
    began_at: Instant
    ended_at: Instant
    charged_s: float
    """Processor-seconds by the lender's figure."""
    measured_s: float
    """By this side's."""
    reported: bool
    """Whether the lender has reported its figure."""
    code: str
    """Why it ended."""
    message: str


class SiteUsage(TypedDict):
    """The processor-seconds that were lent to a neighbour and borrowed of it, in leases that have ended."""

    neighbour: str
    lent_s: float
    borrowed_s: float


class LeaseAnswer(TypedDict):
    """A lease that is being ended."""

    schema: Literal["koala.lease/1"]
    lease: Lease


class LeasesAnswer(TypedDict):
    """All leases that are not over, and the sums of those that are."""

    schema: Literal["koala.leases/1"]
    leases: list[Lease]
    ended: list[EndedLease]
    """Those that have ended, if they were asked for, the oldest first."""
    usage: list[SiteUsage]
