"""The conversation of koalad with a KCM: its commands to messages, and messages to deliveries. Pure.

It keeps the commands that are not confirmed yet. The offset of the KCM's clock from koalad's is estimated from the
round trips of its answers.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from koalapy_adapters import messages as wire
from koalapy_adapters.messages import kcm, koalad

from koalapy.driver.driver import Delivery
from koalapy.link import sweeps, translate
from koalapy.link.reconnect import Cluster
from koalapy.link.restore_check import REFUSALS, Verdict, trust
from koalapy.link.session import Accepted, ConversationCommand, Reaction, Refused
from koalapy.model.cluster import Machine
from koalapy.model.commands import CancelAttempt, ClusterHint, ForgetAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptForgotten,
    AttemptStuck,
    AttemptSubmitted,
    ClusterConnected,
    ClusterLost,
    Event,
    MeasurementFailed,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, JobId, tag_of, tags_of
from koalapy.model.records import Records
from koalapy.model.units import Instant

_Events = tuple[tuple[Event, ...], tuple[int, ...]]  # events, and the outbox numbers that are confirmed with them

_NO_FILE: list[list[Any]] = [["", "", 0]]  # a list of staged files that no KCM can have
_PINGS = 10  # remembered; an answer to an older one is ignored
_SAMPLES = 12  # round trips by which the offset of a clock is estimated
ComponentCommand = SubmitAttempt | ReleaseAttempt | CancelAttempt | ForgetAttempt


@dataclass(frozen=True, slots=True)
class Deliver(ConversationCommand):
    """Pass this to koalad's driver."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class StageIn(ConversationCommand):
    """Bring the files of this Submit to the cluster; then send `KcmConversation.submit` or `not_staged`."""

    number: int
    command: SubmitAttempt
    doubt: bool


