"""The state machine of one link: sessions with one cluster, one after the other, from first try to end. Pure.

Each event is a method that takes `now` and returns commands, which the driver performs in their order. Time-outs are
an event too: the driver calls `wake` at `next_wakeup`. Threads, the simulated world and tests are drivers.

    state      event                              next state          commands
    IDLE       start                              DIALING             Dial
    DIALING    connected                          GREETING            Send: hello, ping
               failed                             WAITING             Deliver: lost; Report
    GREETING   received: Welcome, accepted        TALKING             Report; Send: the standing one; Deliver
               received: Welcome, refused         WAITING or ENDED    Close; Deliver: lost; Report
    GREETING,  received: anything else            the same            Send, Deliver, PutKey, LogRefusal
    TALKING    wake: a ping is due                the same            Send: ping
               wake: the other side is silent     WAITING             Close; Deliver: lost; Report
               wake, probed: see `Outage`         the same, WAITING   Probe; or Close, Deliver: lost, Report
               cut, failed, end                   WAITING             Close; Deliver: lost; Report
    TALKING    send                               the same            Send, StageIn
    WAITING    wake: the wait is over; retry      DIALING             Dial
    any        close                              ENDED               Close, if there is a session
    ENDED      any                                ENDED               none; connected: Close

An event that a state does not name changes nothing there. After a loss, `Reconnect` gives the length of the wait.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from koalapy_adapters.messages import Welcome

from koalapy.driver import Delivery
from koalapy.link.cluster import Cluster
from koalapy.link.conversation import Conversation, Reaction
from koalapy.link.outage import NETWORK_CUT, Next, Outage
from koalapy.link.outstanding import ComponentCommand
from koalapy.link.reconnect import Reconnect, is_nonsense
from koalapy.link.restore_check import IMPOSSIBLE, Verdict
from koalapy.model.commands import SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterLost
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.units import SECOND, Duration, Instant

REPLACED = Reason(
    "replaced",
    "request",
    "Another koalad with this store, or with a copy of it, has taken this cluster over.",
    "End one of the two with `koala down`; a koalad that is started takes its clusters.",
)
_RESTORED = Reason(
    "store_restored",
    "transient",
    "The cluster knows more of this store than the store itself: it was restored from a backup.",
    "koalad connects again by itself, and looks for what ran since.",
)
_ATTENDED_SILENCE_S = 55.0  # of a session that costs a person an answer; after 60 s the KCM ends by itself

Outgoing = Callable[[Conversation], Reaction]


class State(Enum):
    """The state of a link; see the table of this module."""

    IDLE = "idle"
    DIALING = "dialing"
    GREETING = "greeting"
    TALKING = "talking"
    WAITING = "waiting"
    ENDED = "ended"

    @property
    def has_session(self) -> bool:
        return self in (State.GREETING, State.TALKING)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The state of a connection for `koala clusters`: why it does not stand, and what is at its other end."""

    cluster: str
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
    """Send this message of koalapy_adapters.messages over the session."""

    message: Any


@dataclass(frozen=True, slots=True)
class Close:
    """Close the session's connection; without a reason, nobody lost it."""

    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether the head node could be reached now, without a login; then call `probed`."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """Pass this to koalad's driver."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Report:
    """Report the outcome of the try of this number, or the loss of its session; see `retry`."""

    status: LinkStatus
    number: int


@dataclass(frozen=True, slots=True)
class StageIn:
    """Bring the files of this Submit to the cluster; then send `Conversation.submit` or `not_staged`."""

    number: int
    command: SubmitAttempt
    doubt: bool


@dataclass(frozen=True, slots=True)
class PutKey:
    """Pass on a key that a program has put, for the other components of its job."""

    attempt: AttemptId
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class LogRefusal:
    """Log that the cluster does not understand this command."""

    command: ComponentCommand | None
    reason: Reason


Command = Dial | Send | Close | Probe | Deliver | Report | StageIn | PutKey | LogRefusal


