"""A site as its manager sees it: its processors, and the state of each request. All state of the manager is here.

Neighbours report their free processors to each other, which orders the targets of delegation (SC'07, section 4.4). One
site serves a request. A site therefore reports the most that one site can give through it, without the way back. A
child gets reports of the sites below, beside and above; all others get reports of the sites below. A report may be out
of date by one matchmaking cycle per link.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koalapy.experiments.interop.site_manager.messages import (
    Command,
    FreeReported,
    Lease,
    ReportFree,
    RequestId,
    ResourceRequest,
)
from koalapy.model.neighbour import Relation
from koalapy.model.units import HOUR, MINUTE, Duration, Instant
from koalapy.policies.delegation import DelegationPolicy, TargetPolicy, WaitingRequest


class Usage:
    """The processor time of this site's users, and of each neighbour's link, in processor-microseconds.

    `by_user`: of this site's users, on any site's processors. `lent`, `borrowed`: over each neighbour's link.
    """

    def __init__(self) -> None:
        self.by_user: Counter[str] = Counter()
        self.lent: Counter[str] = Counter()
        self.borrowed: Counter[str] = Counter()

    def charge(
        self, user: str, sender: str | None, target: str | None, processors: int, since: Instant, now: Instant
    ) -> None:
        """Charge for a lease that has ended, whether it was used or not (section 4.3, on cancelling)."""
        amount = processors * (now - since)
        if sender is None:
            self.by_user[user] += amount
        else:
            self.lent[sender] += amount
        if target is not None:
            self.borrowed[target] += amount


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """The settings of one site.

    `threshold`: the load above which requests are delegated; 1.0 means all of the site's processors.
    `delegation_interval`, `matchmaking_interval`: the time between two cycles of each kind. `dttl`: how many links a
    request of this site may pass, if its user does not ask for fewer. `remember_for`: how long a request is remembered,
    and not accepted again in the same round. `max_passes`: matchmaking cycles in which others may pass a request that
    does not fit. `reports`: whether neighbours report their free processors to each other.
    """

    name: str
    processors: int = 0  # none: the site is administrative
    neighbours: Mapping[str, Relation] = field(default_factory=dict)
    threshold: float = 1.0
    delegation_interval: Duration = MINUTE
    matchmaking_interval: Duration = Duration(5 * MINUTE)
    dttl: int = 4
    max_passes: int = 48
    remember_for: Duration = HOUR
    reports: bool = True


class Phase(StrEnum):
    """The phase of a request at one site."""

    WAITING = "waiting"  # for this site's processors, or to be delegated
    DELEGATED = "delegated"  # to a neighbour that has not answered
    OFFERED = "leased"  # by a neighbour; accepted in the next delegation cycle
    IN_USE = "in_use"  # by a job manager of this site, or a neighbour
    CANCELLED = "cancelled"  # while a neighbour has not answered yet


@dataclass(eq=False, slots=True)
class RequestState:
    """The state of a request at this site.

    `sender`: the neighbour that delegated it here, None if it began here.
    """

    request: ResourceRequest
    sender: str | None
    arrival: int
    phase: Phase = Phase.WAITING
    target: str | None = None  # the neighbour that it was delegated to
    rejected_by: set[str] = field(default_factory=set)  # in this round
    passes: int = 0  # matchmaking cycles in which others passed it
    lease: Lease | None = None
    accepted: bool = False  # by the borrower

    @property
    def awaits_answer(self) -> bool:
        """Return whether a neighbour was asked and has not answered."""
        return self.phase in (Phase.DELEGATED, Phase.CANCELLED)

    @property
    def wait(self) -> WaitingRequest:
        return WaitingRequest(self.request.processors, self.arrival)


class RequestOrder:
    """Waiting requests in the order of a policy, whose sort key must not change while they wait."""

    def __init__(self, policy: DelegationPolicy) -> None:
        self._policy = policy
        self._entries: list[tuple[Any, int, RequestState]] = []
        self._entry: dict[int, tuple[Any, int, RequestState]] = {}  # by `arrival`, which is unique at a site

    def add(self, state: RequestState) -> None:
        entry = self._entry[state.arrival] = (self._policy(state.wait), state.arrival, state)
        insort(self._entries, entry)

    def remove(self, state: RequestState) -> None:
        """Remove the request; nothing happens if it is not there."""
        entry = self._entry.pop(state.arrival, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]

    def first(self) -> RequestState | None:
        return self._entries[0][2] if self._entries else None

    def __iter__(self) -> Iterator[RequestState]:
        """Iterate over a copy: changes in the meantime have no effect."""
        for _, _, state in self._entries.copy():
            yield state

    def __len__(self) -> int:
        return len(self._entries)


class Site:
    """The processors, requests and reports of one site."""

    def __init__(self, settings: SiteSettings, delegation: DelegationPolicy, targets: TargetPolicy) -> None:
        self.settings = settings
        self.target_policy = targets
        self.reachable_through = {name: _reachable_through(settings, name) for name in settings.neighbours}
        self.connects = (
            Relation.CHILD in settings.neighbours.values()
        )  # it joins its children with the other neighbours
        self.total = self.free = settings.processors
        self.requests: dict[RequestId, RequestState] = {}
        self.waiting = RequestOrder(lambda wait: wait.arrival)  # the dispatching policy: first come, first served
        self.delegable = RequestOrder(delegation)  # waiting requests that a neighbour may take
        self.delegated_here: dict[RequestId, RequestState] = {}  # waiting requests of neighbours
        self.demand = 0  # processors of all waiting requests
        self.reserving: dict[
            RequestId, RequestState
        ] = {}  # waiting requests with a reservation for the next matchmaking cycle
        self.reserved = 0  # processors of these
        self.blocking: RequestState | None = None  # the request that no other may pass since the last matchmaking cycle
        self.offered: list[RequestState] = []  # in phase OFFERED
        self.known_rounds: dict[tuple[RequestId, int], Instant] = {}  # requests and their rounds, the oldest first
        self.reported: dict[str, int] = {}  # free processors that each neighbour reported
        self.pending: Counter[str] = Counter()  # processors of unanswered requests to each neighbour
        self.last_reported: dict[str, int] = {}  # the last report to each neighbour
        self.usage = Usage()
        self.delegations = 0  # the number of delegations so far
        self.match_needed = True  # whether a matchmaking cycle may have an effect
        self._arrivals = 0
        self.commands: list[Command] = []  # of the present step

    @property
    def load(self) -> float:
        """Processors in use and waited for, as a part of all processors.

        A site without processors has infinite load as soon as a request waits.
        """
        wanted = self.total - self.free + self.demand
        return wanted / self.total if self.total > 0 else float("inf") if wanted else 0.0

    @property
    def overloaded(self) -> bool:
        return self.load > self.settings.threshold

    @property
    def available(self) -> int:
        """Processors that one more request could get: free, within the threshold, and not reserved.

        A waiting request that cannot get them does not keep them from others, unless no other may pass it.
        """
        if self.blocking is not None:
            return 0
        below = int(self.total * self.settings.threshold) - (self.total - self.free)
        return max(0, min(self.free, below) - self.reserved)

    def add_request(self, request: ResourceRequest, sender: str | None) -> RequestState:
        """Add a request that came from a neighbour, or from a job manager (None)."""
        self._arrivals += 1
        state = RequestState(request, sender, self._arrivals)
        self.requests[request.id] = state
        return state

    def enqueue(self, state: RequestState, delegable: bool) -> None:
        """Let the request wait, for the first time or again, in the order of its arrival."""
        state.phase, state.target = Phase.WAITING, None
        self.match_needed = True
        if state.sender is not None:
            self.delegated_here[state.request.id] = state
        if state.request.processors <= self.available:
            self.reserving[state.request.id] = state
            self.reserved += state.request.processors
        self.demand += state.request.processors
        if state.request.processors <= self.total:
            self.waiting.add(state)
        if delegable:
            self.delegable.add(state)

    def dequeue(self, state: RequestState) -> None:
        """Take the request out of all queues."""
        self.demand -= state.request.processors
        if self.reserving.pop(state.request.id, None) is not None:
            self.reserved -= state.request.processors
        if self.blocking is state:
            self.blocking, self.match_needed = None, True
        self.delegated_here.pop(state.request.id, None)
        self.waiting.remove(state)
        self.delegable.remove(state)

    def clear_reservations(self) -> None:
        """Drop the reservations after matchmaking, since requests that were not served need them no more."""
        self.reserving.clear()
        self.reserved = 0

    def resize(self, processors: int) -> None:
        """Change the number of processors. Those in use stay so: `free` may be negative until they are returned."""
        self.free += processors - self.total
        self.total = processors
        for state in [each for each in self.requests.values() if each.phase is Phase.WAITING]:
            delegable = any(each is state for each in self.delegable)
            self.dequeue(state)
            self.enqueue(state, delegable)
        self.match_needed = True

    def forget(self, state: RequestState) -> None:
        del self.requests[state.request.id]


def _reachable_through(settings: SiteSettings, name: str) -> tuple[str, ...]:
    """Return the other neighbours whose processors `name` can have through this site.

    A child can have those of all others, other neighbours only those of the children.
    """
    relations = settings.neighbours
    up = relations[name] is Relation.CHILD
    return tuple(each for each in relations if each != name and (up or relations[each] is Relation.CHILD))


def on_free_reported(site: Site, now: Instant, event: FreeReported) -> None:
    """Note a neighbour's report."""
    if not site.settings.reports:
        return
    if event.sender in site.settings.neighbours and site.reported.get(event.sender) != event.processors:
        site.reported[event.sender] = event.processors
        site.match_needed |= site.connects  # to report it to others


def report_free(site: Site) -> None:
    """Report to each neighbour whose last report is no longer correct."""
    if not site.settings.reports:
        return
    for name in site.settings.neighbours:
        free = free_through(site, name)
        if site.last_reported.get(name) != free:
            site.last_reported[name] = free
            site.commands.append(ReportFree(name, free))


def free_through(site: Site, name: str) -> int:
    """Return the most processors that one site, this one or one behind it, could give to the neighbour."""
    most, reported = site.available, site.reported
    for each in site.reachable_through.get(name, ()):
        free = reported.get(each, 0)
        if free > most:
            most = free
    return most
