"""Sites as engines, whose messages travel as JSON; links and clusters are played by hand."""

from typing import Any, get_args

from engine_play import UNREACHABLE, Play, grid
from koalapy_adapters.messages import from_json

from koalapy.link.neighbour import _body, _message
from koalapy.link.site_messages import BODIES, site_to_json
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import Command, JoinCluster, LeaveCluster, NeighbourCommand, ReportFree
from koalapy.model.events import (
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    MessageReceived,
    NeighbourConnected,
    NeighbourJoined,
    NeighbourLost,
)
from koalapy.model.identity import JobId
from koalapy.model.lease import Lease, LeasedCluster
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.units import SECOND, Duration
from koalapy.views.leases import leases, why_not_borrowed

BORROWER, LENDER = {"alpha": 16}, {"big": 64, "small": 8}


def received(neighbour: str, instance: str, number: int, body: Any) -> MessageReceived:
    """The event of a message of the neighbour's outbox, whose store has this instance."""
    return MessageReceived(neighbour=neighbour, instance=instance, number=number, message=_message(neighbour, body))


class Site(Play):
    """An engine with its neighbours. `instance`: of its store, which numbers its messages."""

    def __init__(
        self,
        name: str,
        sizes: dict[str, int],
        neighbours: tuple[Neighbour, ...] = (),
        leases: tuple[Lease, ...] = (),
        **settings: Any,
    ) -> None:
        self.name, self.instance, self.number = name, f"store-{name}", 0
        self.busy: dict[str, int] = {}  # by cluster, processors of local jobs
        clusters = [ClusterSettings(name=each, batch="slurm") for each in sizes]
        super().__init__(grid(*clusters, **settings), sizes=dict(sizes), neighbours=neighbours, leases=leases)

    def measure(self, **others: int) -> list[Command]:
        self.busy |= others
        return super().measure(**self.busy)

    def record(self, neighbour: str) -> Neighbour:
        return self.engine.core.neighbours.records[neighbour]

    def leases(self) -> list[Lease]:
        return [each.lease for each in leases(self.engine)]

    def taken(self) -> list[Any]:
        """The messages for neighbours since the last call."""
        found = [each for each in self.pending if isinstance(each, get_args(NeighbourCommand))]
        self.pending = [each for each in self.pending if not isinstance(each, get_args(NeighbourCommand))]
        return found

    def follow(self) -> None:
        """Let leases join and leave the grid, as koalad does; those that join are reached and measured."""
        hints = {each.name: each for each in self.hints if isinstance(each, JoinCluster | LeaveCluster)}
        self.hints = [each for each in self.hints if not isinstance(each, JoinCluster | LeaveCluster)]
        for name, hint in hints.items():
            if isinstance(hint, LeaveCluster):
                if self.sizes.pop(name, None) is not None:
                    self.apply(ClusterLeft(name=name))
                continue
            lease = hint.joining
            assert isinstance(lease, LeasedCluster)
            self.sizes[name] = self.engine.core.leases.borrowed[lease.lender, lease.number].processors
            settings = ClusterSettings(name=name, batch="allocation", network=lease.network, isolation=lease.isolation)
            self.apply(ClusterJoined(settings=settings))
            self.apply(ClusterConnected(cluster=name, version="1"))
            self.apply(self.measurement(name))

    def why(self, job: JobId) -> dict[str, str]:
        return why_not_borrowed(self.engine, self.now, self.job(job))


class Sites:
    """Sites that are linked. `cut`: the pairs whose link passes nothing on now; it keeps what waits for it."""

    def __init__(self, *sites: Site) -> None:
        self.sites = {each.name: each for each in sites}
        self.cut: set[frozenset[str]] = set()
        self._held: list[tuple[Site, Any]] = []

    def link(self, one: Site, other: Site, relation: Relation = Relation.SIBLING) -> None:
        one.apply(NeighbourJoined(neighbour=other.name, relation=relation))
        other.apply(NeighbourJoined(neighbour=one.name, relation=relation.reverse))
        self.connect(one, other)

    def connect(self, one: Site, other: Site) -> None:
        self.cut.discard(frozenset((one.name, other.name)))
        one.apply(NeighbourConnected(neighbour=other.name, instance=other.instance))
        other.apply(NeighbourConnected(neighbour=one.name, instance=one.instance))
        self.exchange()

    def lose(self, one: Site, other: Site) -> None:
        self.cut.add(frozenset((one.name, other.name)))
        one.apply(NeighbourLost(neighbour=other.name, reason=UNREACHABLE))
        other.apply(NeighbourLost(neighbour=one.name, reason=UNREACHABLE))

    def exchange(self) -> list[Any]:
        """Pass all messages on, as JSON, until there are none. Returns those but reports."""
        passed: list[Any] = []
        while True:
            held, self._held = self._held, []
            found = held + [(each, message) for each in self.sites.values() for message in each.taken()]
            self._held = [each for each in found if self._is_cut(*each)]
            found = [each for each in found if not self._is_cut(*each)]
            if not found:
                break
            for sender, message in found:
                sender.number += 1
                body = from_json(site_to_json(_body(message)), BODIES)
                event = received(sender.name, sender.instance, sender.number, body)
                self.sites[message.neighbour].apply(event)
                self.sites[message.neighbour].apply(event)  # once more: it changes nothing
                passed.append(message)
        return [each for each in passed if not isinstance(each, ReportFree)]

    def _is_cut(self, sender: Site, message: Any) -> bool:
        return frozenset((sender.name, message.neighbour)) in self.cut

    def let_pass(self, duration: int) -> list[Any]:
        """Let time pass at all sites, in steps of a few seconds, and pass messages on."""
        passed: list[Any] = []
        for _ in range(0, duration, 5 * SECOND):
            for each in self.sites.values():
                each.apply(after=Duration(5 * SECOND))
                each.measure()
            passed += self.exchange()
        return passed
