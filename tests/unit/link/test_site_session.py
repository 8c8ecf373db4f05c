"""The link between two sites: either side dials, one connection stays, and messages arrive once and in order."""

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.messages import PROTOCOL
from koalapy_adapters.messages.fields import MessageError

from koalapy.driver.driver import Delivery
from koalapy.link.conversation import Deliver
from koalapy.link.neighbour import NeighbourConversation, Outgoing, SiteOpening
from koalapy.link.reconnect import Timing
from koalapy.link.session import Adopt, Close, Command, Decline, Dial, Lost, Report, Send, SessionMachine, State
from koalapy.link.site_messages import SITE_PROTOCOL, SiteAcknowledge, SiteHello, SiteMessage, SitePing, SitePong
from koalapy.model.commands import (
    ReportFree,
)
from koalapy.model.errors import Reason
from koalapy.model.events import (
    MessageReceived,
    NeighbourConnected,
)
from koalapy.model.units import SECOND, Instant

CUT = Reason("cut", "transient", "The connection was lost.")
UNREACHABLE = Reason("refused", "transient", "Nobody listens there.")


class Connection:
    """A connection that `dialler` has made, with what lies on it for each side. Its ends close it one after another."""

    def __init__(self, dialler: str) -> None:
        self.dialler = dialler
        self.inbox: dict[str, deque[Any]] = {"a": deque(), "b": deque()}
        self.ends: dict[str, NeighbourConversation] = {}
        self.closed: set[str] = set()


class Side:
    """One of two sites with its machine, as koalad drives it: dials are made one after another."""

    def __init__(self, name: str, link: "Link") -> None:
        self.name, self.other, self.link = name, "b" if name == "a" else "a", link
        self.machine: SessionMachine[NeighbourConversation] = SessionMachine(name, Timing(), lambda low, high: high)
        self.outgoing = Outgoing(0)
        self.connection: Connection | None = None
        self.dialling = 0
        self.number = 0
        self.got: list[int] = []
        self.committed = 0

    def conversation(self) -> NeighbourConversation:
        self.link.epochs[self.name] += 1
        opening = SiteOpening(
            site=self.name, instance=f"store-{self.name}", version="1", epoch=self.link.epochs[self.name],
            received_from=f"store-{self.other}", received=self.committed,
        )  # fmt: skip
        return NeighbourConversation(self.other, opening, self.outgoing)

    def perform(self, commands: list[Command], connection: Connection | None = None) -> None:
        for command in commands:
            match command:
                case Dial():
                    self.dialling += 1
                case Send(message):
                    if self.connection is not None:
                        self.connection.inbox[self.other].append(message)
                case Adopt():
                    self.connection = connection
                case Decline():
                    assert connection is not None
                    connection.closed.add(self.name)
                case Close():
                    if self.connection is not None:
                        self.connection.closed.add(self.name)
                    self.connection = None
                case Deliver(delivery):
                    self.deliver(delivery)
                case _:
                    pass

    def deliver(self, delivery: Delivery) -> None:
        """Commit at once what has come, and acknowledge it."""
        for event in delivery.events:
            if isinstance(event, MessageReceived) and event.number > self.committed:
                assert isinstance(event.message, ReportFree)
                self.committed = event.number
                self.got.append(event.message.processors)
        if delivery.acknowledge is not None:
            _, epoch, number = delivery.acknowledge
            self.perform(self.machine.send(self.link.now, lambda dialogue: dialogue.acknowledge(number), epoch))

    def dialled(self) -> None:
        """End a dial: the connection stands, and the machine learns of it."""
        self.dialling -= 1
        made = Connection(self.name)
        made.ends[self.name] = conversation = self.conversation()
        self.link.connections.append(made)
        before, free = self.connection, self.machine.state is State.DIALING
        if free:
            self.connection = made
        self.perform(self.machine.connected(self.link.now, conversation), made)
        if not free:
            assert self.connection is before
            made.closed.add(self.name)

    def not_connected(self) -> None:
        self.dialling -= 1
        self.perform(self.machine.not_connected(self.link.now, UNREACHABLE))

    def read(self, connection: Connection) -> None:
        """Take the next message of a connection; the first one of a connection that was accepted is an offer."""
        inbox = connection.inbox[self.name]
        if self.name in connection.closed:
            inbox.clear()
            return
        if not inbox:
            if self.connection is connection:
                self.connection = None
                self.perform(self.machine.cut(self.link.now, CUT))
            connection.closed.add(self.name)
            return
        message = inbox.popleft()
        if self.name not in connection.ends:
            assert isinstance(message, SiteHello)
            connection.ends[self.name] = conversation = self.conversation()
            kept = connection.dialler == min(self.name, self.other)
            offered = self.machine.offered(self.link.now, conversation, message, message.epoch, kept)
            self.perform(offered, connection)
        elif self.connection is connection:
            self.perform(self.machine.received(self.link.now, message))

    def send(self) -> None:
        self.number += 1
        number = self.number
        # `Outgoing` replaces reports by later ones; here every message counts.
        self.outgoing._waiting[number] = ReportFree(neighbour=self.other, processors=number)
        self.outgoing.highest = number
        command = self.outgoing._waiting[number]
        self.perform(self.machine.send(self.link.now, lambda dialogue: dialogue.send(number, command)))


