"""koalad's ends of the links to neighbouring sites, on pipes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

from koalapy_adapters.messages import from_json

import koalapy
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.link.neighbour_links import NeighbourLinks
from koalapy.link.reconnect import Timing
from koalapy.link.session import LinkStatus
from koalapy.link.site_messages import MESSAGES, SiteHello, site_to_json
from koalapy.model.errors import KoalaError, Reason, TransientError
from koalapy.model.identity import InstanceId
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.koalad.link_host import LivingProcess, PipeConnection, SimHost
from koalapy.world.network import End, Json

SITE_TIMING = Timing(ping=10.0, silence=30.0, welcome=15.0)
_CONNECT = (MILLISECOND, Duration(2 * SECOND))  # duration of the dial and of the handshake


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """The neighbours of a site, by name, and those of them that it dials. `connect` dials one; None: no answer.

    `lost` is called when a session was lost.
    """

    site: str
    relations: Mapping[str, Relation]
    dials: frozenset[str]
    connect: Callable[[str], End | None]
    lost: Callable[[], None]


class Address(NamedTuple):
    """The settings of a link: whether this site dials, and how often they were changed."""

    dials: bool
    changes: int = 0


class SiteLinkHost(LivingProcess, Protocol):
    """The services of a process of koalad for its links to sites."""

    @property
    def engine(self) -> Engine: ...

    @property
    def answers(self) -> bool:
        """Return whether the engine has nothing that is not committed."""
        ...

    def deliver(self, delivery: Delivery) -> None: ...

    def reach_leases(self) -> None:
        """Try to reach the leases at once: a neighbour is connected."""
        ...


class SimSiteLinks:
    """The links of one process of koalad to all neighbours."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        instance: InstanceId,
        store_epoch: int,
        last_number: int,
        process: SiteLinkHost,
        rng: Random,
    ) -> None:
        self._process = process
        self._addresses = {
            name: (relation, Address(name in neighbourhood.dials)) for name, relation in neighbourhood.relations.items()
        }
        self.neighbours = NeighbourLinks(
            neighbourhood.site, koalapy.__version__, instance, store_epoch, last_number, process.deliver, self._record,
            lambda name, address: SimSiteEnd(name, address, neighbourhood, process, rng),
        )  # fmt: skip

    def start(self) -> None:
        """Connect to the neighbours. Those that are recorded, and none any more, leave."""
        recorded = list(self._process.engine.core.neighbours.records)
        self.neighbours.start(recorded, self._addresses)

    def change(self, neighbour: str) -> None:
        """Change the settings of a neighbour, as a grid file does that is read again: its link begins anew."""
        relation, (dials, changes) = self._addresses[neighbour]
        self._addresses[neighbour] = relation, Address(dials, changes + 1)
        self.neighbours.use(self._addresses)

    def arrived(self, neighbour: str, end: End) -> None:
        """Take a connection that a neighbour has made; its hello comes first."""
        end.on_message = lambda message: self._process.enter(lambda: self._greeted(neighbour, end, message))

    def _greeted(self, neighbour: str, end: End, message: Json) -> None:
        hello, link = from_json(message, MESSAGES), self.neighbours.links.get(neighbour)
        if link is None or not isinstance(hello, SiteHello):
            end.close()
            return
        with suppress(KoalaError):
            self.neighbours.offer(neighbour, link.end.connection_on(end), hello)

    def _record(self, neighbour: str) -> Neighbour | None:
        return self._process.engine.core.neighbours.records.get(neighbour) if self._process.answers else None


class SimSiteEnd:
    """This site's end of the link to one neighbour, on pipes; see SiteEnd."""

    timing = SITE_TIMING

    def __init__(
        self, name: str, address: Address, neighbourhood: Neighbourhood, process: SiteLinkHost, rng: Random
    ) -> None:
        self.name, self.address, self.dials = name, address, address.dials
        self.host = SimHost(process, rng, lambda kind: _CONNECT)
        self.session: Callable[[], PipeConnection | None] = lambda: None
        self.uniform = rng.uniform
        self._neighbourhood, self._process = neighbourhood, process

    def dial(self) -> PipeConnection:
        """Connect. Raises TransientError."""
        end = self._neighbourhood.connect(self.name)
        if end is None:
            raise TransientError("unreachable", "Nobody answers there.", "koalad tries again by itself.")
        return self.connection_on(end)

    def connection_on(self, end: End) -> PipeConnection:
        return PipeConnection(self.host, end, site_to_json, MESSAGES, self.name)

    def connected(self, status: LinkStatus) -> None:
        self._process.reach_leases()

    def lost(self, reason: Reason) -> None:
        self._neighbourhood.lost()

    def closed(self) -> None: ...
