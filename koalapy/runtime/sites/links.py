"""The links to all neighbours as one object, with the listener on which they arrive."""

import functools
import itertools
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
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.link.neighbour import Outgoing, SiteOpening
from koalapy.link.restore_check import CONNECTS
from koalapy.link.session import LinkStatus
from koalapy.link.site_messages import SiteHello
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.commands import NeighbourCommand
from koalapy.model.errors import Reason, RequestError, TransientError
from koalapy.model.events import NeighbourJoined, NeighbourLeft
from koalapy.model.identity import InstanceId, origin_of_site
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.states import LeaseState
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.cluster_link.link import Relay
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.sites.certificate import Identity, read_identity
from koalapy.runtime.sites.link import Address, SiteLink, SiteServices
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
        self._clock, self._last_number = clock, last_number
        self._recorded = [each.name for each in recorded]
        self._epochs = itertools.count(epoch * CONNECTS + 1)
        self._links: dict[str, SiteLink] = {}
        self._relations: dict[str, Relation] = {}
        self._outgoing: dict[str, Outgoing] = {}
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
        left = [name for name in self._recorded if name not in neighbours]
        if left:
            loop.deliver(Delivery(events=tuple(NeighbourLeft(neighbour=name) for name in left)))
        self.use(neighbours)
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
            for name in [name for name in self._links if name not in neighbours]:
                self._links.pop(name).close()
                self._relations.pop(name)
                self._outgoing.pop(name)
                self._loop.deliver(Delivery(events=(NeighbourLeft(neighbour=name),)))
                _LOG.info("neighbour_removed", site=name)
            for name, (relation, address) in neighbours.items():
                self._put(name, relation, address)

    def _put(self, name: str, relation: Relation, address: Address) -> None:
        before = self._links.get(name)
        if before is None or self._relations[name] is not relation:
            self._relations[name] = relation
            self._loop.deliver(Delivery(events=(NeighbourJoined(neighbour=name, relation=relation),)))
        if before is not None and before.address == address:
            return
        if before is not None:
            before.end_session(Reason("settings_changed", "transient", "Its settings have changed.", ""))
            before.close()
        outgoing = self._outgoing.setdefault(name, Outgoing(self._last_number))
        services = SiteServices(
            now=self._clock.now,
            deliver=self._loop.deliver,
            opening=self._opening,
            identity=self.identity,
            relay=self._relay,
            connected=self.connected,
        )
        link = self._links[name] = SiteLink(name, address, outgoing, services)
        link.start()
        _LOG.info("neighbour_joined" if before is None else "neighbour_changed", site=name, relation=str(relation))

    def close(self) -> None:
        """End all connections."""
        if self._listener is not None:
            self._listener.close()
        threads = [threading.Thread(target=link.close) for link in self._links.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def renew_sessions(self) -> None:
        """End all sessions, to begin new ones with the present key."""
        for link in list(self._links.values()):
            link.end_session(_NEW_KEY)

    # ---- for the driver; no call blocks

    def send(self, entry: OutboxEntry) -> None:
        assert isinstance(entry.command, NeighbourCommand)
        if (link := self._links.get(entry.command.neighbour)) is not None:
            link.send(entry.number, entry.command)

    def acknowledge(self, neighbour: str, epoch: int, number: int) -> None:
        if (link := self._links.get(neighbour)) is not None:
            link.acknowledge(epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        """End every session, to begin new ones. Returns the epochs of the ended sessions, by origin."""
        ended = {origin_of_site(name): link.end_session(reason) for name, link in list(self._links.items())}
        return {origin: epoch for origin, epoch in ended.items() if epoch is not None}

    def committed(self, change: Change) -> None:
        """Reset the streams to leases that have ended."""
        for lease in change.leases:
            is_gone = lease.lent and lease.state is LeaseState.GONE
            if is_gone and (link := self._links.get(lease.neighbour)) is not None:
                link.reset_relayed(lease.number)

    def quarantine(self, neighbour: str, reason: Reason, error: Exception) -> None:
        """End the session with a neighbour whose messages made koalad fail. It begins anew after a while."""
        _LOG.error("neighbour_quarantined", site=neighbour, reason=str(reason), exc_info=error)
        if (link := self._links.get(neighbour)) is not None:
            link.end_session(reason)

    # ---- for the API's threads

    def neighbours(self) -> list[NeighbourState]:
        """Return the neighbours by name. Raises TransientError if koalad is too busy."""
        records, leases = self._loop.ask(
            lambda engine: (dict(engine.core.neighbours.records), engine.core.leases.all())
        )
        bound = Counter[tuple[str, bool]]()
        for each in leases:
            bound[each.neighbour, each.lent] += each.processors if each.state.bound else 0
        links = sorted(self._links.items())
        relations = dict(self._relations)
        return [
            NeighbourState(
                name,
                link.address,
                relations[name],
                link.status(),
                records.get(name),
                link.sent,
                link.received,
                bound[name, True],
                bound[name, False],
            )
            for name, link in links
            if name in relations
        ]

    def measure(self, neighbour: str, size: int) -> Measured:
        """Measure the link to a neighbour by this many bytes. Blocks. Raises KoalaError."""
        return self._named(neighbour).measure(size)

    def open_lease(self, lender: str, lease: int) -> Stream:
        """Open a stream to the KCM of a lease of a neighbour. Raises KoalaError."""
        return self._named(lender).open_lease(lease)

    def _named(self, neighbour: str) -> SiteLink:
        link = self._links.get(neighbour)
        if link is None:
            known = ", ".join(sorted(self._links)) or "none"
            raise RequestError("no_such_neighbour", f"There is no neighbour {neighbour}.", f"Known: {known}.")
        return link

    def refused(self) -> list[Refusals]:
        return self._refused.all()

    # ---- callbacks of links and listener

    def _names(self) -> dict[str, str]:
        return {pin: name for name, link in list(self._links.items()) for pin in link.address.pins}

    def _arrived(self, name: str, channel: TlsChannel, hello: SiteHello) -> None:
        link = self._links.get(name)
        if link is None or channel.pin not in link.address.pins:
            raise TransientError("no_neighbour", f"{name} is no neighbour any more.", "")
        link.offer(channel, hello, kept=name < self.site.name)

    def _relay(self, neighbour: str, lease: int, opening: OpenStream, back: Callable[[Any], None]) -> Relay | None:
        """Find the way to a lease of the neighbour: over another link, if it was passed on. Raises KoalaError."""
        beyond = self._loop.ask(functools.partial(_beyond, neighbour, lease))
        if beyond is not None:
            return self._named(beyond[0]).relay(beyond[1], opening, back)
        return None if self.relay is None else self.relay(neighbour, lease, opening, back)

    def _opening(self, name: str) -> SiteOpening:
        record = self._loop.ask(functools.partial(_record, name))
        if record is None:
            raise TransientError("not_yet", f"koalad has not noted {name} yet.", "It tries again by itself.")
        return SiteOpening(
            site=self.site.name, instance=self.site.instance, version=koalapy.__version__, epoch=next(self._epochs),
            received_from=record.instance, received=record.received,
        )  # fmt: skip


def _beyond(neighbour: str, number: int, engine: Engine) -> tuple[str, int] | None:
    """Return the neighbour and number by which this site has a lease that it has passed on; None for another one."""
    lease = engine.core.leases.lent.get((neighbour, number))
    return lease.beyond if lease is not None and lease.state.bound else None


def _record(name: str, engine: Engine) -> Neighbour | None:
    return engine.core.neighbours.records.get(name)