class Link:
    """Two sides and the network between them. The test chooses what happens next."""

    def __init__(self) -> None:
        self.now = Instant(1_000 * SECOND)
        self.epochs = {"a": 0, "b": 0}
        self.connections: list[Connection] = []
        self.sides = {name: Side(name, self) for name in "ab"}

    def start(self) -> None:
        for side in self.sides.values():
            side.perform(side.machine.start(self.now))

    def ready(self) -> list[tuple[str, Side, Connection | None]]:
        """Return what may happen next, other than a wait: dials that end, and messages or ends that arrive."""
        found: list[tuple[str, Side, Connection | None]] = []
        for side in self.sides.values():
            if side.dialling:
                found.append(("dialled", side, None))
            for each in self.connections:
                if side.name not in each.closed and (each.inbox[side.name] or each.closed):
                    found.append(("read", side, each))
        return found

    def step(self, choice: int) -> bool:
        ready = self.ready()
        if not ready:
            return False
        what, side, connection = ready[choice % len(ready)]
        if what == "dialled" and choice >= 6:
            side.not_connected()
        elif what == "dialled":
            side.dialled()
        else:
            assert connection is not None
            side.read(connection)
        return True

    def cut(self) -> None:
        """Lose all connections, with everything on them."""
        for each in self.connections:
            for side in self.sides.values():
                each.inbox[side.name].clear()
                if side.connection is each:
                    side.connection = None
                    side.perform(side.machine.cut(self.now, CUT))
            each.closed = {"a", "b"}

    def settle(self, choices: list[int]) -> None:
        """Let everything happen, in the order of the choices, then wait until both sides have a session."""
        turns = iter(choices)
        for _ in range(10_000):
            if self.step(next(turns, 0)):
                continue
            if all(side.machine.state is State.OPEN for side in self.sides.values()):
                return
            waiting = [side for side in self.sides.values() if side.machine.state is State.WAITING]
            assert waiting, [side.machine.state for side in self.sides.values()]
            self.now = Instant(self.now + SECOND)
            for side in waiting:
                side.perform(side.machine.wake(self.now))
        raise AssertionError("the sides never agree")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=60), st.lists(st.sampled_from(["a", "b", "cut", "step"]), max_size=25))
def test_two_sides_that_dial_at_any_time_keep_the_same_one_connection(choices: list[int], acts: list[str]) -> None:
    link = Link()
    link.start()
    for index, act in enumerate(acts):
        if act == "cut":
            link.cut()
        elif act == "step":
            link.step(choices[index % len(choices)] if choices else 0)
        else:
            link.sides[act].send()
    link.settle(choices)
    a, b = link.sides["a"], link.sides["b"]
    assert a.connection is not None
    assert a.connection is b.connection
    assert [each for each in link.connections if not each.closed] == [a.connection]
    for one, two in ((a, b), (b, a)):
        assert two.got == list(range(1, one.number + 1))
        assert one.outgoing.all() == []


def machine(dials: bool = True) -> SessionMachine[NeighbourConversation]:
    return SessionMachine("b", Timing(), lambda low, high: high, dials)


def conversation(epoch: int = 1, outgoing: Outgoing | None = None, **opening: Any) -> NeighbourConversation:
    facts = SiteOpening(site="a", instance="store-a", version="1", epoch=epoch, **opening)
    return NeighbourConversation("b", facts, outgoing or Outgoing(0))


def hello(epoch: int = 1, **fields: Any) -> SiteHello:
    return SiteHello(SITE_PROTOCOL, "1", "b", "store-b", epoch, "", 0)._replace(**fields)


NOW = Instant(1_000 * SECOND)


def test_a_site_that_never_dials_takes_what_it_is_offered() -> None:
    link = machine(dials=False)
    assert link.start(NOW) == []
    assert (link.state, link.next_wakeup()) == (State.WAITING, None)
    dialogue = conversation()
    commands = link.offered(NOW, dialogue, hello(), 1, kept=True)
    assert [type(each) for each in commands] == [Adopt, Send, Report, Deliver]
    assert link.state is State.OPEN
    link.cut(NOW, CUT)
    assert (link.state, link.next_wakeup()) == (State.WAITING, None)


@pytest.mark.parametrize(("kept", "state"), [(True, State.OPEN), (False, State.GREETING)])
def test_of_two_connections_at_one_time_that_of_the_first_name_stays(kept: bool, state: State) -> None:
    link, offer = machine(), conversation(2)
    link.start(NOW)
    link.connected(NOW, conversation(1))
    commands = link.offered(NOW, offer, hello(), 1, kept)
    assert link.state is state
    assert (commands == [Decline(offer)]) is not kept
    assert (commands[:2] == [Close(), Adopt(offer)]) is kept


