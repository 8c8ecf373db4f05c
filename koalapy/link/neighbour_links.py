"""The links to all neighbours of a site, and the link to one of them. koalad and the simulated world run them."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from koalapy.driver.driver import Delivery
from koalapy.link.conversation import Deliver
from koalapy.link.link_loop import Callbacks, Connection, Host, LinkLoop
from koalapy.link.neighbour import NeighbourConversation, Outgoing, SiteOpening, neighbour_lost
from koalapy.link.reconnect import Timing
from koalapy.link.restore_check import CONNECTS
from koalapy.link.session import Command, LinkStatus, Lost, Report, SessionMachine
from koalapy.link.site_messages import SiteHello
from koalapy.model.commands import NeighbourCommand
from koalapy.model.errors import Reason, TransientError
from koalapy.model.events import NeighbourJoined, NeighbourLeft
from koalapy.model.identity import InstanceId, origin_of_site
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.units import Instant

C = TypeVar("C", bound=Connection)


class SiteEnd(Protocol[C]):
    """This site's end of the link to one neighbour, as its world has it. Its calls return at once, except two."""

    session: Callable[[], C | None]  # returns the connection, if the neighbour takes messages; the link sets it

    @property
    def host(self) -> Host: ...

    @property
    def timing(self) -> Timing: ...

    @property
    def address(self) -> Any:
        """The place of the neighbour; a link ends if it changes."""
        ...

    @property
    def dials(self) -> bool:
        """Return whether this site dials; otherwise the neighbour has to."""
        ...

    def uniform(self, least: float, most: float) -> float:
        """Return a random number between two."""
        ...

    def dial(self) -> C:
        """Connect. May block. Raises KoalaError or BatchError."""
        ...

    def connected(self, status: LinkStatus) -> None:
        """Note that a session has begun."""
        ...

    def lost(self, reason: Reason) -> None:
        """Note that the neighbour is out of reach."""
        ...

    def closed(self) -> None:
        """Wait until nothing of the link is at work any more, but not for ever."""
        ...


E = TypeVar("E", bound=SiteEnd[Any])


class NeighbourLink(Generic[E]):
    """The link to one neighbour. Any thread may call it; calls return at once, except `offer` and `close`."""

    def __init__(
        self,
        name: str,
        end: E,
        outgoing: Outgoing,
        deliver: Callable[[Delivery], None],
        opening: Callable[[str], SiteOpening],
    ) -> None:
        self.name, self.end = name, end
        self.received = 0  # messages that came for the first time
        self._outgoing, self._deliver, self._opening = outgoing, deliver, opening
        self._machine: SessionMachine[NeighbourConversation] = SessionMachine(
            name, end.timing, end.uniform, dials=end.dials
        )
        callbacks = Callbacks(open=end.dial, begin=self._begin, ended=self._ended, perform=self._perform)
        self._loop: LinkLoop[NeighbourConversation, Any] = LinkLoop(self._machine, callbacks, end.host)
        end.session = lambda: self._loop.session

    def start(self) -> None:
        self._loop.start()

    def close(self) -> None:
        """End the connection for good; no loss is reported. May block for seconds."""
        self._loop.close()
        self.end.closed()

    def end_session(self, why: Reason) -> int | None:
        """End the present session, to begin a new one. Returns the ended session's epoch; None without a session."""
        return self._loop.end_session(why)

    def offer(self, connection: Connection, hello: SiteHello, kept: bool) -> None:
        """Offer a connection that the neighbour has made. May block until it ends. Raises KoalaError."""
        self._loop.offer(connection, hello, hello.epoch, kept)

    @property
    def connection(self) -> Connection | None:
        """The connection of the session, also before the neighbour takes messages."""
        return self._loop.connection

    @property
    def status(self) -> LinkStatus:
        return self._machine.status

    @property
    def sent(self) -> int:
        """The messages that were sent or wait for a session, those that were sent again counted once."""
        return self._outgoing.count

    # ---- for the driver

    def send(self, number: int, command: NeighbourCommand) -> None:
        """Keep the message until the neighbour has committed it, and send it if there is a session."""

        def put(now: Instant) -> list[Command]:
            fresh = self._outgoing.put(number, command)
            return self._machine.send(now, lambda dialogue: dialogue.send(number, command)) if fresh else []

        self._loop.do(put)

    def acknowledge(self, epoch: int, number: int) -> None:
        self._loop.do(lambda now: self._machine.send(now, lambda dialogue: dialogue.acknowledge(number), epoch))

    # ---- a session

    def _begin(self, connection: Connection) -> NeighbourConversation:
        return NeighbourConversation(self.name, self._opening(self.name), self._outgoing)

    def _ended(self) -> Reason:
        message = f"The connection to {self.name} was lost."
        return Reason("cut", "transient", message, "koalad connects again by itself.")

    def _perform(self, command: Command) -> None:
        match command:
            case Lost(reason):
                self._deliver(neighbour_lost(self.name, reason))
                self.end.lost(reason)
            case Report(status, _) if status.state == "connected":
                self.end.connected(status)
            case Deliver(delivery):
                self.received += delivery.acknowledge is not None
                self._deliver(delivery)


