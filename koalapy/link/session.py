"""The state machine of one link: sessions with the other side, one after the other, from first try to end. Pure.

The machine knows no message: the `Conversation` of a session makes and reads them. It is passed in at each connect.
Each event is a method that takes `now` and returns commands, which the driver performs in their order.
Time-outs are an event too: the driver calls `wake` at `next_wakeup`. Threads, the simulated world and tests are
drivers.

    state      event                              next state          commands
    IDLE       start                              DIALING             Dial
               start, of a machine that never dials WAITING           none
    DIALING    connected                          GREETING            Send: hello, ping
               failed                             WAITING             Lost; Report
    GREETING   received, with an answer: Accepted OPEN                Report; Send: the standing one
               received, with an answer: Refused  WAITING or ENDED    Close; Lost; Report
    GREETING,  received                           the same            Send, and those of the conversation
    OPEN       wake: a ping is due                the same            Send: ping
               wake: the other side is silent     WAITING             Close; Lost; Report
               wake, probed: see `Outage`         the same, WAITING   Probe; or Close, Lost, Report
               cut, failed, end                   WAITING             Close; Lost; Report
    OPEN       send                               the same            Send, and those of the conversation
    WAITING    wake: the wait is over; retry      DIALING             Dial
    IDLE, WAITING, DIALING
               offered                            OPEN                Adopt; Send: hello; Report
    GREETING   offered, by the side that is kept  OPEN                Close; Adopt; Send: hello; Report
               offered, by the other one          GREETING            Decline
    OPEN       offered, a later one               OPEN                Close; Lost; Adopt; Send: hello; Report
               offered, an earlier one            OPEN                Decline
    any        close                              ENDED               Close, if there is a session
    WAITING    connected, too late                WAITING             Decline
    ENDED      any                                ENDED               none; connected, offered: Decline

An event that a state does not name changes nothing there. After a loss, `Reconnect` gives the length of the wait.

**Either side may dial** the link between two sites. A side opens with a hello over its own connection only if it is
still DIALING then. The other side is *offered* a connection with this hello, and answers with its own if it adopts the
connection. If both send a hello at the same time, both keep the same one of the two: that of the side whose name comes
first. A side that offers a later connection has lost the session, so the offer replaces it. An earlier offer was
overtaken by the session, and its side has given it up. Thereby both sides have the same one session in the end.
(RFC 4271, 6.8, has the same rule for BGP, by numbers of routers.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, Protocol, TypeVar

from koalapy.link.reconnect import Reconnect, Timing, is_nonsense
from koalapy.model.errors import Reason
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant

REPLACED = Reason("replaced", "transient", "The other side has connected anew.", "The new connection is in use.")
_ATTENDED_SILENCE_S = 55.0  # of a session that costs a person an answer; after 60 s the KCM ends by itself
SILENCE = Duration(6500 * MILLISECOND)  # before the network is probed; longer than a ping and its answer take
BETWEEN_PROBES = Duration(SECOND // 2)
REVIVAL = Duration(SECOND // 2)  # for the old connection to bring something, once the way is open
NETWORK_CUT = Reason(
    "network_cut",
    "transient",
    "The network was cut, and the connection did not outlive it.",
    "koalad connects again by itself.",
)


class State(Enum):
    """The state of a link; see the table of this module."""

    IDLE = "idle"
    DIALING = "dialing"
    GREETING = "greeting"
    OPEN = "open"
    WAITING = "waiting"
    ENDED = "ended"

    @property
    def has_session(self) -> bool:
        return self in (State.GREETING, State.OPEN)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The state of a connection for `koala clusters`: why it does not stand, and what is at its other end."""

    name: str
    state: Literal["connected", "connecting", "unreachable"]
    reason: Reason | None = None
    host: str = ""
    version: str = ""
    cost: float = 0.0  # CPU seconds of batch commands in this session


# ---- commands


@dataclass(frozen=True, slots=True)
class Dial:
    """Log in and start the agent there; then call `connected`, or `failed`."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message over the session."""

    message: Any


@dataclass(frozen=True, slots=True)
class Close:
    """Close the session's connection; without a reason, nobody lost it."""

    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make the connection on which this conversation was offered the session's."""

    conversation: Any