@dataclass(frozen=True, slots=True)
class PutKey(ConversationCommand):
    """Pass on a key that a program has put, for the other components of its job."""

    attempt: AttemptId
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class LogRefusal(ConversationCommand):
    """Log that the cluster does not understand this command."""

    command: ComponentCommand | None
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The facts that one session with a cluster begins with. `epoch` is higher than those of all before it.

    `known`: see `known_attempts`. `doubtful`: jobs of which the cluster may know more than the store (see Counters).
    `check`: returns the verdict on the Welcome of the session of this epoch. `version`: koalapy's.
    """

    epoch: int
    version: str
    known: Sequence[tuple[AttemptId, str]] = ()
    doubtful: Sequence[JobId] = ()
    check: Callable[[int, kcm.Welcome], Verdict] = trust


class KcmConversation:
    """One session. It begins with `hello` and ends with its connection; the next one has a higher epoch.

    A KCM's events are numbered. An event that was delivered before is not delivered again, only acknowledged if it may
    be. An event that comes before its predecessor is not delivered either: the KCM sends it again. So nothing that a
    connection repeats, loses or reorders reaches the driver.
    """

    def __init__(self, cluster: Cluster, opening: Opening) -> None:
        self.epoch = opening.epoch
        self.cost = 0.0  # CPU seconds that the KCM's batch commands have taken
        self._cluster, self._opening = cluster, opening
        self._outstanding = Outstanding()
        self._unstaged: dict[int, Reason] = {}  # why a Submit in doubt could not be staged again
        self._offset = ClockOffset()
        self._hello_at = Instant(0)
        self._asked: dict[int, Instant] = {}  # when a Ping was sent
        self._pings = 0
        self._delivered = 0  # the number of the newest event that was
        self._acknowledged = 0

    # ---- to the KCM

    def hello(self, now: Instant) -> koalad.Hello:
        """Return the first message of the session."""
        self._hello_at = now
        opening, instance = self._opening, self._cluster.instance
        config = koalad.ClusterConfig(**self._cluster.config)
        tags: list[list[str]] = [[tag_of(instance, attempt), batch_id] for attempt, batch_id in opening.known]
        fields = dict(config._asdict())
        recall: list[list[str]] = [list(tags_of(instance, job)) for job in opening.doubtful]
        return koalad.Hello(wire.PROTOCOL, opening.version, self.epoch, instance, now, fields, tags, recall)

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> Reaction:
        """Send a command once per session. A Submit with files is not sent yet: see `submit` and `not_staged`."""
        if not self._outstanding.add(number, command):
            return Reaction()
        instance = self._cluster.instance
        match command:
            case CancelAttempt():
                return Reaction(messages=(translate.cancel(instance, number, command),))
            case ForgetAttempt():
                return Reaction(messages=(translate.forget(instance, number, command),))
            case ReleaseAttempt():
                return Reaction(messages=(translate.release(instance, number, command),))
            case SubmitAttempt():
                if command.stage_in:
                    return Reaction(commands=(StageIn(number, command, doubt),))
                return self.submit(number, doubt)

    def submit(self, number: int, doubt: bool, staged: Sequence[list[Any]] = ()) -> Reaction:
        """Send a Submit whose files are `staged` (see wire.Submit); nothing if it was cancelled meanwhile."""
        command = self._outstanding.get(number)
        if not isinstance(command, SubmitAttempt) or not self.is_wanted(number):
            return Reaction()
        instance, grace = self._cluster.instance, self._cluster.grace
        return Reaction(messages=(translate.submit(instance, number, command, list(staged), doubt, grace),))

    def is_wanted(self, number: int) -> bool:
        """Return whether a command is still to be carried out: neither confirmed nor cancelled meanwhile."""
        return self._outstanding.is_wanted(number)

    def not_staged(self, number: int, reason: Reason, doubt: bool) -> Reaction:
        """Report that the files of a Submit cannot be staged in.

        In doubt the batch job may exist: then the KCM must look, and submit nothing.
        """
        if not doubt:
            return self.fail(number, reason)
        self._unstaged[number] = reason
        return self.submit(number, doubt, _NO_FILE)

    def fail(self, number: int, reason: Reason) -> Reaction:
        """Report a Submit that was sent to no KCM, or that the KCM refused."""
        command = self._outstanding.get(number)
        if command is None:
            return Reaction()
        self._outstanding.confirm(number)
        event = SubmissionFailed(cluster=self._cluster.name, attempt=command.attempt, reason=reason)
        return self._deliver((event,), (number,))

    def hint(self, hint: ClusterHint) -> Reaction:
        """Send a hint, which is neither stored nor repeated."""
        return Reaction(messages=(translate.hint_message(self._cluster.instance, hint),))

    def acknowledge(self, epoch: int, number: int) -> Reaction:
        """Acknowledge events up to this number, which are committed.

        Events of another session are gone with its KCM.
        """
        if epoch != self.epoch:
            return Reaction()
        self._acknowledged = max(self._acknowledged, number)
        return Reaction(messages=(koalad.Acknowledge(number),))

    def put_key(self, attempt: AttemptId, key: str, value: str) -> Reaction:
        """Send a key to a component on this cluster."""
        return Reaction(messages=(kcm.PutKey(tag_of(self._cluster.instance, attempt), key, value),))

    # ---- its clock

    def ping(self, now: Instant) -> koalad.Ping:
        """Return the next Ping, whose answer helps to estimate the clock offset."""
        self._pings += 1
        self._asked[self._pings] = now
        self._asked.pop(self._pings - _PINGS, None)
        return koalad.Ping(self._pings, now)

    def _ours(self, theirs: int) -> Instant:
        return self._offset.to_ours(theirs, self._now)

    # ---- from the KCM

    def received(self, now: Instant, message: Any) -> Reaction:
        """Return the reaction to a message of the KCM. Raises MessageError for an event whose body is no message."""
        self._now = now
        if isinstance(message, kcm.Event):
            return self._event(message)
        answer = _ANSWERS.get(type(message))
        if answer is not None:
            return answer(self, message)
        if isinstance(message, kcm.PutKey):
            attempt = translate.own_attempt(self._cluster.instance, message.space)
            return (
                Reaction(commands=(PutKey(attempt, message.key, message.value),)) if attempt is not None else Reaction()
            )
        events, confirmed = self._events_of(message)
        return self._deliver(events, confirmed) if events or confirmed else Reaction()

    def _deliver(self, events: tuple[Event, ...], confirmed: tuple[int, ...] = (), number: int = 0) -> Reaction:
        """Return a delivery of this session. `number`: that of the KCM's event, if it is one."""
        name, epoch = self._cluster.name, self.epoch
        acknowledge = (name, epoch, number) if number else None
        return Reaction(commands=(Deliver(Delivery(events, confirmed, acknowledge, session=(name, epoch))),))

    def _event(self, message: kcm.Event) -> Reaction:
        if message.number <= self._acknowledged:
            return Reaction(messages=(koalad.Acknowledge(self._acknowledged),))
        if message.number != self._delivered + 1:
            return Reaction()
        body = wire.from_json(message.body, wire.EVENTS)
        events, confirmed = self._events_of(body)
        self._delivered = message.number
        return self._deliver(events, confirmed, message.number)

    def _events_of(self, message: Any) -> _Events:
        name = self._cluster.name
        if isinstance(message, kcm.Measured):
            return (translate.measured(self._cluster.instance, name, message, self._ours),), ()
        if isinstance(message, kcm.MeasureFailed):
            return (translate.measure_failed(name, message),), ()
        event = sweeps.event_of(self._cluster.instance, name, message, self._ours)
        if event is not None:
            return (event,), ()
        attempt = translate.own_attempt(self._cluster.instance, getattr(message, "tag", ""))
        return ((), ()) if attempt is None else self._events_of_attempt(attempt, message)

    def _events_of_attempt(self, attempt: AttemptId, message: Any) -> _Events:
        name = self._cluster.name
        if isinstance(message, kcm.CleanedUp):
            return (AttemptCleanedUp(cluster=name, attempt=attempt),), self._outstanding.confirm_gone(attempt)
        if isinstance(message, kcm.Stuck):
            return (AttemptStuck(cluster=name, attempt=attempt, reason=translate.reason_of(message.error)),), ()
        if isinstance(message, kcm.BatchStatus):
            return (translate.seen(name, attempt, message, self._ours),), ()
        if isinstance(message, kcm.Report):
            return (translate.reported(name, attempt, message, self._ours),), ()
        return (), ()

    def _on_welcome(self, message: kcm.Welcome) -> Reaction:
        """Take commands from now on, or end the session of a KCM that does not pass the check."""
        self._offset.add(self._hello_at, message.clock, self._now)
        verdict = self._opening.check(self.epoch, message)
        if verdict is not Verdict.FINE:
            return Reaction(answer=Refused(REFUSALS[verdict], final=verdict is Verdict.REPLACED))
        name, instance = self._cluster.name, self._cluster.instance
        recalled = [translate.own_attempt(instance, tag) for tag in message.recalled]
        known = None if message.newest_number is None else tuple(each for each in recalled if each is not None)
        machine = Machine(message.system, message.release, message.architecture, tuple(message.mpi), message.speed)
        connected = ClusterConnected(cluster=name, version=message.batch_version, recalled=known, machine=machine)
        events: list[Event] = [connected]
        if message.error is not None:
            events.append(MeasurementFailed(cluster=name, reason=translate.reason_of(message.error)))
        accepted = Accepted(message.host, message.batch_version)
        return replace(self._deliver(tuple(events)), answer=accepted)

    def _on_pong(self, message: kcm.Pong) -> Reaction:
        self.cost = message.cost
        asked_at = self._asked.pop(message.id, None)
        if asked_at is not None:
            self._offset.add(asked_at, message.clock, self._now)
        return Reaction()

    def _on_submitted(self, message: kcm.Submitted) -> Reaction:
        command = self._outstanding.get(message.id)
        if not isinstance(command, SubmitAttempt):
            return Reaction()
        event = AttemptSubmitted(cluster=self._cluster.name, attempt=command.attempt, batch_id=message.batch_id)
        return self._confirmed(message.id, event)

    def _on_refused(self, message: kcm.Refused) -> Reaction:
        """React to a refusal. Only CleanedUp confirms a cancel, which is sent again after the next connect."""
        command = self._outstanding.get(message.id)
        reason = translate.reason_of(message.error)
        if isinstance(command, SubmitAttempt):
            return self.fail(message.id, self._unstaged.pop(message.id, reason))
        refusal = LogRefusal(command, reason)
        if command is None or isinstance(command, CancelAttempt):
            return Reaction(commands=(refusal,))
        events: tuple[Event, ...] = ()
        if isinstance(command, ForgetAttempt):
            events = (AttemptForgotten(cluster=self._cluster.name, attempt=command.attempt, refused=reason),)
        return Reaction(commands=(refusal, *self._confirmed(message.id, *events).commands))

    def _on_done(self, message: kcm.Done) -> Reaction:
        command = self._outstanding.get(message.id)
        if isinstance(command, ForgetAttempt):
            event = AttemptForgotten(cluster=self._cluster.name, attempt=command.attempt)
            return self._confirmed(message.id, event)
        return self._confirmed(message.id) if isinstance(command, ReleaseAttempt) else Reaction()

    def _confirmed(self, number: int, *events: Event) -> Reaction:
        self._outstanding.confirm(number)
        return self._deliver(events, (number,))


