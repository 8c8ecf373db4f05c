"""Sites in one process, with real engines, stores, TLS and sockets; and a network between them that can be cut."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import waiting

from koalapy.config.site import HostPort
from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.commands import Hint, NeighbourCommand
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterConnected, ClusterMeasured
from koalapy.model.identity import InstanceId, site_of
from koalapy.model.lease import Lend
from koalapy.model.neighbour import Relation
from koalapy.model.settings import Settings
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.sites.certificate import Identity, make_identity, write_identity
from koalapy.runtime.sites.link import Address
from koalapy.runtime.sites.links import NeighbourState, OwnSite, SiteLinks
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore

PATIENCE_S = 60.0
LOOPBACK = "127.0.0.1"
_SIZE = 1000


def until(found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Return what `found` returns once it is true."""
    return waiting.until(found, patience_s, lambda: "it never happens", 0.01)


class _Links:
    """The links of a koalad that has neighbours only."""

    def __init__(self) -> None:
        self.sites: SiteLinks | None = None

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        if self.sites is not None and isinstance(entry.command, NeighbourCommand):
            assert isinstance(entry.command, NeighbourCommand)
            self.sites.neighbours.send(entry.number, entry.command)

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, origin: str, epoch: int, number: int) -> None:
        if self.sites is not None:
            self.sites.neighbours.acknowledge(site_of(origin), epoch, number)

    def end_sessions(self, reason: Reason) -> Mapping[str, int]:
        return {} if self.sites is None else self.sites.neighbours.end_sessions(reason)


class Site:
    """One site. `got`: the free processors that its neighbours have reported, as they were committed."""

    def __init__(self, name: str, place: Path, listens: bool = True, identity: Identity | None = None) -> None:
        self.name, self.identity = name, identity or make_identity(name)
        self.certificate = place / f"{name}.pem"
        write_identity(self.certificate, self.identity, replace=True)
        self.listens = HostPort(LOOPBACK, 0) if listens else None
        self.store = MemoryStore(InstanceId((name * 5)[:5]))
        self.neighbours: dict[str, tuple[Relation, Address]] = {}
        self.got: dict[str, list[tuple[int, int]]] = {}
        self.idle = itertools.count(1)
        self._begin()

    def _begin(self) -> None:
        lend = Lend(to=("a", "b", "c", "delft", "lyon", "paris"), processors=_SIZE)
        settings = Settings(clusters=(ClusterSettings(name="vu", batch="slurm"),), lend=lend)
        engine = Engine(settings, Policies(worst_fit, fpfs), self.store.load())
        links, clock = _Links(), SystemClock()
        snapshot = self.store.load()
        driver = Driver(
            engine, self.store, links, clock, snapshot.outbox, self.store.next_number, self._committed,
        )  # fmt: skip
        self.clock = clock
        self.loop = DriverThread(driver, clock)
        own = OwnSite(
            name=self.name, instance=self.store.instance, certificate=self.certificate, listens_on=self.listens
        )
        epoch, last = self.store.epoch, self.store.next_number - 1
        links.sites = self.links = SiteLinks(own, epoch, last, clock, snapshot.neighbours)
        if self.listens is not None:
            self.listens = HostPort(LOOPBACK, self.links.port or 0)  # the same after a restart
        self.links.start(self.loop, self.neighbours)
        self.loop.start()
        self.loop.deliver(Delivery(events=(ClusterConnected(cluster="vu", version="1"),)))

    def _committed(self, change: Change) -> None:
        self.links.committed(change)
        for each in change.neighbours:
            if each.free is not None:
                known = self.got.setdefault(each.name, [])
                if not known or known[-1][0] != each.received:
                    known.append((each.received, each.free))

    @property
    def pin(self) -> str:
        return self.identity.pin

    @property
    def port(self) -> int:
        return self.links.port or 0

    def link(self, other: "Site", relation: Relation = Relation.SIBLING, port: int | None = None) -> None:
        """Make the other site a neighbour. `port`: where it is dialled; 0: it is not."""
        port = other.port if port is None else port
        url = f"https://{LOOPBACK}:{port}" if port else None
        self.neighbours[other.name] = relation, Address(url=url, pins=(other.pin,))
        self.links.use(self.neighbours)

    def change_idle(self) -> int:
        """Change the idle processors, and so what is to be reported. Returns their number."""
        idle = next(self.idle)
        state = ClusterState(
            measured_at=self.clock.now(), total=_SIZE, idle=idle, ours=0, others=_SIZE - idle, waiting_local=0
        )
        self.loop.deliver(Delivery(events=(ClusterMeasured(cluster="vu", state=state),)))
        return idle

    def state(self, neighbour: str) -> NeighbourState:
        return next(each for each in self.links.states() if each.name == neighbour)

    def is_connected(self, neighbour: str) -> bool:
        return self.state(neighbour).status.state == "connected"

    def refused(self) -> dict[str, int]:
        return {each.kind: each.count for each in self.links.refused()}

    def stop(self) -> None:
        self.links.close()
        self.loop.stop()

    def restart(self) -> None:
        """End at once, as if killed, and begin anew with what was committed."""
        self.loop.stop()
        self.links.close()
        self.store = self.store.reopened()
        self._begin()


class Proxy:
    """Passes connections on to a port, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[socket.socket] = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cut:
                near.close()
                continue
            try:
                far = socket.create_connection((LOOPBACK, self._target), 5)
            except OSError:
                near.close()
                continue
            self._pairs += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.is_cut = True
        pairs, self._pairs = self._pairs, []
        for each in pairs:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def mend(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self._listener.close()
        self.cut()
