"""Leases of simulated sites: each leads over sites to the inside of a pilot, whose nodes were examined if need be.

The inside of a leased pilot is a cluster with one node. It is built at the borrower's first login, and dies with the
pilot's program. The byte stream that leads there is a connection, which breaks with any part of its way.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

from koalapy.engine import Engine
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import ExamineNodes, LeaseHint
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import LeaseExamined
from koalapy.model.identity import JobId, Tag, tag_of
from koalapy.model.lease import LeasedCluster, lease_of_cluster
from koalapy.model.states import LeaseState
from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.cluster.cluster import LOGIN, ClusterPlan, SimCluster, config_of
from koalapy.world.koalad.host import SimKoalad, lease_settings
from koalapy.world.network import End
from koalapy.world.program_log import LogEntry
from koalapy.world.random_streams import between
from koalapy.world.world import World

_EXAMINING = Duration(100 * MILLISECOND), Duration(3 * SECOND)
_NO_ISOLATION = 0.15  # of all examinations find that
_POLL_S = 10.0
_RUNS = (LeaseState.BOUND, LeaseState.CLOSING)


class Reaches(Protocol):
    """The network between sites."""

    def is_open(self, one: str, other: str) -> bool: ...


class PilotAttempt(NamedTuple):
    """The attempt of a pilot, at the site whose processors it holds."""

    site: str
    tag: Tag
    processors: int


class Use(NamedTuple):
    """The cluster of a borrower that a pilot's inside is."""

    site: str
    cluster: str


class SimLeases:
    """The leases of all sites. `insides`: the clusters inside pilots that their borrowers have reached so far.

    `uses`: by pilot the clusters of borrowers that have reached its inside, in order. `examined`: the sites and pilots
    whose nodes were found to isolate programs.
    """

    def __init__(self, worlds: Mapping[str, World], network: Reaches, rng: Random) -> None:
        self.insides: dict[PilotAttempt, SimCluster] = {}
        self.uses: dict[PilotAttempt, list[Use]] = {}
        self.examined: set[tuple[str, JobId]] = set()
        self._worlds, self._network, self._rng = worlds, network, rng
        for name, world in worlds.items():
            world.program_log.subscribe(self._ender(name))

    def way(self, site: str) -> Callable[[str], "LeaseWay"]:
        """Return how koalad of this site reaches the clusters of its leases."""
        return lambda cluster: LeaseWay(self, site, cluster)

    def find(
        self, site: str, cluster: str, states: tuple[LeaseState, ...] = (LeaseState.BOUND,)
    ) -> PilotAttempt | None:
        """Return the pilot to which a lease leads now; None if the way is interrupted, or it is in no such state."""
        found = lease_of_cluster(cluster)
        while found is not None:
            here, (lender, number) = self._worlds[site].koalad, found
            there = self._worlds[lender].koalad
            lease = None
            if self._network.is_open(site, lender) and _has_session(here, lender):
                engine = _working(there)
                lease = None if engine is None else engine.core.leases.lent.get((site, number))
            if lease is None or lease.state not in states:
                return None
            if lease.beyond is None:
                return self._pilot(lender, lease.job)
            site, found = lender, lease.beyond
        return None

    def examiner(self, site: str) -> Callable[[LeaseHint], None]:
        """Return how koalad of this site has leases examined. In this world none may write too much."""
        return lambda hint: self._examine(site, hint) if isinstance(hint, ExamineNodes) else None

    def _examine(self, site: str, hint: ExamineNodes) -> None:
        """Examine the nodes of a lease, which takes a while. Without a way to them there is no answer."""
        world = self._worlds[site]
        assert world.koalad.process is not None, "its koalad has just given the hint"

        def examined() -> None:
            engine = _working(world.koalad)
            lease = None if engine is None else engine.core.leases.lent.get((hint.neighbour, hint.lease))
            if lease is None or lease.job is None or self._pilot(site, lease.job) is None:
                return
            isolates = self._rng.random() >= _NO_ISOLATION
            if isolates:
                self.examined.add((site, lease.job))
            reason = None if isolates else Reason("no_isolation", "cluster", "Its nodes isolate nothing.", "")
            world.koalad.request(LeaseExamined(neighbour=hint.neighbour, lease=hint.lease, reason=reason))

        world.koalad.process.after(between(self._rng, *_EXAMINING), examined)

    def _pilot(self, site: str, job: Any) -> PilotAttempt | None:
        world = self._worlds[site]
        engine = _working(world.koalad)
        pilot = None if engine is None or job is None else engine.records.jobs.get(job)
        attempt = None if pilot is None else next(iter(pilot.present), None)
        if attempt is None or world.koalad.process is None:
            return None
        link, tag = world.koalad.process.links.get(attempt.cluster), tag_of(world.instance, attempt.id)
        runs = link is not None and link.connected and world.program_log.running(tag)
        return PilotAttempt(site, tag, attempt.request.processors) if runs else None

    def reach(self, site: str, cluster: str) -> SimCluster | None:
        """Return the inside to which a lease leads now; None if it cannot be reached."""
        held = self.find(site, cluster)
        if held is None:
            before = self._worlds[site].clusters.get(cluster)
            if before is not None:
                before.environment.observer.dialed("unreachable")
            return None
        uses = self.uses.setdefault(held, [])
        if Use(site, cluster) not in uses:
            uses.append(Use(site, cluster))
        if held not in self.insides:
            self.insides[held] = self._worlds[site].add(plan_of(cluster, held.processors))
        return self.insides[held]

    def follow_ways(self) -> None:
        """Break the connections to leases whose way is interrupted."""
        for site, world in self._worlds.items():
            process = world.koalad.process
            for name, link in process.links.items() if process is not None and world.koalad.alive else ():
                if link.pipe is not None and lease_of_cluster(name) is not None and not self.find(site, name, _RUNS):
                    link.pipe.cut(Duration(SECOND), Duration(SECOND))

    def _ender(self, site: str) -> Callable[[LogEntry], None]:
        def logged(entry: LogEntry) -> None:
            if entry.what == "ended" and not entry.run.running:
                for held, inside in self.insides.items():
                    if (held.site, held.tag) == (site, entry.run.tag):
                        inside.die()

        return logged