def known_attempts(records: Records, cluster: str) -> list[tuple[AttemptId, str]]:
    """Return every attempt that may have something on the cluster, with its batch id, '' if that is not known."""
    live = [(attempt.id, attempt.batch_id) for attempt in records.live(cluster)]
    return live + [(each.id, each.batch_id) for each in records.pending_cancels.values() if each.cluster == cluster]


def lost(cluster: str, reason: Reason) -> Delivery:
    """Return the delivery of a loss, which belongs to no session."""
    return Delivery(events=(ClusterLost(cluster=cluster, reason=reason),))


_ANSWERS: dict[type, Callable[[KcmConversation, Any], Reaction]] = {
    kcm.Welcome: KcmConversation._on_welcome,
    kcm.Pong: KcmConversation._on_pong,
    kcm.Submitted: KcmConversation._on_submitted,
    kcm.Refused: KcmConversation._on_refused,
    kcm.Done: KcmConversation._on_done,
}


class ClockOffset:
    """An estimate from the shortest of the recent round trips: its error is at most half of that round trip.

    An estimate stays until it is refuted, so that the same instant of the KCM stays the same instant of koalad.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # (round trip, offset)
        self._ahead: int | None = None

    def add(self, asked_at: Instant, their_clock: int, answered_at: Instant) -> None:
        self._samples.append((answered_at - asked_at, their_clock - (asked_at + answered_at) // 2))
        trip, offset = min(self._samples)
        if self._ahead is None or abs(self._ahead - offset) > trip // 2:
            self._ahead = offset

    @property
    def ahead(self) -> int:
        """Microseconds by which the KCM's clock is ahead; 0 before the first answer."""
        return self._ahead or 0

    def to_ours(self, theirs: int, now: Instant) -> Instant:
        """Return an instant of the KCM's clock as one of koalad's, at most `now`: no report is of the future."""
        return Instant(min(theirs - self.ahead, now))


