"""koalad's end of the links to neighbouring sites: the real session machine, driven by the agenda."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError

import koalapy
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.link.conversation import Deliver
from koalapy.link.neighbour import NeighbourConversation, Outgoing, SiteOpening, neighbour_lost
from koalapy.link.reconnect import Timing
from koalapy.link.restore_check import CONNECTS
from koalapy.link.session import Adopt, Close, Command, Decline, Dial, Lost, Report, Send, SessionMachine, State
from koalapy.link.site_messages import MESSAGES, SiteHello, site_to_json
from koalapy.model.commands import NeighbourCommand
from koalapy.model.errors import Reason
from koalapy.model.events import NeighbourJoined, NeighbourLeft
from koalapy.model.identity import InstanceId, origin_of_site, site_of
from koalapy.model.neighbour import Relation
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.network import End, Json
from koalapy.world.random_streams import between

SITE_TIMING = Timing(ping=10.0, silence=30.0, welcome=15.0)
_CONNECT = (MILLISECOND, Duration(2 * SECOND))  # duration of the dial and of the handshake
_CUT = Reason("cut", "transient", "The connection was lost.", "koalad connects again by itself.")
_NOBODY = Reason("unreachable", "transient", "Nobody answers there.", "koalad tries again by itself.")
_NOT_YET = Reason("not_yet", "transient", "koalad has not noted the neighbour yet.", "It tries again by itself.")


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


class SiteLinkHost(Protocol):
    """The services of a process of koalad for its links to sites. No call is made once it is dead."""

    agenda: Agenda

    @property
    def engine(self) -> Engine: ...

    @property
    def answers(self) -> bool:
        """Return whether the engine has nothing that is not committed."""
        ...

    def now(self) -> Instant: ...

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall: ...

    def enter(self, call: Callable[[], None]) -> None: ...

    def deliver(self, delivery: Delivery) -> None: ...

    def reach_leases(self) -> None:
        """Try to reach the leases at once: a neighbour is connected."""
        ...


class SimSiteLinks:
    """The links of one process of koalad to all neighbours, as `koalapy.runtime.sites.links` has them."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        instance: InstanceId,
        store_epoch: int,
        last_number: int,
        host: SiteLinkHost,
        rng: Random,
    ) -> None:
        self._neighbourhood, self._instance, self._host = neighbourhood, instance, host
        self._epochs = count(store_epoch * CONNECTS + 1)
        self.links = {
            name: SimSiteLink(name, self, Outgoing(last_number), host, rng, name in neighbourhood.dials)
            for name in neighbourhood.relations
        }

    def start(self) -> None:
        """Join the neighbours, and connect to them. Those that are recorded, and none any more, leave."""
        left = [name for name in self._host.engine.core.neighbours.records if name not in self.links]
        self._host.deliver(Delivery(events=tuple(NeighbourLeft(neighbour=name) for name in left)))
        for name, relation in self._neighbourhood.relations.items():
            self._host.deliver(Delivery(events=(NeighbourJoined(neighbour=name, relation=relation),)))
            self.links[name].start()

    def arrived(self, neighbour: str, end: End) -> None:
        """Take a connection that a neighbour has made."""
        self.links[neighbour].arrived(end, kept=neighbour < self._neighbourhood.site)

    def opening(self, neighbour: str) -> SiteOpening | None:
        """Return the facts for a session; None before the neighbour was noted, or while that is uncertain."""
        record = self._host.engine.core.neighbours.records.get(neighbour)
        if record is None or not self._host.answers:
            return None
        return SiteOpening(
            site=self._neighbourhood.site, instance=self._instance, version=koalapy.__version__,
            epoch=next(self._epochs), received_from=record.instance, received=record.received,
        )  # fmt: skip

    def connect(self, neighbour: str) -> End | None:
        return self._neighbourhood.connect(neighbour)

    def lost(self) -> None:
        """Note that a session was lost."""
        self._neighbourhood.lost()

    # ---- for the driver

    def send(self, number: int, command: NeighbourCommand) -> None:
        if (link := self.links.get(command.neighbour)) is not None:
            link.send(number, command)

    def acknowledge(self, origin: str, epoch: int, number: int) -> None:
        if (link := self.links.get(site_of(origin))) is not None:
            link.acknowledge(epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        """End all sessions, to begin new ones. Returns their epochs, by origin."""
        ended = {origin_of_site(name): link.end_session(reason) for name, link in self.links.items()}
        return {origin: epoch for origin, epoch in ended.items() if epoch is not None}

    def lose(self) -> None:
        """End with koalad: its connections are closed."""
        for link in self.links.values():
            link.lose()
        self._neighbourhood.lost()


class SimSiteLink:
    """The link to one neighbour, over all sessions of one process of koalad."""

    def __init__(
        self, name: str, links: SimSiteLinks, outgoing: Outgoing, host: SiteLinkHost, rng: Random, dials: bool
    ) -> None:
        self.name = name
        self._links, self._outgoing, self._host, self._rng = links, outgoing, host, rng
        self._machine: SessionMachine[NeighbourConversation] = SessionMachine(
            name, SITE_TIMING, rng.uniform, dials=dials
        )
        self._end: End | None = None
        self._offers: dict[int, End] = {}  # by the id of its conversation, until it is adopted or declined
        self._timer: ScheduledCall | None = None

    @property
    def connected(self) -> bool:
        return self._machine.state is State.OPEN

    def start(self) -> None:
        self._perform(self._machine.start(self._now))

    def send(self, number: int, command: NeighbourCommand) -> None:
        """Keep the message until the neighbour has committed it, and send it if there is a session."""
        if self._outgoing.put(number, command):
            self._perform(self._machine.send(self._now, lambda dialogue: dialogue.send(number, command)))

    def acknowledge(self, epoch: int, number: int) -> None:
        self._perform(self._machine.send(self._now, lambda dialogue: dialogue.acknowledge(number), epoch))

    def end_session(self, why: Reason) -> int | None:
        """End the session, to begin a new one. Returns its epoch; None if there is none."""
        epoch = self._machine.epoch if self._machine.state.has_session else None
        self._perform(self._machine.end(self._now, why))
        return epoch

    def lose(self) -> None:
        """Close all connections: koalad has ended."""
        for end in (self._end, *self._offers.values()):
            if end is not None:
                end.close()

    # ---- the machine's commands

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Dial():
                    self._host.after(between(self._rng, *_CONNECT), self._dial)
                case Send():
                    if self._end is not None:
                        self._end.send(site_to_json(command.message))
                case Close():
                    end, self._end = self._end, None
                    if end is not None:
                        end.close()
                case Adopt():
                    self._end = self._offers.pop(id(command.conversation))
                case Decline():
                    self._offers.pop(id(command.conversation)).close()
                case Lost():
                    self._host.deliver(neighbour_lost(self.name, command.reason))
                    self._links.lost()
                case Deliver():
                    self._host.deliver(command.delivery)
                case Report():
                    if command.status.state == "connected":
                        self._host.reach_leases()
                case _:
                    raise AssertionError(f"a link between sites has no {command}")
        self._plan()

    def _plan(self) -> None:
        self._host.agenda.cancel(self._timer)
        wakeup = self._machine.next_wakeup()
        if wakeup is not None:
            delay = Duration(max(0, wakeup - self._now))
            self._timer = self._host.after(delay, lambda: self._perform(self._machine.wake(self._now)))

    # ---- connections

    def _dial(self) -> None:
        end = self._links.connect(self.name)
        opening = None if end is None else self._links.opening(self.name)
        if end is None or opening is None:
            if end is not None:
                end.close()
            self._perform(self._machine.not_connected(self._now, _NOBODY if end is None else _NOT_YET))
            return
        conversation = self._conversation(end, opening)
        if self._machine.state is State.DIALING:
            self._end = end
        else:
            self._offers[id(conversation)] = end  # to be declined
        self._perform(self._machine.connected(self._now, conversation))
        if (late := self._offers.pop(id(conversation), None)) is not None:
            late.close()  # an earlier session has come and gone meanwhile

    def arrived(self, end: End, kept: bool) -> None:
        """Take a connection that the neighbour has made; its hello comes first. `kept`: see SessionMachine.offered."""
        end.on_message = lambda message: self._host.enter(lambda: self._greeted(end, message, kept))

    def _greeted(self, end: End, message: Json, kept: bool) -> None:
        opening = self._links.opening(self.name)
        hello = from_json(message, MESSAGES)
        if opening is None or not isinstance(hello, SiteHello):
            end.close()
            return
        conversation = self._conversation(end, opening)
        self._offers[id(conversation)] = end
        self._perform(self._machine.offered(self._now, conversation, hello, hello.epoch, kept))

    def _conversation(self, end: End, opening: SiteOpening) -> NeighbourConversation:
        conversation = NeighbourConversation(self.name, opening, self._outgoing)
        end.on_message = lambda message: self._host.enter(lambda: self._received(conversation, message))
        end.on_closed = lambda: self._host.enter(lambda: self._closed(conversation))
        return conversation

    def _received(self, conversation: NeighbourConversation, json: Json) -> None:
        if self._machine.conversation is not conversation:
            return
        try:
            self._perform(self._machine.received(self._now, from_json(json, MESSAGES)))
        except MessageError as error:
            why = Reason("garbled", "ours", f"{self.name} cannot be understood: {error}.", "")
            self._perform(self._machine.end(self._now, why))

    def _closed(self, conversation: NeighbourConversation) -> None:
        if self._machine.conversation is conversation:
            self._perform(self._machine.cut(self._now, _CUT))

    @property
    def _now(self) -> Instant:
        return self._host.now()
