"""One session with a KCM as koalad holds it: commands and time in, messages out; messages in, deliveries out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from koalapy_adapters import messages as wire

from koalapy.driver import Delivery
from koalapy.link import sweeps, translate
from koalapy.link.cluster import Cluster
from koalapy.link.offset import ClockOffset
from koalapy.link.outstanding import ComponentCommand, Outstanding
from koalapy.model.commands import CancelAttempt, ForgetAttempt, Hint, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptForgotten,
    AttemptStuck,
    AttemptSubmitted,
    ClusterConnected,
    Event,
    MeasurementFailed,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, JobId, tag_of, tags_of
from koalapy.model.units import SECOND, Duration, Instant

Messages = tuple[Any, ...]  # those of koalapy_adapters.messages
_Told = tuple[tuple[Event, ...], tuple[int, ...]]  # events, and the outbox numbers that are confirmed with them

_NO_FILE: list[list[Any]] = [["", "", 0]]  # a list of staged files that no KCM can have
_PINGS = 10  # remembered; what takes longer says nothing of the clocks


@dataclass(frozen=True, slots=True)
class Heard:
    """What a message leads to: `deliveries` for the driver, `messages` for the KCM, a `key` for the job's others.

    `welcome`: from now on the KCM takes commands, unless `is_stale` says that it ends. `refused`: a command that it
    does not understand, and why.
    """

    deliveries: tuple[Delivery, ...] = ()
    messages: Messages = ()
    key: tuple[AttemptId, str, str] | None = None
    welcome: wire.Welcome | None = None
    refused: tuple[ComponentCommand | None, Reason] | None = None


class Conversation:
    """Begins with `hello`, and ends with its connection; the next one has a higher epoch.

    A KCM's events are numbered. One that was delivered before is not delivered again, only acknowledged if it may be;
    one that comes before its predecessor is not delivered either: the KCM says it again. So nothing that a connection
    repeats, loses or turns around reaches the driver.
    """

    def __init__(self, cluster: Cluster, epoch: int) -> None:
        self.cost = 0.0  # CPU seconds that the KCM's batch commands have taken
        self._cluster, self._epoch = cluster, epoch
        self._outstanding = Outstanding()
        self._unstaged: dict[int, Reason] = {}  # why a Submit in doubt could not be staged again
        self._offset = ClockOffset()
        self._hello_at = Instant(0)
        self._welcomed = False
        self._asked: dict[int, Instant] = {}  # when a Ping was sent
        self._pings = 0
        self._delivered = 0  # the number of the newest event that was
        self._acknowledged = 0

    # ---- what is said

    def hello(
        self, now: Instant, version: str, known: Sequence[tuple[AttemptId, str]], doubtful: Sequence[JobId] = ()
    ) -> Messages:
        """`version` is koalapy's; `known`: every attempt that may live on the cluster, and its batch id or ''.

        `doubtful`: jobs of which the cluster may know more than the store (see Counters).
        """
        self._hello_at = now
        instance, config = self._cluster.instance, wire.ClusterConfig(**self._cluster.config)
        tags: list[list[str]] = [[tag_of(instance, attempt), batch_id] for attempt, batch_id in known]
        fields = dict(config._asdict())
        recall: list[list[str]] = [list(tags_of(instance, job)) for job in doubtful]
        hello = wire.Hello(wire.PROTOCOL, version, self._epoch, instance, now, fields, tags, recall)
        return hello, self.ping(now)

    def begin(self, number: int, command: ComponentCommand) -> bool:
        """Take it up, to be said by `say`. False if it was sent over this session, and will be answered."""
        return self._outstanding.add(number, command)

    def say(self, number: int, doubt: bool, staged: Sequence[list[Any]] = ()) -> Messages:
        """The command that was begun; nothing if it was cancelled while its files were staged. See wire.Submit."""
        command = self._outstanding.get(number)
        instance = self._cluster.instance
        if isinstance(command, CancelAttempt):
            return (translate.cancel(instance, number, command),)
        if isinstance(command, ForgetAttempt):
            return (translate.forget(instance, number, command),)
        if isinstance(command, ReleaseAttempt):
            return (translate.release(instance, number, command),)
        if command is None or not self._outstanding.is_wanted(number):
            return ()
        return (translate.submit(instance, number, command, list(staged), doubt, self._cluster.grace),)

    def wants(self, number: int) -> bool:
        """Whether a command that was begun is still to be said: not cancelled meanwhile."""
        return self._outstanding.is_wanted(number)

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> Messages:
        """Both at once, for a command that needs no files."""
        return self.say(number, doubt) if self.begin(number, command) else ()

    def not_staged(self, number: int, reason: Reason, doubt: bool) -> Heard:
        """Without doubt that is the end of it. In doubt the batch job may exist: the KCM must look, and make none."""
        if not doubt:
            return self.fail(number, reason)
        self._unstaged[number] = reason
        return Heard(messages=self.say(number, doubt, _NO_FILE))

    def fail(self, number: int, reason: Reason) -> Heard:
        """A Submit that no KCM has heard of, or that it refused."""
        command = self._outstanding.get(number)
        if command is None:
            return Heard()
        self._outstanding.confirm(number)
        event = SubmissionFailed(cluster=self._cluster.name, attempt=command.attempt, reason=reason)
        return Heard((self._delivery((event,), (number,)),))

    def hint(self, hint: Hint) -> Messages:
        return (translate.hint_message(self._cluster.instance, hint),)

    def acknowledge(self, epoch: int, number: int) -> Messages:
        """Events up to this number are committed. Those of another session's KCM are gone with it."""
        if epoch != self._epoch:
            return ()
        self._acknowledged = max(self._acknowledged, number)
        return (wire.Acknowledge(number),)

    def put(self, attempt: AttemptId, key: str, value: str) -> Messages:
        return (wire.PutKey(tag_of(self._cluster.instance, attempt), key, value),)

    # ---- its clock and its silence

    def ping(self, now: Instant) -> wire.Ping:
        self._pings += 1
        self._asked[self._pings] = now
        self._asked.pop(self._pings - _PINGS, None)
        return wire.Ping(self._pings, now)

    def given_up(self, silent: Duration) -> Reason | None:
        """Why the session is to be ended, if nothing has been heard for so long. Asked before every `ping`."""
        timing = self._cluster.timing
        patience = timing.silence if self._welcomed else max(timing.silence, timing.welcome)
        if silent / SECOND + timing.ping / 2 < patience:
            return None
        message = f"The KCM has said nothing for {silent / SECOND:.0f} s."
        return Reason("silent", "transient", message, "Is its head node, or the network between, stalled?")

    def _ours(self, theirs: int) -> Instant:
        return self._offset.to_ours(theirs, self._now)

    # ---- what comes in

    def heard(self, now: Instant, message: Any) -> Heard:
        """Raises MessageError for an event whose body is no message."""
        self._now = now
        if isinstance(message, wire.Event):
            return self._event(message)
        answer = _ANSWERS.get(type(message))
        if answer is not None:
            return answer(self, message)
        if isinstance(message, wire.PutKey):
            attempt = translate.own_attempt(self._cluster.instance, message.space)
            return Heard(key=(attempt, message.key, message.value)) if attempt is not None else Heard()
        events, confirmed = self._told(message)
        return Heard((self._delivery(events, confirmed),)) if events or confirmed else Heard()

    def _delivery(self, events: tuple[Event, ...], confirmed: tuple[int, ...] = (), number: int = 0) -> Delivery:
        """What came over this session; `number`: of the KCM's event that it is."""
        name, epoch = self._cluster.name, self._epoch
        return Delivery(events, confirmed, (name, epoch, number) if number else None, session=(name, epoch))

    def _event(self, message: wire.Event) -> Heard:
        if message.number <= self._acknowledged:
            return Heard(messages=(wire.Acknowledge(self._acknowledged),))
        if message.number != self._delivered + 1:
            return Heard()
        body = wire.from_json(message.body, wire.EVENTS)
        events, confirmed = self._told(body)
        self._delivered = message.number
        return Heard((self._delivery(events, confirmed, message.number),))

    def _told(self, message: Any) -> _Told:
        name = self._cluster.name
        if isinstance(message, wire.Measured):
            return (translate.measured(self._cluster.instance, name, message, self._ours),), ()
        if isinstance(message, wire.MeasureFailed):
            return (translate.measure_failed(name, message),), ()
        event = sweeps.told(self._cluster.instance, name, message, self._ours)
        if event is not None:
            return (event,), ()
        attempt = translate.own_attempt(self._cluster.instance, getattr(message, "tag", ""))
        return ((), ()) if attempt is None else self._told_of_attempt(attempt, message)

    def _told_of_attempt(self, attempt: AttemptId, message: Any) -> _Told:
        name = self._cluster.name
        if isinstance(message, wire.Gone):
            return (AttemptCleanedUp(cluster=name, attempt=attempt),), self._outstanding.confirm_gone(attempt)
        if isinstance(message, wire.Lingers):
            return (AttemptStuck(cluster=name, attempt=attempt, reason=translate.reason_of(message.error)),), ()
        if isinstance(message, wire.BatchSeen):
            return (translate.seen(name, attempt, message, self._ours),), ()
        if isinstance(message, wire.Report):
            return (translate.reported(name, attempt, message, self._ours),), ()
        return (), ()

    def _on_welcome(self, message: wire.Welcome) -> Heard:
        self._offset.add(self._hello_at, message.clock, self._now)
        if is_stale(message):
            return Heard(welcome=message)
        self._welcomed = True
        name, instance = self._cluster.name, self._cluster.instance
        recalled = [translate.own_attempt(instance, tag) for tag in message.recalled]
        known = None if message.newest_number is None else tuple(each for each in recalled if each is not None)
        events: list[Event] = [ClusterConnected(cluster=name, version=message.batch_version, recalled=known)]
        if message.error is not None:
            events.append(MeasurementFailed(cluster=name, reason=translate.reason_of(message.error)))
        return Heard((self._delivery(tuple(events)),), welcome=message)

    def _on_pong(self, message: wire.Pong) -> Heard:
        self.cost = message.cost
        asked_at = self._asked.pop(message.id, None)
        if asked_at is not None:
            self._offset.add(asked_at, message.clock, self._now)
        return Heard()

    def _on_submitted(self, message: wire.Submitted) -> Heard:
        command = self._outstanding.get(message.id)
        if not isinstance(command, SubmitAttempt):
            return Heard()
        event = AttemptSubmitted(cluster=self._cluster.name, attempt=command.attempt, batch_id=message.batch_id)
        return self._confirmed(message.id, event)

    def _on_refused(self, message: wire.Refused) -> Heard:
        """A cancel is confirmed by Gone alone; it is sent again after the next connect."""
        command = self._outstanding.get(message.id)
        reason = translate.reason_of(message.error)
        if isinstance(command, SubmitAttempt):
            return self.fail(message.id, self._unstaged.pop(message.id, reason))
        if command is None or isinstance(command, CancelAttempt):
            return Heard(refused=(command, reason))
        events: tuple[Event, ...] = ()
        if isinstance(command, ForgetAttempt):
            events = (AttemptForgotten(cluster=self._cluster.name, attempt=command.attempt, refused=reason),)
        return Heard(self._confirmed(message.id, *events).deliveries, refused=(command, reason))

    def _on_done(self, message: wire.Done) -> Heard:
        command = self._outstanding.get(message.id)
        if isinstance(command, ForgetAttempt):
            event = AttemptForgotten(cluster=self._cluster.name, attempt=command.attempt)
            return self._confirmed(message.id, event)
        return self._confirmed(message.id) if isinstance(command, ReleaseAttempt) else Heard()

    def _confirmed(self, number: int, *events: Event) -> Heard:
        self._outstanding.confirm(number)
        return Heard((self._delivery(events, (number,)),))


def is_stale(message: wire.Welcome) -> bool:
    """Whether the KCM ends at once, since a newer one is at work on the cluster."""
    return message.error is not None and message.error.get("code") == "stale"


_ANSWERS: dict[type, Callable[[Conversation, Any], Heard]] = {
    wire.Welcome: Conversation._on_welcome,
    wire.Pong: Conversation._on_pong,
    wire.Submitted: Conversation._on_submitted,
    wire.Refused: Conversation._on_refused,
    wire.Done: Conversation._on_done,
}