class Outstanding:
    """The commands by their numbers in the outbox, and the numbers by attempt."""

    def __init__(self) -> None:
        self._commands: dict[int, ComponentCommand] = {}
        self._numbers: dict[AttemptId, list[int]] = {}

    def add(self, number: int, command: ComponentCommand) -> bool:
        """Add a command. Returns False if it was sent over this session before, where it will be answered."""
        if number in self._commands:
            return False
        self._commands[number] = command
        self._numbers.setdefault(command.attempt, []).append(number)
        return True

    def get(self, number: int) -> ComponentCommand | None:
        return self._commands.get(number)

    def confirm(self, number: int) -> None:
        """Remove a command; without it nothing happens."""
        command = self._commands.pop(number, None)
        if command is None:
            return
        of_attempt = self._numbers[command.attempt]
        of_attempt.remove(number)
        if not of_attempt:
            del self._numbers[command.attempt]

    def confirm_gone(self, attempt: AttemptId) -> tuple[int, ...]:
        """Remove and return the numbers of an attempt of which nothing is left, except its ForgetAttempt.

        Its cancel is complete, and the commands before the cancel are without an object.
        """
        numbers = self._numbers.get(attempt, ())
        gone = tuple(number for number in numbers if not isinstance(self._commands[number], ForgetAttempt))
        for number in gone:
            self.confirm(number)
        return gone

    def is_wanted(self, number: int) -> bool:
        """Return whether the command is still to be carried out: neither confirmed, nor cancelled with its attempt."""
        command = self._commands.get(number)
        return command is not None and not any(
            isinstance(self._commands[other], CancelAttempt) for other in self._numbers[command.attempt]
        )
