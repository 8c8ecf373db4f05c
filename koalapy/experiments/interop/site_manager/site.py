"""A site as its manager sees it: its processors, and the state of each request. All state of the manager is here."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koalapy.experiments.interop.site_manager.messages import Command, Lease, RequestId, ResourceRequest
from koalapy.experiments.interop.site_manager.network import SiteSettings
from koalapy.experiments.interop.site_manager.usage import Usage
from koalapy.model.neighbour import Relation
from koalapy.model.units import Instant
from koalapy.policies.delegation import DelegationPolicy, TargetPolicy, WaitingRequest


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
