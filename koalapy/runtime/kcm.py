"""One KCM as koalad talks to it, from its Hello to the end of its session."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import structlog
from koalapy_adapters import messages as wire
from koalapy_adapters.connections.protocol import Channel
from koalapy_adapters.frames import Chunk, FrameError

import koalapy
from koalapy.driver import Delivery
from koalapy.model.commands import CancelComponent, ForgetComponent, ReleaseComponent, SubmitComponent
from koalapy.model.errors import Reason
from koalapy.model.events import (
    ClusterConnected,
    ComponentGone,
    ComponentSubmitted,
    Event,
    MeasurementFailed,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, tag_of
from koalapy.model.units import Instant
from koalapy.runtime import translate
from koalapy.runtime.cluster import Cluster, Listener
from koalapy.runtime.exchange import Exchange
from koalapy.runtime.offset import ClockOffset
from koalapy.runtime.outstanding import ComponentCommand, Outstanding
from koalapy.runtime.session import Session
from koalapy.runtime.submitter import Submitter

_LOG = structlog.get_logger()


class Kcm:
    """Commands in; events, confirmed with what confirms them, out to the listener. `run` blocks while it lasts."""

    def __init__(self, cluster: Cluster, channel: Channel, epoch: int, listener: Listener) -> None:
        self.cost = 0.0  # CPU seconds that its batch commands have taken
        self._cluster, self._epoch, self._listener = cluster, epoch, listener
        self._session = Session(channel, self._receive, self._tick, cluster.timing.ping)
        self._outstanding = Outstanding()
        self._offset = ClockOffset()
        self._welcomed = False
        self._asked: dict[int, Instant] = {}  # when a Ping was sent
        self._pings = 0
        self._submitter = Submitter(cluster, self._session, self._outstanding, self._fail)

    # ---- for the link

    def run(self, known: Sequence[tuple[AttemptId, str]]) -> Reason | None:
        """Talk until the session is over; why, None if the other side ended it."""
        tags = [[tag_of(self._cluster.instance, attempt), batch_id] for attempt, batch_id in known]
        self._hello_at = self._listener.now()
        try:
            self._session.send(
                wire.Hello(
                    wire.PROTOCOL,
                    koalapy.__version__,
                    self._epoch,
                    self._cluster.instance,
                    self._hello_at,
                    dict(wire.ClusterConfig(**self._cluster.config)._asdict()),
                    tags,
                )
            )
            self._ping()
            return self._session.run()
        finally:
            self._submitter.close()

    def end(self, why: Reason | None = None) -> None:
        self._session.end(why)

    # ---- for the driver

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        """Send it once. Returns at once: a Submit's files are staged by another thread before it."""
        if not self._outstanding.add(number, command):
            return
        instance = self._cluster.instance
        if isinstance(command, SubmitComponent):
            self._submitter.submit(number, command, doubt)
        elif isinstance(command, ReleaseComponent):
            self._say(translate.release(instance, number, command))
        elif isinstance(command, CancelComponent):
            self._say(translate.cancel(instance, number, command))
        else:
            self._say(translate.forget(instance, number, command))

    def watch(self, urgent: bool) -> None:
        self._say(wire.Watch(urgent))

    def acknowledge(self, epoch: int, number: int) -> None:
        """Events of another session's KCM are gone with it."""
        if epoch == self._epoch:
            self._say(wire.Acknowledge(number))

    def put(self, attempt: AttemptId, key: str, value: str) -> None:
        self._say(wire.PutKey(tag_of(self._cluster.instance, attempt), key, value))

    # ---- for whoever can wait

    def stat(self, attempt: AttemptId, paths: Sequence[str]) -> dict[str, int]:
        """The sizes of those that exist as files in the working directory. Raises KoalaError."""
        with self._session.exchange() as exchange:
            self._session.send(wire.Stat(exchange.id, tag_of(self._cluster.instance, attempt), list(paths)))
            answer: wire.Done = exchange.answer()
            return {str(path): int(size) for path, size in answer.details.items()}

    def fetch(
        self, attempt: AttemptId, where: str, path: str, offset: int, follow: bool, mode: Callable[[int], None]
    ) -> Iterator[bytes]:
        """See messages.Fetch; `mode` hears the permission bits at the end. Raises KoalaError."""
        with self._session.exchange() as exchange:
            tag = tag_of(self._cluster.instance, attempt)
            self._session.send(wire.Fetch(exchange.id, tag, where, path, offset, follow))
            yield from self._chunks(exchange)
            mode(exchange.answer().mode)

    def _chunks(self, exchange: Exchange) -> Iterator[bytes]:
        try:
            for data in exchange.chunks():
                yield data
                self._session.grant(exchange.id, 1)
        except GeneratorExit:
            self._session.send_chunk(Chunk(exchange.id, 0, b""))  # nobody reads any more
            raise

    def _fail(self, number: int, attempt: AttemptId, reason: Reason) -> None:
        self._outstanding.confirm(number)
        event = SubmissionFailed(attempt=attempt, reason=reason)
        self._listener.deliver(Delivery(events=(event,), confirmed=(number,)))

    # ---- what comes in

    def _receive(self, message: Any) -> None:
        if isinstance(message, wire.Event):
            events, confirmed = self._told(wire.from_json(message.body))
            acknowledge = (self._cluster.name, self._epoch, message.number)
            self._listener.deliver(Delivery(events=events, confirmed=confirmed, acknowledge=acknowledge))
        elif type(message) in _ANSWERS:
            _ANSWERS[type(message)](self, message)
        else:
            events, confirmed = self._told(message)
            if events or confirmed:
                self._listener.deliver(Delivery(events=events, confirmed=confirmed))

    def _told(self, message: Any) -> tuple[tuple[Event, ...], tuple[int, ...]]:
        """The events of a message, and the outbox numbers that it confirms."""
        name = self._cluster.name
        if isinstance(message, wire.Measured):
            return (translate.measured(self._cluster.instance, name, message, self._ours),), ()
        if isinstance(message, wire.MeasureFailed):
            return (translate.measure_failed(name, message),), ()
        return self._told_of_attempt(message)

    def _told_of_attempt(self, message: Any) -> tuple[tuple[Event, ...], tuple[int, ...]]:
        tag = message.space if isinstance(message, wire.PutKey) else getattr(message, "tag", "")
        attempt = translate.own_attempt(self._cluster.instance, tag)
        if attempt is None:
            return (), ()
        if isinstance(message, wire.PutKey):
            self._listener.put(attempt, message.key, message.value)
        elif isinstance(message, wire.Gone):
            return (ComponentGone(attempt=attempt),), self._outstanding.confirm_gone(attempt)
        elif isinstance(message, wire.BatchSeen):
            return (translate.seen(attempt, message, self._ours),), ()
        elif isinstance(message, wire.Report):
            return (translate.reported(attempt, message, self._ours),), ()
        return (), ()

    def _on_welcome(self, message: wire.Welcome) -> None:
        self._offset.add(self._hello_at, message.clock, self._listener.now())
        self._welcomed = True
        self._listener.welcomed(message)
        name = self._cluster.name
        events: list[Event] = [ClusterConnected(cluster=name, version=message.batch_version)]
        if message.error is not None:
            events.append(MeasurementFailed(cluster=name, reason=translate.reason_of(message.error)))
        self._listener.deliver(Delivery(events=tuple(events)))

    def _on_pong(self, message: wire.Pong) -> None:
        self.cost = message.cost
        asked_at = self._asked.pop(message.id, None)
        if asked_at is not None:
            self._offset.add(asked_at, message.clock, self._listener.now())

    def _on_submitted(self, message: wire.Submitted) -> None:
        command = self._outstanding.get(message.id)
        if not isinstance(command, SubmitComponent):
            return
        self._outstanding.confirm(message.id)
        event = ComponentSubmitted(attempt=command.attempt, batch_id=message.batch_id)
        self._listener.deliver(Delivery(events=(event,), confirmed=(message.id,)))

    def _on_refused(self, message: wire.Refused) -> None:
        """A cancel is confirmed by Gone alone; it is sent again after the next connect."""
        command = self._outstanding.get(message.id)
        reason = translate.reason_of(message.error)
        if isinstance(command, SubmitComponent):
            self._fail(message.id, command.attempt, self._submitter.why_refused(message.id, reason))
            return
        _LOG.warning("refused", cluster=self._cluster.name, command=type(command).__name__, reason=str(reason))
        if command is not None and not isinstance(command, CancelComponent):
            self._confirm(message.id)

    def _on_done(self, message: wire.Done) -> None:
        if isinstance(self._outstanding.get(message.id), ReleaseComponent | ForgetComponent):
            self._confirm(message.id)

    def _confirm(self, number: int) -> None:
        self._outstanding.confirm(number)
        self._listener.deliver(Delivery(confirmed=(number,)))

    # ---- its clock and its silence

    def _ours(self, theirs: int) -> Instant:
        return self._offset.to_ours(theirs, self._listener.now())

    def _ping(self) -> None:
        self._pings += 1
        self._asked = {self._pings: self._listener.now()} | {
            number: at for number, at in self._asked.items() if number > self._pings - 10
        }
        self._session.send(wire.Ping(self._pings, self._asked[self._pings]))

    def _tick(self) -> None:
        timing = self._cluster.timing
        patience = timing.silence if self._welcomed else max(timing.silence, timing.welcome)
        if self._session.silent_s + timing.ping / 2 >= patience:
            message = f"The KCM has said nothing for {self._session.silent_s:.0f} s."
            self.end(Reason("silent", "transient", message, "Is its head node, or the network between, stalled?"))
        else:
            self._ping()

    def _say(self, message: Any) -> None:
        try:
            self._session.send(message)
        except FrameError as error:
            _LOG.error("message_too_large", cluster=self._cluster.name, message=type(message).__name__, why=str(error))


_ANSWERS: dict[type, Callable[[Kcm, Any], None]] = {
    wire.Welcome: Kcm._on_welcome,
    wire.Pong: Kcm._on_pong,
    wire.Submitted: Kcm._on_submitted,
    wire.Refused: Kcm._on_refused,
    wire.Done: Kcm._on_done,
}
