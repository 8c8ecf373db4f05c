"""A site as its manager sees it: its processors, and where each request stands. All state of the manager is here."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koalapy.model.units import Instant
from koalapy.policies.delegation import DelegationPolicy, TargetPolicy, WaitingRequest
from koalapy.sites.messages import Command, Lease, RequestId, ResourceRequest
from koalapy.sites.network import Relation, SiteSettings
from koalapy.sites.usage import Usage


class Phase(StrEnum):
    WAITING = "waiting"  # for this site's processors, or to be delegated
    DELEGATED = "delegated"  # a neighbour was asked and has not answered
    OFFERED = "leased"  # a neighbour's processors came, and go on with the next delegation cycle
    IN_USE = "in_use"  # bound to whoever asked: a job manager of this site, or a neighbour
    CANCELLED = "cancelled"  # a neighbour was asked before, and has not answered yet


@dataclass(eq=False, slots=True)
class RequestState:
    """A request as it stands at this site. `sender`: the neighbour that delegated it here, None if it began here."""

    request: ResourceRequest
    sender: str | None
    arrival: int
    phase: Phase = Phase.WAITING
    target: str | None = None  # whom it was delegated to, and whose processors it has
    rejected_by: set[str] = field(default_factory=set)  # neighbours that would not, in this round
    passes: int = 0  # matchmaking cycles in which others passed it
    lease: Lease | None = None
    accepted: bool = False  # by the neighbour that it is lent to

    @property
    def awaits_answer(self) -> bool:
        return self.phase in (Phase.DELEGATED, Phase.CANCELLED)

    @property
    def wait(self) -> WaitingRequest:
        return WaitingRequest(self.request.processors, self.arrival)


class RequestOrder:
    """Waiting requests in the order of a policy; the policy looks at what does not change while they wait."""

    def __init__(self, policy: DelegationPolicy) -> None:
        self._policy = policy
        self._entries: list[tuple[Any, int, RequestState]] = []
        self._entry: dict[int, tuple[Any, int, RequestState]] = {}  # by place, which is unique at a site

    def add(self, state: RequestState) -> None:
        entry = self._entry[state.arrival] = (self._policy(state.wait), state.arrival, state)
        insort(self._entries, entry)

    def remove(self, state: RequestState) -> None:
        """Nothing happens if it is not there."""
        entry = self._entry.pop(state.arrival, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]

    def first(self) -> RequestState | None:
        return self._entries[0][2] if self._entries else None

    def __iter__(self) -> Iterator[RequestState]:
        """As it is now; what happens meanwhile changes nothing. Who stops early has paid for little."""
        for _, _, state in self._entries.copy():
            yield state

    def __len__(self) -> int:
        return len(self._entries)


class Site:
    def __init__(self, settings: SiteSettings, delegation: DelegationPolicy, targets: TargetPolicy) -> None:
        self.settings = settings
        self.target_policy = targets
        self.reachable_through = {name: _reachable_through(settings, name) for name in settings.neighbours}
        self.connects = Relation.CHILD in settings.neighbours.values()  # it joins what is below it with the rest
        self.total = self.free = settings.processors
        self.requests: dict[RequestId, RequestState] = {}
        self.waiting = RequestOrder(lambda wait: wait.arrival)  # the dispatching policy: first come, first served
        self.delegable = RequestOrder(delegation)  # those that wait and have a neighbour to be delegated to
        self.delegated_here: dict[RequestId, RequestState] = {}  # of those that wait, the neighbours'
        self.demand = 0  # processors that those wait for
        self.reserving: dict[RequestId, RequestState] = {}  # of those, whom the next matchmaking cycle should serve
        self.reserved = 0  # processors that these want
        self.blocking: RequestState | None = None  # whom the last matchmaking cycle let nobody pass
        self.offered: list[RequestState] = []  # LEASED
        self.known_rounds: dict[tuple[RequestId, int], Instant] = {}  # requests and their rounds, in order of time
        self.reported: dict[str, int] = {}  # what could be had through each neighbour
        self.pending: Counter[str] = Counter()  # processors for which each neighbour was asked and has not answered
        self.last_reported: dict[str, int] = {}  # what each neighbour was told
        self.usage = Usage()
        self.delegations = 0  # counts delegations
        self.match_needed = True  # whether matchmaking could find, or tell, what it did not the last time
        self._arrivals = 0
        self.commands: list[Command] = []  # of the step that is under way

    @property
    def load(self) -> float:
        """What is in use and waited for, by what there is. A site without processors is full as soon as one waits."""
        wanted = self.total - self.free + self.demand
        return wanted / self.total if self.total > 0 else float("inf") if wanted else 0.0

    @property
    def overloaded(self) -> bool:
        return self.load > self.settings.threshold

    @property
    def available(self) -> int:
        """Processors that one more request could get: free, within the threshold, and not expected by another.

        What waits without hope of them keeps them from nobody, unless nobody may pass it.
        """
        if self.blocking is not None:
            return 0
        below = int(self.total * self.settings.threshold) - (self.total - self.free)
        return max(0, min(self.free, below) - self.reserved)

    def add_request(self, request: ResourceRequest, sender: str | None) -> RequestState:
        self._arrivals += 1
        state = RequestState(request, sender, self._arrivals)
        self.requests[request.id] = state
        return state

    def enqueue(self, state: RequestState, delegable: bool) -> None:
        """It waits, from now on or again, where its arrival puts it."""
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
        self.demand -= state.request.processors
        if self.reserving.pop(state.request.id, None) is not None:
            self.reserved -= state.request.processors
        if self.blocking is state:
            self.blocking, self.match_needed = None, True
        self.delegated_here.pop(state.request.id, None)
        self.waiting.remove(state)
        self.delegable.remove(state)

    def clear_reservations(self) -> None:
        """Matchmaking is over: what it has not served need not count on the processors that are left."""
        self.reserving.clear()
        self.reserved = 0

    def resize(self, processors: int) -> None:
        """What is in use stays so: `free` may be negative until it is released."""
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
    """Through whom else a neighbour may have processors: a child through all others, all others through children."""
    relations = settings.neighbours
    up = relations[name] is Relation.CHILD
    return tuple(each for each in relations if each != name and (up or relations[each] is Relation.CHILD))