class LeaseWay:
    """The way to the KCM of a lease, as its borrower's koalad goes it."""

    def __init__(self, leases: SimLeases, site: str, cluster: str) -> None:
        self.name = cluster
        self._leases, self._site = leases, site

    @property
    def reachable(self) -> bool:
        return self._leases.find(self._site, self.name) is not None

    @property
    def login_lasts(self) -> tuple[Duration, Duration]:
        return LOGIN

    def login(self, end: End) -> None:
        """Start a KCM at this end of a connection. Raises TransientError if there is no way there."""
        inside = self._leases.reach(self._site, self.name)
        if inside is None:
            raise TransientError("not_connected", f"{self.name} is out of reach.", "It is tried again.")
        inside.login(end)

    def config(self) -> Mapping[str, Any]:
        return config_of(plan_of(self.name, 1))


def plan_of(cluster: str, processors: int) -> ClusterPlan:
    """Return the plan of the inside of a lease."""
    lease = lease_of_cluster(cluster)
    assert lease is not None, "only leases lead to an inside"
    settings: ClusterSettings = lease_settings(LeasedCluster(*lease, network=cluster))
    return ClusterPlan(settings=settings, nodes=1, processors_per_node=processors, poll_s=_POLL_S)


def _working(koalad: SimKoalad) -> Engine | None:
    return None if koalad.asleep else koalad.engine


def _has_session(koalad: SimKoalad, neighbour: str) -> bool:
    process = koalad.process
    if process is None or process.sites is None or _working(koalad) is None:
        return False
    link = process.sites.neighbours.links.get(neighbour)
    return link is not None and link.end.session() is not None
