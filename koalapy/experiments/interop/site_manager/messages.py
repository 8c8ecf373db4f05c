"""The messages of site managers and job managers: events in, commands out.

A message to a neighbour leaves as a command and arrives there as the event of the same line of this table:

    DelegateRequest -> RequestDelegated       RejectRequest -> RequestRejected
    OfferLease -> LeaseOffered                AcceptLease -> LeaseAccepted
    ReturnLease -> LeaseReturned              CancelRequest -> RequestCancelled
    ReportFree -> FreeReported

All of them may arrive twice or too late without harm; none may overtake another on the same link.
"""

from typing import NamedTuple

from koalapy.model.units import Instant


class RequestId(NamedTuple):
    """A request's number at its site; unique among all sites."""

    site: str
    number: int


class ResourceRequest(NamedTuple):
    """Processors of one site, all at once, for one user.

    `dttl`: how many links it may still pass. `round`: how often its site has begun to ask its neighbours again.
    """

    id: RequestId
    user: str
    processors: int
    dttl: int
    round: int = 0


class Lease(NamedTuple):
    """Processors bound to a request, from `source`, over a chain of `length` links, since they were matched."""

    id: RequestId
    source: str
    length: int
    since: Instant


# ---- events. `sender`: the neighbour, None for a job manager of this site


class RequestSubmitted(NamedTuple):
    """A job manager of this site submitted a request; `dttl` is what the user asked for."""

    request: ResourceRequest


class RequestDelegated(NamedTuple):
    sender: str
    request: ResourceRequest


class RequestRejected(NamedTuple):
    """The sender rejected a request. `processors`: the most that one site can give through the sender now."""

    sender: str
    id: RequestId
    processors: int


class LeaseOffered(NamedTuple):
    sender: str
    lease: Lease


class LeaseAccepted(NamedTuple):
    sender: str
    id: RequestId


class LeaseReturned(NamedTuple):
    sender: str | None
    id: RequestId


class RequestCancelled(NamedTuple):
    sender: str | None
    id: RequestId


class FreeReported(NamedTuple):
    """The most processors that one site can give through the sender; it may have changed since."""

    sender: str
    processors: int


class ProcessorsChanged(NamedTuple):
    """The number of this site's processors changed. Those in use stay in use."""

    processors: int


Event = (
    RequestSubmitted
    | RequestDelegated
    | RequestRejected
    | LeaseOffered
    | LeaseAccepted
    | LeaseReturned
    | RequestCancelled
    | FreeReported
    | ProcessorsChanged
)


# ---- commands


class DelegateRequest(NamedTuple):
    to: str
    request: ResourceRequest


class RejectRequest(NamedTuple):
    to: str
    id: RequestId
    processors: int


class OfferLease(NamedTuple):
    to: str
    lease: Lease


class AcceptLease(NamedTuple):
    to: str
    id: RequestId


class ReturnLease(NamedTuple):
    to: str
    id: RequestId


class CancelRequest(NamedTuple):
    to: str
    id: RequestId


class ReportFree(NamedTuple):
    to: str
    processors: int


class GrantLease(NamedTuple):
    """Grant the processors to the job manager: the request has them until it returns the lease."""

    lease: Lease


Command = (
    DelegateRequest | RejectRequest | OfferLease | AcceptLease | ReturnLease | CancelRequest | ReportFree | GrantLease
)