@dataclass(frozen=True, slots=True)
class Decline:
    """Close the connection that was made or offered for this conversation; nothing was sent over it."""

    conversation: Any


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether the head node could be reached now, without a login; then call `probed`."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Note that the other side is out of reach, for a reason that was not the last one before."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Report:
    """Report the outcome of the try of this number, or the loss of its session; see `retry`."""

    status: LinkStatus
    number: int


class ConversationCommand:
    """A command that only the conversation knows, and its driver: the machine passes it on."""

    __slots__ = ()


Command = Dial | Send | Close | Adopt | Decline | Probe | Lost | Report | ConversationCommand


# ---- the conversation


@dataclass(frozen=True, slots=True)
class Accepted:
    """The other side takes commands from now on. `host`, `version`: what is there.

    `epoch`: the other side's number of this connection, higher for each that it makes or takes; 0 if it has none.
    """

    host: str
    version: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The session is to be ended, since the other side does not fit; `final`: no further try is of use."""

    reason: Reason
    final: bool = False


@dataclass(frozen=True, slots=True)
class Reaction:
    """The result of a message that was received, or is to be sent.

    `messages` are sent, before `commands` are performed. `answer`: what the other side's answer to the hello means.
    """

    messages: tuple[Any, ...] = ()
    commands: tuple[ConversationCommand, ...] = ()
    answer: Accepted | Refused | None = None


class Conversation(Protocol):
    """The messages of one session. It begins with `hello`, and ends with the connection."""

    epoch: int  # higher in each session

    def hello(self, now: Instant) -> Any:
        """Return the first message of the session."""
        ...

    def ping(self, now: Instant) -> Any:
        """Return a message to which the other side sends an answer."""
        ...

    def received(self, now: Instant, message: Any) -> Reaction:
        """Return the reaction to a message. Raises MessageError for a message that cannot be understood."""
        ...


T = TypeVar("T", bound=Conversation)


class SessionMachine(Generic[T]):
    """The machine of one link. `state`, `status` and `epoch` (of the newest session) may be read at any time."""

    def __init__(self, name: str, timing: Timing, uniform: Callable[[float, float], float], dials: bool = True) -> None:
        """Start in IDLE. `name`: the other side's. `uniform`: returns a random number between two.

        `dials`: whether this side can make connections; otherwise it waits for those that it is offered.
        """
        self.state = State.IDLE
        self.status = LinkStatus(name, "connecting")
        self.epoch = 0
        self.conversation: T | None = None  # of the session, if there is one
        self._name, self._timing, self._dials = name, timing, dials
        self._reconnect = Reconnect(timing, uniform)
        self._standing: Callable[[T], Reaction] | None = None
        self._number = self._wanted = 0  # of the newest try, and of the newest that a person has asked for
        self._again_at: Instant | None = None  # in WAITING; None: when a person asks for it
        # of the newest session
        self._outage = Outage(Instant(0))
        self._probes = False
        self._silence = Duration(0)
        self._began_at = self._ping_at = Instant(0)
        self._their_epoch = 0

    def conversation_of(self, epoch: int) -> T | None:
        """Return the conversation of the session of this epoch; None unless it takes commands now."""
        return self.conversation if self.state is State.OPEN and self.epoch == epoch else None

    # ---- the way to a session

    def start(self, now: Instant) -> list[Command]:
        """Begin to dial, or to wait for an offer, in IDLE only."""
        return self._dial(now) if self.state is State.IDLE else []

    def connected(self, now: Instant, conversation: T, probes: bool = False, attended: bool = False) -> list[Command]:
        """Begin a session with the agent, which runs.

        `probes`: whether Probe can be performed. `attended`: a person had to answer something for this login, so its
        session has longer to revive by itself.
        """
        if self.state is not State.DIALING:
            return [Decline(conversation)]
        self._begin(now, conversation, probes, attended)
        return [Send(conversation.hello(now)), Send(conversation.ping(now))]

    def offered(self, now: Instant, conversation: T, hello: Any, epoch: int, kept: bool) -> list[Command]:
        """React to a connection that the other side has made, and to its hello there.

        `epoch`: the other side's number of it. `kept`: whether it is kept if both sides have made one at the same time.
        Raises MessageError if the hello cannot be understood.
        """
        commands: list[Command] = []
        if self.state is State.ENDED or (self.state is State.GREETING and not kept):
            return [Decline(conversation)]
        if self.state is State.GREETING:
            commands = [Close()]
        elif self.state is State.OPEN:
            if epoch <= self._their_epoch:
                return [Decline(conversation)]
            commands = self._lose(now, REPLACED, Close(REPLACED))
        self._begin(now, conversation)
        commands += [Adopt(conversation), Send(conversation.hello(now))]
        return commands + self._react(now, conversation.received(now, hello))

    def _begin(self, now: Instant, conversation: T, probes: bool = False, attended: bool = False) -> None:
        timing = self._timing
        silence_s = max(timing.silence, _ATTENDED_SILENCE_S) if attended else timing.silence
        self._silence = _duration(silence_s)
        self._outage, self._probes = Outage(now), probes and not attended
        self._began_at, self._ping_at = now, Instant(now + _duration(timing.ping))
        self.state, self.epoch, self.conversation = State.GREETING, conversation.epoch, conversation
        self._their_epoch = 0

    def failed(self, now: Instant, reason: Reason) -> list[Command]:
        """React to a connection that could not be made, or a command that could not be performed for the session."""
        if self.state.has_session:
            return self._lose(now, reason, Close(reason))
        return self.not_connected(now, reason)

    def not_connected(self, now: Instant, reason: Reason) -> list[Command]:
        """React to a connection that could not be made. A session that was offered meanwhile goes on."""
        return self._lose(now, reason) if self.state is State.DIALING else []

    def retry(self, now: Instant) -> list[Command]:
        """Try to connect at once if there is no session, even if no further try was planned.

        `wanted` numbers this try.
        """
        self._wanted += 1
        self._reconnect.allow()
        return self._dial(now) if self.state is State.WAITING else []

    @property
    def wanted(self) -> int:
        """The number of the try that a person asked for last."""
        return self._wanted

    # ---- a session

    def alive(self, now: Instant) -> None:
        """Note that bytes have come, or that the other side has taken some."""
        self._outage.received_at = now

    def received(self, now: Instant, message: Any) -> list[Command]:
        """React to a message. Raises MessageError for one that cannot be understood."""
        if self.conversation is None:
            return []
        self.alive(now)
        return self._react(now, self.conversation.received(now, message))

    def send(
        self, now: Instant, outgoing: Callable[[T], Reaction], epoch: int | None = None, standing: bool = False
    ) -> list[Command]:
        """Send the result of one of the conversation's methods; nothing if no session takes commands.

        `epoch`: for this session only. `standing`: after each answer to a hello, until another standing one is sent.
        """
        if standing:
            self._standing = outgoing
        if self.state is not State.OPEN or self.conversation is None or epoch not in (None, self.epoch):
            return []
        return self._react(now, outgoing(self.conversation))

    def probed(self, now: Instant, reachable: bool | None) -> list[Command]:
        """Note whether the head node was reachable; None: it cannot be known."""
        self._outage.probed(now, reachable)
        return []

    def cut(self, now: Instant, reason: Reason) -> list[Command]:
        """React to the end of the connection by the other side."""
        return self.end(now, reason)

    def end(self, now: Instant, reason: Reason) -> list[Command]:
        """End the present session, if there is one, to begin a new one."""
        return self._lose(now, reason, Close(reason)) if self.state.has_session else []

    def close(self, now: Instant) -> list[Command]:
        """End for good; no loss is reported."""
        had_session = self.state.has_session
        self.state, self.conversation = State.ENDED, None
        return [Close()] if had_session else []

    # ---- time

    def next_wakeup(self) -> Instant | None:
        """Return when to call `wake`; None: not before another event."""
        if self.state is State.WAITING:
            return self._again_at
        if not self.state.has_session:
            return None
        probe_at = self._outage.next_wakeup() if self._probes else None
        return self._ping_at if probe_at is None else min(self._ping_at, probe_at)

    def wake(self, now: Instant) -> list[Command]:
        """Do what is due by now; a call that comes too early changes nothing."""
        if self.state is State.WAITING:
            return self._dial(now) if self._again_at is not None and now >= self._again_at else []
        if not self.state.has_session or self.conversation is None:
            return []
        commands: list[Command] = []
        if self._probes and (asked := self._outage.wake(now)) is not None:
            if asked is Next.RECONNECT:
                return self._lose(now, NETWORK_CUT, Close(NETWORK_CUT))
            commands.append(Probe())
        if now >= self._ping_at:
            if (reason := self._silent(now)) is not None:
                return self._lose(now, reason, Close(reason))
            self._ping_at = Instant(now + _duration(self._timing.ping))
            commands.append(Send(self.conversation.ping(now)))
        return commands

    # ---- below

    def _dial(self, now: Instant) -> list[Command]:
        if not self._dials:
            self.state, self._again_at = State.WAITING, None
            return []
        self.state, self._number = State.DIALING, self._wanted
        self._reconnect.tried(now)
        return [Dial()]

    def _react(self, now: Instant, reaction: Reaction) -> list[Command]:
        commands: list[Command] = [Send(message) for message in reaction.messages]
        match reaction.answer:
            case Refused(reason, final):
                return commands + self._lose(now, reason, Close(reason), final=final)
            case Accepted(host, version, epoch):
                self._their_epoch = epoch
                commands += self._accepted(now, host, version)
        return [*commands, *reaction.commands]

    def _accepted(self, now: Instant, host: str, version: str) -> list[Command]:
        self.state = State.OPEN
        self.status = LinkStatus(self._name, "connected", None, host, version)
        self._reconnect.allow()
        again = self.send(now, self._standing) if self._standing is not None else []
        return [Report(self.status, self._number), *again]

    def _silent(self, now: Instant) -> Reason | None:
        """Return the reason to end the session if nothing has come for too long; None otherwise.

        Checked at each ping.
        """
        timing, silent = self._timing, Duration(now - self._outage.received_at)
        longest = self._silence if self.state is State.OPEN else max(self._silence, _duration(timing.welcome))
        if silent + _duration(timing.ping) // 2 < longest:
            return None
        message = f"Nothing has come from {self._name} for {silent / SECOND:.0f} s."
        return Reason("silent", "transient", message, "Is its head node, or the network between, stalled?")

    def _lose(self, now: Instant, reason: Reason, *commands: Command, final: bool = False) -> list[Command]:
        """Wait before the next try; `final`: there is none."""
        lasted = self.state.has_session and now - self._began_at >= _duration(self._timing.settled)
        reason = self._reconnect.failed(reason)
        self.state, self.conversation = State.ENDED if final else State.WAITING, None
        before, self.status = self.status, LinkStatus(self._name, "unreachable", reason)
        found = [*commands]
        if before.state != "unreachable" or before.reason != reason:
            found.append(Lost(reason))
        found.append(Report(self.status, self._number))
        if lasted and not is_nonsense(reason):
            self._reconnect.reset()
        delay = self._reconnect.delay(now, reason)
        asked = self._wanted > self._number  # by a person, while the try that has just failed was under way
        self._again_at = now if asked else None if delay is None or not self._dials else Instant(now + delay)
        return found


def _duration(seconds: float) -> Duration:
    return Duration(round(seconds * SECOND))


class Next(Enum):
    """The action that an outage needs: a probe of the network, or a new session."""

    PROBE = "probe"
    RECONNECT = "reconnect"


class Outage:
    """The state of the network to one cluster during one session: whether it was cut, and is back.

    TCP repeats unacknowledged bytes ever more seldom: after ten seconds without a network, the next try may be ten
    seconds away. So the network is probed as soon as a session falls silent. A new session is begun if the network was
    cut and is back, while the connection still waits to send its next bytes.

    If the first probe of a silence succeeds, no further probe is made in that silence: a head node that hangs is not to
    be burdened.
    """

    def __init__(self, now: Instant) -> None:
        self.received_at = now  # whenever anything comes, this is set
        self._silent_since: Instant | None = None  # the silence that the fields below are about
        self._due: Instant | None = None  # None: a probe is under way, or no more is to be done in this silence
        self._gone = self._reviving = False

    def next_wakeup(self) -> Instant | None:
        """Return when to call `wake`; None: not before another event."""
        return self._due if self._silent_since == self.received_at else Instant(self.received_at + SILENCE)

    def wake(self, now: Instant) -> Next | None:
        """Return the action that is due now; None if there is none."""
        due = self.next_wakeup()
        if due is None or now < due:
            return None
        if self._silent_since != self.received_at:
            self._silent_since, self._gone, self._reviving = self.received_at, False, False
        self._due = None
        return Next.RECONNECT if self._reviving else Next.PROBE

    def probed(self, now: Instant, reachable: bool | None) -> None:
        """Note the answer to a probe; None: it cannot be known."""
        if self._silent_since != self.received_at:
            return
        if reachable is False:
            self._gone, self._due = True, Instant(now + BETWEEN_PROBES)
        elif self._gone:
            self._reviving, self._due = True, Instant(now + REVIVAL)
