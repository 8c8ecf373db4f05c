"""The links to all neighbours as one object, with the listener on which they arrive."""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from koalapy_adapters.messages.streams import OpenStream

import koalapy
from koalapy.config.site import HostPort
from koalapy.engine import Engine
from koalapy.link.neighbour_links import NeighbourLinks
from koalapy.link.session import LinkStatus
from koalapy.link.site_messages import SiteHello
from koalapy.model.change import Change
from koalapy.model.errors import Reason, RequestError, TransientError
from koalapy.model.identity import InstanceId
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.states import LeaseState
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.cluster_link.link import Relay
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.sites.certificate import Identity, read_identity
from koalapy.runtime.sites.link import Address, NeighbourEnd, SiteServices
from koalapy.runtime.sites.listener import Listener, RefusalCounts, Refusals
from koalapy.runtime.sites.streams import Measured, RelayLease
from koalapy.runtime.sites.tls import TlsChannel
from koalapy.runtime.streams import Stream

_LOG = structlog.get_logger()
_NEW_KEY = Reason("key_replaced", "transient", "This site has a new key.", "The neighbours have to join it anew.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSite:
    """This site's own facts. `certificate`: the file of its key."""

    name: str
    instance: InstanceId
    certificate: Path
    listens_on: HostPort | None


@dataclass(frozen=True, slots=True)
class NeighbourState:
    """A neighbour as `koala sites` shows it. `record`: None for a moment, after it has joined.

    `sent`, `received`: messages of this link since koalad started, each counted once. `lent`, `borrowed`: processors of
    the leases that are bound.
    """

    name: str
    address: Address
    relation: Relation
    status: LinkStatus
    record: Neighbour | None
    sent: int
    received: int
    lent: int
    borrowed: int


class SiteLinks:
    """One link for each neighbour. Nothing happens before `start`.

    Raises KoalaError if this site has no key, or its address cannot be used.
    """

    def __init__(
        self, site: OwnSite, epoch: int, last_number: int, clock: SystemClock, recorded: Iterable[Neighbour]
    ) -> None:
        """`epoch`, `last_number`: those of the store when it was opened. `recorded`: the neighbours in it."""
        self.site = site
        self._clock = clock
        self._recorded = [each.name for each in recorded]
        self.neighbours = NeighbourLinks(
            site.name, koalapy.__version__, site.instance, epoch, last_number,
            lambda delivery: self._loop.deliver(delivery), self._record,
            lambda name, address: NeighbourEnd(name, address, self._services()),
        )  # fmt: skip
        self._lock = threading.Lock()  # one change of the neighbours at a time
        self._refused = RefusalCounts(clock.now)
        self.relay: RelayLease | None = None  # set by who has links to clusters, as is the next one
        self.connected: Callable[[], None] = lambda: None
        self.identity()
        self._listener: Listener | None = None
        if site.listens_on is not None:
            self._listener = Listener(site.listens_on, self.identity, self._names, self._arrived, self._refused)

    def identity(self) -> Identity:
        """Read this site's key and certificate. Raises KoalaError."""
        return read_identity(self.site.certificate)

    def start(self, loop: DriverThread, neighbours: Mapping[str, tuple[Relation, Address]]) -> None:
        """Connect in the background. Those that are recorded, and no neighbours any more, are removed."""
        self._loop = loop
        self.neighbours.start(self._recorded, neighbours)
        if self._listener is not None:
            self._listener.start()
            _LOG.info("site_listens", site=self.site.name, port=self._listener.port)

    @property
    def port(self) -> int | None:
        """The port of the listener, which the system may have chosen; None without one."""
        return None if self._listener is None else self._listener.port

    def use(self, neighbours: Mapping[str, tuple[Relation, Address]]) -> None:
        """Link this site with these neighbours and no others. May block for seconds, while links end."""
        with self._lock:
            self.neighbours.use(neighbours)
        _LOG.info("neighbours_linked", sites=sorted(neighbours))

    def close(self) -> None:
        """End all connections."""
        if self._listener is not None:
            self._listener.close()
        threads = [threading.Thread(target=link.close) for link in self.neighbours.links.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def renew_sessions(self) -> None:
        """End all sessions, to begin new ones with the present key."""
        self.neighbours.end_sessions(_NEW_KEY)

    # ---- for the driver; no call blocks

    def committed(self, change: Change) -> None:
        """Reset the streams to leases that have ended."""
        for lease in change.leases:
            is_gone = lease.lent and lease.state is LeaseState.GONE
            if is_gone and (link := self.neighbours.links.get(lease.neighbour)) is not None:
                link.end.reset_relayed(lease.number)

    def quarantine(self, neighbour: str, reason: Reason, error: Exception) -> None:
        """End the session with a neighbour whose messages made koalad fail. It begins anew after a while."""
        _LOG.error("neighbour_quarantined", site=neighbour, reason=str(reason), exc_info=error)
        self.neighbours.end_session(neighbour, reason)

    # ---- for the API's threads

    def states(self) -> list[NeighbourState]:
        """Return the neighbours by name. Raises TransientError if koalad is too busy."""
        records, leases = self._loop.ask(
            lambda engine: (dict(engine.core.neighbours.records), engine.core.leases.all())
        )
        bound = Counter[tuple[str, bool]]()
        for each in leases:
            bound[each.neighbour, each.lent] += each.processors if each.state.bound else 0
        relations = dict(self.neighbours.relations)
        return [
            NeighbourState(
                name,
                link.end.address,
                relations[name],
                link.status,
                records.get(name),
                link.sent,
                link.received,
                bound[name, True],
                bound[name, False],
            )
            for name, link in sorted(self.neighbours.links.items())
            if name in relations
        ]

    def measure(self, neighbour: str, size: int) -> Measured:
        """Measure the link to a neighbour by this many bytes. Blocks. Raises KoalaError."""
        return self._named(neighbour).measure(size)

    def open_lease(self, lender: str, lease: int) -> Stream:
        """Open a stream to the KCM of a lease of a neighbour. Raises KoalaError."""
        return self._named(lender).open_lease(lease)

    def _named(self, neighbour: str) -> NeighbourEnd:
        link = self.neighbours.links.get(neighbour)
        if link is None:
            known = ", ".join(sorted(self.neighbours.links)) or "none"
            raise RequestError("no_such_neighbour", f"There is no neighbour {neighbour}.", f"Known: {known}.")
        return link.end

    def refused(self) -> list[Refusals]:
        return self._refused.all()

    # ---- callbacks of links and listener

    def _services(self) -> SiteServices:
        return SiteServices(now=self._clock.now, identity=self.identity, relay=self._relay, connected=self.connected)

    def _names(self) -> dict[str, str]:
        return {pin: name for name, link in list(self.neighbours.links.items()) for pin in link.end.address.pins}

    def _arrived(self, name: str, channel: TlsChannel, hello: SiteHello) -> None:
        link = self.neighbours.links.get(name)
        if link is None or channel.pin not in link.end.address.pins:
            raise TransientError("no_neighbour", f"{name} is no neighbour any more.", "")
        self.neighbours.offer(name, link.end.session_on(channel), hello)

    def _relay(self, neighbour: str, lease: int, opening: OpenStream, back: Callable[[Any], None]) -> Relay | None:
        """Find the way to a lease of the neighbour: over another link, if it was passed on. Raises KoalaError."""
        beyond = self._loop.ask(functools.partial(_beyond, neighbour, lease))
        if beyond is not None:
            return self._named(beyond[0]).relay(beyond[1], opening, back)
        return None if self.relay is None else self.relay(neighbour, lease, opening, back)

    def _record(self, name: str) -> Neighbour | None:
        """Return what is committed of a neighbour. Raises KoalaError."""
        loop = self._loop
        return loop.ask(lambda engine: None if loop.trouble else engine.core.neighbours.records.get(name))


def _beyond(neighbour: str, number: int, engine: Engine) -> tuple[str, int] | None:
    """Return the neighbour and number by which this site has a lease that it has passed on; None for another one."""
    lease = engine.core.leases.lent.get((neighbour, number))
    return lease.beyond if lease is not None and lease.state.bound else None
