"""Several sites in one simulated world: a koalad each, with a grid, store and users of its own; and their links."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koalapy.model.identity import InstanceId
from koalapy.model.neighbour import Relation
from koalapy.model.settings import Settings
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.koalad.host import Site
from koalapy.world.koalad.site_link import Neighbourhood
from koalapy.world.leases import SimLeases
from koalapy.world.network import End
from koalapy.world.random_streams import stream
from koalapy.world.site_network import SiteNetwork
from koalapy.world.world import World, memory_store


class SitePair(NamedTuple):
    """Two sites that are neighbours. `relation`: that of `other` to `one`. `dial`: those of them that may dial."""

    one: str
    other: str
    relation: Relation = Relation.SIBLING
    dial: frozenset[str] = frozenset()


class SimSites:
    """Sites by name, on one agenda. The same seed and the same calls give the same world."""

    def __init__(self, seed: int, settings: Mapping[str, Settings], pairs: Iterable[SitePair]) -> None:
        """`settings`: of each site; the names of all their clusters are different."""
        self.agenda = Agenda()
        self.pairs = tuple(pairs)
        self.network = SiteNetwork(self.agenda, stream(seed, "sites/network"))
        seeds = stream(seed, "sites")
        self.worlds = {
            name: World(seeds.getrandbits(32), memory_store(InstanceId(f"s{number}m00")), each, self.agenda)
            for number, (name, each) in enumerate(settings.items(), 1)
        }
        self.leases = SimLeases(self.worlds, self.network, stream(seed, "sites/examinations"))
        self.forged = Counter[tuple[str, str]]()  # ends of leases that never were, by site and the neighbour that lies
        self.network.on_cut(self.leases.follow_ways)
        for name, world in self.worlds.items():
            self.network.listeners[name] = _Door(world)
            world.koalad.site = Site(
                neighbourhood=self._neighbourhood(name), way=self.leases.way(name), examine=self.leases.examiner(name)
            )

    def _neighbourhood(self, name: str) -> Neighbourhood:
        relations, dials = {}, set()
        for pair in self.pairs:
            if name in (pair.one, pair.other):
                other = pair.other if pair.one == name else pair.one
                relations[other] = pair.relation if pair.one == name else pair.relation.reverse
                if not pair.dial or name in pair.dial:
                    dials.add(other)
        return Neighbourhood(
            site=name, relations=relations, dials=frozenset(dials),
            connect=lambda other: self.network.connect(name, other), lost=self.leases.follow_ways,
        )  # fmt: skip

    def run(self, until: Instant) -> None:
        """Run all events until an instant."""
        self.agenda.run(until)

    def run_for(self, duration: Duration) -> None:
        self.run(Instant(self.agenda.now + duration))

    # ---- the end of faults

    def end_faults(self) -> None:
        """End all faults: all sites reach each other and their clusters, and each koalad runs."""
        self.network.mend()
        for world in self.worlds.values():
            world.end_faults()

    def quiescent(self) -> bool:
        """Return whether every site is quiescent, and neither a lease nor the cluster of one is left."""
        return all(world.quiescent() for world in self.worlds.values()) and not self.left()

    def left(self) -> list[str]:
        """Return the leases that are left, at each side of each link, and those that are clusters."""
        found = []
        for name, world in self.worlds.items():
            engine = world.koalad.engine
            found += [
                f"{name} {'lends' if each.lent else 'borrows'} {each.neighbour}~{each.number} ({each.state})"
                for each in ([] if engine is None else engine.core.leases.all())
            ]
            found += [f"{cluster} is a cluster of {name}" for cluster in world.koalad.grid.names if "~" in cluster]
        return found

    def settle(self, patience: Duration) -> bool:
        """Run until everything is quiescent. Returns whether it was in time."""
        latest = self.agenda.now + patience
        while not self.quiescent():
            if self.agenda.now > latest:
                return False
            self.run_for(Duration(10 * SECOND))
        return True


class _Door:
    """koalad's listener on its host."""

    def __init__(self, world: World) -> None:
        self._world = world

    def arrived(self, neighbour: str, end: End) -> bool:
        """Give a neighbour's connection to koalad. Returns False if it does not run. A sleeping host answers later."""
        process = self._world.koalad.process
        if process is None or not self._world.koalad.alive or process.sites is None:
            return False
        process.sites.arrived(neighbour, end)
        return True