class NeighbourLinks(Generic[E]):
    """One link for each neighbour of a site. One thread at a time may change the neighbours."""

    def __init__(
        self,
        site: str,
        version: str,
        instance: InstanceId,
        epoch: int,
        last_number: int,
        deliver: Callable[[Delivery], None],
        record: Callable[[str], Neighbour | None],
        make: Callable[[str, Any], E],
    ) -> None:
        """`version`: koalapy's. `epoch`, `last_number`: those of the store when it was opened.

        `record`: returns what is committed of a neighbour, None if that is nothing or cannot be known now; it may
        block, and raises KoalaError. `make`: returns the end of the link to a neighbour at this address.
        """
        self.links: dict[str, NeighbourLink[E]] = {}
        self.relations: dict[str, Relation] = {}
        self._site, self._version, self._instance, self._last_number = site, version, instance, last_number
        self._deliver, self._record, self._make = deliver, record, make
        self._epochs = count(epoch * CONNECTS + 1)
        self._outgoing: dict[str, Outgoing] = {}

    def start(self, recorded: Iterable[str], neighbours: Mapping[str, tuple[Relation, Any]]) -> None:
        """Connect in the background. Those that are recorded, and no neighbours any more, leave."""
        left = tuple(NeighbourLeft(neighbour=name) for name in recorded if name not in neighbours)
        if left:
            self._deliver(Delivery(events=left))
        self.use(neighbours)

    def use(self, neighbours: Mapping[str, tuple[Relation, Any]]) -> None:
        """Link this site with these neighbours and no others. May block for seconds, while links end."""
        for name in [name for name in self.links if name not in neighbours]:
            self.links.pop(name).close()
            self.relations.pop(name)
            self._outgoing.pop(name)
            self._deliver(Delivery(events=(NeighbourLeft(neighbour=name),)))
        for name, (relation, address) in neighbours.items():
            self._put(name, relation, address)

    def _put(self, name: str, relation: Relation, address: Any) -> None:
        before = self.links.get(name)
        if before is None or self.relations[name] is not relation:
            self.relations[name] = relation
            self._deliver(Delivery(events=(NeighbourJoined(neighbour=name, relation=relation),)))
        if before is not None and before.end.address == address:
            return
        if before is not None:
            before.end_session(Reason("settings_changed", "transient", "Its settings have changed.", ""))
            before.close()
        outgoing = self._outgoing.setdefault(name, Outgoing(self._last_number))
        self.links[name] = NeighbourLink(name, self._make(name, address), outgoing, self._deliver, self._opening)
        self.links[name].start()

    def _opening(self, neighbour: str) -> SiteOpening:
        """Return the facts for a session. Raises KoalaError."""
        record = self._record(neighbour)
        if record is None:
            message = f"koalad has not recorded yet what it knows of {neighbour}."
            raise TransientError("not_yet", message, "It tries again by itself.")
        return SiteOpening(
            site=self._site, instance=self._instance, version=self._version, epoch=next(self._epochs),
            received_from=record.instance, received=record.received,
        )  # fmt: skip

    def offer(self, neighbour: str, connection: Connection, hello: SiteHello) -> None:
        """Offer a connection that a neighbour has made. May block until it ends. Raises KoalaError."""
        self.links[neighbour].offer(connection, hello, kept=neighbour < self._site)

    # ---- for the driver; no call blocks

    def send(self, number: int, command: NeighbourCommand) -> None:
        if (link := self.links.get(command.neighbour)) is not None:
            link.send(number, command)

    def acknowledge(self, neighbour: str, epoch: int, number: int) -> None:
        if (link := self.links.get(neighbour)) is not None:
            link.acknowledge(epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        """End every session, to begin new ones. Returns the epochs of the ended sessions, by origin."""
        ended = {origin_of_site(name): link.end_session(reason) for name, link in list(self.links.items())}
        return {origin: epoch for origin, epoch in ended.items() if epoch is not None}

    def end_session(self, neighbour: str, reason: Reason) -> None:
        """End the session with one neighbour, to begin a new one."""
        if (link := self.links.get(neighbour)) is not None:
            link.end_session(reason)
