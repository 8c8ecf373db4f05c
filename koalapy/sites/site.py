"""A site as its manager sees it: its processors, and where each request stands. All state of the manager is here."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from koalapy.model.units import Instant
from koalapy.policies.delegation import DelegationPolicy, TargetPolicy, Wait
from koalapy.sites.network import Relation, SiteSettings
from koalapy.sites.usage import Usage
from koalapy.sites.words import Command, Lease, RequestId, ResourceRequest


class Phase(StrEnum):
    WAITING = "waiting"  # for this site's processors, or to be delegated
    DELEGATED = "delegated"  # a neighbour was asked and has not answered
    LEASED = "leased"  # a neighbour's processors came, and go on with the next delegation cycle
    IN_USE = "in_use"  # bound to whoever asked: a job manager of this site, or a neighbour
    CANCELLED = "cancelled"  # a neighbour was asked before, and has not answered yet


@dataclass(eq=False, slots=True)
class Standing:
    """A request as it stands at this site. `sender`: the neighbour that delegated it here, None if it began here."""

    request: ResourceRequest
    sender: str | None
    place: int
    phase: Phase = Phase.WAITING
    target: str | None = None  # whom it was delegated to, and whose processors it has
    refused: set[str] = field(default_factory=set)  # neighbours that would not, in this round
    passes: int = 0  # matchmaking cycles in which others passed it
    lease: Lease | None = None
    claimed: bool = False  # by the neighbour that it is lent to

    @property
    def awaits_answer(self) -> bool:
        return self.phase in (Phase.DELEGATED, Phase.CANCELLED)

    @property
    def wait(self) -> Wait:
        return Wait(self.request.processors, self.place)


class Order:
    """Waiting requests in the order of a policy; the policy looks at what does not change while they wait."""

    def __init__(self, policy: DelegationPolicy) -> None:
        self._policy = policy
        self._entries: list[tuple[Any, int, Standing]] = []
        self._entry: dict[int, tuple[Any, int, Standing]] = {}  # by place, which is unique at a site

    def add(self, standing: Standing) -> None:
        entry = self._entry[standing.place] = (self._policy(standing.wait), standing.place, standing)
        insort(self._entries, entry)

    def remove(self, standing: Standing) -> None:
        """Nothing happens if it is not there."""
        entry = self._entry.pop(standing.place, None)
        if entry is not None:
            del self._entries[bisect_left(self._entries, entry)]

    def first(self) -> Standing | None:
        return self._entries[0][2] if self._entries else None

    def __iter__(self) -> Iterator[Standing]:
        """As it is now; what happens meanwhile changes nothing. Who stops early has paid for little."""
        for _, _, standing in self._entries.copy():
            yield standing

    def __len__(self) -> int:
        return len(self._entries)


class Site:
    def __init__(self, settings: SiteSettings, delegation: DelegationPolicy, targets: TargetPolicy) -> None:
        self.settings = settings
        self.target_policy = targets
        self.behind = {name: _behind(settings, name) for name in settings.neighbours}
        self.between = Relation.CHILD in settings.neighbours.values()  # it joins what is below it with the rest
        self.total = self.free = settings.processors
        self.standings: dict[RequestId, Standing] = {}
        self.waiting = Order(lambda wait: wait.place)  # the dispatching policy: first come, first served
        self.delegable = Order(delegation)  # those that wait and have a neighbour to be delegated to
        self.guests: dict[RequestId, Standing] = {}  # of those that wait, the neighbours'
        self.demand = 0  # processors that those wait for
        self.expecting: dict[RequestId, Standing] = {}  # of those, whom the next matchmaking cycle should serve
        self.expected = 0  # processors that these want
        self.blocker: Standing | None = None  # whom the last matchmaking cycle let nobody pass
        self.handing_on: list[Standing] = []  # LEASED
        self.seen: dict[tuple[RequestId, int], Instant] = {}  # requests and their rounds, in order of time
        self.reported: dict[str, int] = {}  # what could be had through each neighbour
        self.asked: Counter[str] = Counter()  # processors for which each neighbour was asked and has not answered
        self.told: dict[str, int] = {}  # what each neighbour was told
        self.usage = Usage()
        self.turn = 0  # counts delegations
        self.stirred = True  # whether matchmaking could find, or tell, what it did not the last time
        self._places = 0
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
    def spare(self) -> int:
        """Processors that one more request could get: free, within the threshold, and not expected by another.

        What waits without hope of them keeps them from nobody, unless nobody may pass it.
        """
        if self.blocker is not None:
            return 0
        below = int(self.total * self.settings.threshold) - (self.total - self.free)
        return max(0, min(self.free, below) - self.expected)

    def enter(self, request: ResourceRequest, sender: str | None) -> Standing:
        self._places += 1
        standing = Standing(request, sender, self._places)
        self.standings[request.id] = standing
        return standing

    def put_in_line(self, standing: Standing, delegable: bool) -> None:
        """It waits, from now on or again, where its arrival puts it."""
        standing.phase, standing.target = Phase.WAITING, None
        self.stirred = True
        if standing.sender is not None:
            self.guests[standing.request.id] = standing
        if standing.request.processors <= self.spare:
            self.expecting[standing.request.id] = standing
            self.expected += standing.request.processors
        self.demand += standing.request.processors
        if standing.request.processors <= self.total:
            self.waiting.add(standing)
        if delegable:
            self.delegable.add(standing)

    def take_out_of_line(self, standing: Standing) -> None:
        self.demand -= standing.request.processors
        if self.expecting.pop(standing.request.id, None) is not None:
            self.expected -= standing.request.processors
        if self.blocker is standing:
            self.blocker, self.stirred = None, True
        self.guests.pop(standing.request.id, None)
        self.waiting.remove(standing)
        self.delegable.remove(standing)

    def expect_nothing(self) -> None:
        """Matchmaking is over: what it has not served need not count on the processors that are left."""
        self.expecting.clear()
        self.expected = 0

    def resize(self, processors: int) -> None:
        """What is in use stays so: `free` may be negative until it is released."""
        self.free += processors - self.total
        self.total = processors
        for standing in [each for each in self.standings.values() if each.phase is Phase.WAITING]:
            delegable = any(each is standing for each in self.delegable)
            self.take_out_of_line(standing)
            self.put_in_line(standing, delegable)
        self.stirred = True

    def forget(self, standing: Standing) -> None:
        del self.standings[standing.request.id]


def _behind(settings: SiteSettings, name: str) -> tuple[str, ...]:
    """Through whom else a neighbour may have processors: a child through all others, all others through children."""
    relations = settings.neighbours
    up = relations[name] is Relation.CHILD
    return tuple(each for each in relations if each != name and (up or relations[each] is Relation.CHILD))