@pytest.mark.parametrize("epoch", [4, 5, 6])
def test_a_later_offer_replaces_a_session_and_an_earlier_one_does_not(epoch: int) -> None:
    link, offer = machine(), conversation(2)
    link.start(NOW)
    link.connected(NOW, conversation(1))
    link.received(NOW, hello(5))
    commands = link.offered(NOW, offer, hello(epoch), epoch, kept=True)
    assert (commands == [Decline(offer)]) is (epoch <= 5)
    assert any(isinstance(each, Lost) for each in commands) is (epoch > 5)
    assert link.conversation_of(2) is (offer if epoch > 5 else None)


def test_an_offer_after_the_end_is_declined() -> None:
    link, offer = machine(), conversation()
    link.close(NOW)
    assert link.offered(NOW, offer, hello(), 1, kept=True) == [Decline(offer)]


def test_a_dial_that_an_offer_has_overtaken_is_given_up_without_a_hello() -> None:
    link, dialled = machine(), conversation(2)
    link.start(NOW)
    link.offered(NOW, conversation(1), hello(), 1, kept=False)
    assert link.connected(NOW, dialled) == [Decline(dialled)]
    assert link.not_connected(NOW, UNREACHABLE) == []
    assert link.state is State.OPEN


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol": SITE_PROTOCOL + 1}, "other_protocol"),
        ({"kcm": PROTOCOL + 1}, "other_protocol"),
        ({"site": "c"}, "other_name"),
        ({"instance": "store-a"}, "own_store"),
        ({"received_from": "store-a", "received": 1}, "store_restored"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(fields: dict[str, Any], code: str) -> None:
    link = machine()
    link.start(NOW)
    link.connected(NOW, conversation())
    commands = link.received(NOW, hello(**fields))
    assert [each.reason.code for each in commands if isinstance(each, Lost)] == [code]
    assert link.state is State.WAITING


def test_what_the_neighbour_has_committed_is_not_sent_again() -> None:
    outgoing = Outgoing(9)
    assert outgoing.put(4, ReportFree(neighbour="b", processors=4))
    assert not outgoing.put(4, ReportFree(neighbour="b", processors=4))
    outgoing.put(7, ReportFree(neighbour="b", processors=7))  # replaces the report before it
    dialogue = conversation(outgoing=outgoing, received_from="store-b", received=3)
    assert dialogue.received(NOW, hello(received_from="store-a", received=6)).messages == (
        SiteMessage(7, {"type": "free_processors", "processors": 7}),
    )
    committed = dialogue.received(NOW, SiteAcknowledge(7)).commands
    assert committed == (Deliver(Delivery(confirmed=(7,))),)
    assert dialogue.received(NOW, SiteAcknowledge(7)).commands == ()


def test_what_the_neighbour_has_committed_is_confirmed_although_the_session_ends() -> None:
    """A delivery of a session is dropped with it, and the neighbour does not state the same number again."""
    outgoing = Outgoing(9)
    outgoing.put(4, ReportFree(neighbour="b", processors=4))
    dialogue = conversation(outgoing=outgoing)
    greeted = dialogue.received(NOW, hello(received_from="store-a", received=6)).commands
    deliveries = [each.delivery for each in greeted if isinstance(each, Deliver)]
    assert [(each.confirmed, each.session) for each in deliveries] == [((4,), None), ((), ("site:b", 1))]


def test_a_message_is_delivered_with_its_number_and_acknowledged_after_its_commit() -> None:
    dialogue = conversation(received_from="store-b", received=3)
    greeted = dialogue.received(NOW, hello()).commands
    connected = NeighbourConnected(neighbour="b", instance="store-b")
    assert greeted == (Deliver(Delivery(events=(connected,), session=("site:b", 1))),)
    body = {"type": "free_processors", "processors": 12}
    message = ReportFree(neighbour="b", processors=12)
    event = MessageReceived(neighbour="b", instance="store-b", number=8, message=message)
    delivery = Delivery(events=(event,), acknowledge=("site:b", 1, 8), session=("site:b", 1))
    assert dialogue.received(NOW, SiteMessage(8, body)).commands == (Deliver(delivery),)
    assert dialogue.received(NOW, SiteMessage(3, body)).messages == (SiteAcknowledge(3),)
    assert dialogue.acknowledge(8).messages == (SiteAcknowledge(8),)
    assert dialogue.received(NOW, SiteMessage(8, body)).messages == (SiteAcknowledge(8),)


@pytest.mark.parametrize("body", [{}, {"type": "x"}, {"type": "free_processors", "processors": -1}])
def test_a_body_that_cannot_be_understood_ends_the_session(body: dict[str, Any]) -> None:
    dialogue = conversation()
    dialogue.received(NOW, hello())
    with pytest.raises(MessageError):
        dialogue.received(NOW, SiteMessage(1, body))


def test_nothing_is_taken_before_the_hello() -> None:
    dialogue = conversation()
    body = {"type": "free_processors", "processors": 12}
    assert dialogue.received(NOW, SiteMessage(1, body)).commands == ()
    assert dialogue.received(NOW, SiteAcknowledge(1)).commands == ()
    assert dialogue.received(NOW, SitePing()).messages == (SitePong(),)