class SessionMachine:
    """The machine of one link. `state`, `status` and `epoch` (of the newest session) may be read at any time."""

    def __init__(
        self,
        cluster: Cluster,
        check: Callable[[int, Welcome], Verdict],
        uniform: Callable[[float, float], float],
        version: str,
    ) -> None:
        """Start in IDLE. `check`: returns the verdict on the Welcome of the session of this epoch.

        `uniform`: returns a random number between two. `version`: koalapy's.
        """
        self.state = State.IDLE
        self.status = LinkStatus(cluster.name, "connecting")
        self.epoch = 0
        self._cluster, self._check, self._version = cluster, check, version
        self._reconnect = Reconnect(cluster.timing, uniform)
        self._standing: Outgoing | None = None
        self._number = self._wanted = 0  # of the newest try, and of the newest that a person has asked for
        self._again_at: Instant | None = None  # in WAITING; None: when a person asks for it
        # of the newest session
        self._conversation: Conversation | None = None
        self._outage = Outage(Instant(0))
        self._probes = False
        self._silence = Duration(0)
        self._began_at = self._ping_at = Instant(0)

    def conversation_of(self, epoch: int) -> Conversation | None:
        """Return the conversation of the session of this epoch; None unless it takes commands now."""
        return self._conversation if self.state is State.TALKING and self.epoch == epoch else None

    @property
    def cost(self) -> float:
        """CPU seconds that the batch commands of this session have taken; 0 without one."""
        return self._conversation.cost if self._conversation is not None else 0.0

    # ---- the way to a session

    def start(self, now: Instant) -> list[Command]:
        """Begin to dial, in IDLE only."""
        return self._dial(now) if self.state is State.IDLE else []

    def connected(
        self,
        now: Instant,
        epoch: int,
        known: Sequence[tuple[AttemptId, str]],
        doubtful: Sequence[JobId] = (),
        probes: bool = False,
        attended: bool = False,
    ) -> list[Command]:
        """Begin a session with the agent, which runs. `known`, `doubtful`: see `Conversation.hello`.

        `probes`: whether Probe can be performed. `attended`: a person had to answer something for this login, so its
        session has longer to revive by itself.
        """
        if self.state is not State.DIALING:
            return [Close()]
        timing = self._cluster.timing
        silence_s = max(timing.silence, _ATTENDED_SILENCE_S) if attended else timing.silence
        self._silence = _duration(silence_s)
        self._outage, self._probes = Outage(now), probes and not attended
        self._began_at, self._ping_at = now, Instant(now + _duration(timing.ping))
        self.state, self.epoch = State.GREETING, epoch
        self._conversation = Conversation(self._cluster, epoch)
        return [Send(message) for message in self._conversation.hello(now, self._version, known, doubtful)]

    def failed(self, now: Instant, reason: Reason) -> list[Command]:
        """React to a connection that could not be made, or a command that could not be performed for the session."""
        if self.state.has_session:
            return self._lose(now, reason, Close(reason))
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
        """React to a message. Raises MessageError for an event whose body is no message."""
        if self._conversation is None:
            return []
        self.alive(now)
        return self._react(now, self._conversation.received(now, message))

    def send(self, now: Instant, outgoing: Outgoing, epoch: int | None = None, standing: bool = False) -> list[Command]:
        """Send the result of one of the conversation's methods; nothing if no session takes commands.

        `epoch`: for this session only. `standing`: again after each Welcome, until another standing one is sent.
        """
        if standing:
            self._standing = outgoing
        if self.state is not State.TALKING or self._conversation is None or epoch not in (None, self.epoch):
            return []
        return self._react(now, outgoing(self._conversation))

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
        self.state, self._conversation = State.ENDED, None
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
        if not self.state.has_session or self._conversation is None:
            return []
        commands: list[Command] = []
        if self._probes and (asked := self._outage.wake(now)) is not None:
            if asked is Next.RECONNECT:
                return self._lose(now, NETWORK_CUT, Close(NETWORK_CUT))
            commands.append(Probe())
        if now >= self._ping_at:
            if (reason := self._silent(now)) is not None:
                return self._lose(now, reason, Close(reason))
            self._ping_at = Instant(now + _duration(self._cluster.timing.ping))
            commands.append(Send(self._conversation.ping(now)))
        return commands

    # ---- below

    def _dial(self, now: Instant) -> list[Command]:
        self.state, self._number = State.DIALING, self._wanted
        self._reconnect.tried(now)
        return [Dial()]

    def _react(self, now: Instant, reaction: Reaction) -> list[Command]:
        commands: list[Command] = [Send(message) for message in reaction.messages]
        if reaction.welcome is not None:
            commands += self._welcomed(now, reaction.welcome)
            if self.state is not State.TALKING:
                return commands
        if reaction.key is not None:
            commands.append(PutKey(*reaction.key))
        if reaction.refused is not None:
            commands.append(LogRefusal(*reaction.refused))
        if reaction.stage_in is not None:
            commands.append(StageIn(*reaction.stage_in))
        return commands + [Deliver(delivery) for delivery in reaction.deliveries]

    def _welcomed(self, now: Instant, welcome: Welcome) -> list[Command]:
        """Take commands from now on, or end the session of a KCM that did not pass the check."""
        verdict = self._check(self.epoch, welcome)
        if verdict is not Verdict.FINE:
            reason = {Verdict.REPLACED: REPLACED, Verdict.IMPOSSIBLE: IMPOSSIBLE}.get(verdict, _RESTORED)
            return self._lose(now, reason, Close(reason))
        self.state = State.TALKING
        self.status = LinkStatus(self._cluster.name, "connected", None, welcome.host, welcome.batch_version)
        self._reconnect.allow()
        again = self.send(now, self._standing) if self._standing is not None else []
        return [Report(self.status, self._number), *again]

    def _silent(self, now: Instant) -> Reason | None:
        """Return the reason to end the session if nothing has come for too long; None otherwise.

        Checked at each ping.
        """
        timing, silent = self._cluster.timing, Duration(now - self._outage.received_at)
        longest = self._silence if self.state is State.TALKING else max(self._silence, _duration(timing.welcome))
        if silent + _duration(timing.ping) // 2 < longest:
            return None
        message = f"The KCM has said nothing for {silent / SECOND:.0f} s."
        return Reason("silent", "transient", message, "Is its head node, or the network between, stalled?")

    def _lose(self, now: Instant, reason: Reason, *commands: Command) -> list[Command]:
        """Wait before the next try. koalad's driver receives the same reason once only."""
        lasted = self.state.has_session and now - self._began_at >= _duration(self._cluster.timing.settled)
        reason = self._reconnect.failed(reason)
        self.state, self._conversation = State.WAITING, None
        before, self.status = self.status, LinkStatus(self._cluster.name, "unreachable", reason)
        found = [*commands]
        if before.state != "unreachable" or before.reason != reason:
            found.append(Deliver(Delivery(events=(ClusterLost(cluster=self._cluster.name, reason=reason),))))
        found.append(Report(self.status, self._number))
        if reason is REPLACED:
            self.state = State.ENDED
            return found
        if lasted and not is_nonsense(reason):
            self._reconnect.reset()
        delay = self._reconnect.delay(now, reason)
        asked = self._wanted > self._number  # by a person, while the try that has just failed was under way
        self._again_at = now if asked else None if delay is None else Instant(now + delay)
        return found


def _duration(seconds: float) -> Duration:
    return Duration(round(seconds * SECOND))
