"""One KCM as koalad talks to it, from its Hello to the end of its session: a conversation on threads."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from koalapy_adapters import messages as wire
from koalapy_adapters.connections.protocol import Channel
from koalapy_adapters.frames import Chunk, FrameError

import koalapy
from koalapy.driver import Delivery
from koalapy.link.cluster import Cluster
from koalapy.link.conversation import Conversation, Heard, Messages
from koalapy.link.outstanding import ComponentCommand
from koalapy.model.commands import Hint, SubmitAttempt
from koalapy.model.errors import Reason, SiteError
from koalapy.model.events import Event
from koalapy.model.identity import AttemptId, JobId, tag_of
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.runtime.session.exchange import Exchange, done, stalled
from koalapy.runtime.session.session import Session
from koalapy.runtime.staging.intake import Intake
from koalapy.runtime.uplink.submitter import Submitter, Told

_LOG = structlog.get_logger()
_TOO_LARGE = "Shorten its arguments and environment, or stage a file in."


@dataclass(frozen=True, slots=True)
class Listener:
    """Whom a KCM's words go to. No call blocks."""

    now: Callable[[], Instant]
    deliver: Callable[[Delivery], None]
    welcomed: Callable[[wire.Welcome], bool]  # False: nothing that is heard with it is worth anything
    put: Callable[[AttemptId, str, str], None]
    intake: Intake = field(default_factory=Intake)


class Kcm:
    """Commands in; events, confirmed with what confirms them, out to the listener. `run` blocks while it lasts."""

    def __init__(self, cluster: Cluster, channel: Channel, epoch: int, listener: Listener) -> None:
        self.epoch = epoch
        self._cluster, self._listener = cluster, listener
        self._of = (cluster.name, epoch)
        self._session = Session(channel, self._receive, self._tick, cluster.timing.ping)
        self._conversation = Conversation(cluster, epoch)
        self._lock = threading.Lock()  # over the conversation, and the order of what it says
        told = Told(self._staged, self._not_staged, self._tell, self._wants)
        self._submitter = Submitter(cluster.name, self._session, listener.intake, told, cluster.timing)

    # ---- for the link

    @property
    def cost(self) -> float:
        """CPU seconds that its batch commands have taken."""
        return self._conversation.cost

    def silent(self) -> float:
        """Seconds since it was last heard."""
        return self._session.silent_s

    def run(self, known: Sequence[tuple[AttemptId, str]], doubtful: Sequence[JobId] = ()) -> Reason | None:
        """Talk until the session is over; why, None if the other side ended it."""
        try:
            with self._lock:
                now, version = self._listener.now(), koalapy.__version__
                for message in self._conversation.hello(now, version, known, doubtful):
                    self._session.send(message)
            return self._session.run()
        finally:
            self._submitter.close()

    def end(self, why: Reason | None = None) -> None:
        self._session.end(why)

    # ---- for the driver

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        """Send it once. Returns at once: a Submit's files are staged by another thread before it."""
        with self._lock:
            fresh = self._conversation.begin(number, command)
        if not fresh:
            return
        if isinstance(command, SubmitAttempt) and command.stage_in:
            self._submitter.stage(number, command, doubt)
        elif isinstance(command, SubmitAttempt):
            self._staged(number, doubt, [])
        else:
            self._say(lambda talk: talk.say(number, doubt))

    def hint(self, hint: Hint) -> None:
        self._say(lambda talk: talk.hint(hint))

    def acknowledge(self, epoch: int, number: int) -> None:
        """Events of another session's KCM are gone with it."""
        self._say(lambda talk: talk.acknowledge(epoch, number))

    def put(self, attempt: AttemptId, key: str, value: str) -> None:
        self._say(lambda talk: talk.put(attempt, key, value))

    # ---- for whoever can wait

    def ask(self, request: Callable[[int], Any], timeout_s: float) -> wire.Done:
        """The answer to the request of this number. Raises KoalaError, and TimeoutError if there is none in time."""
        with self._session.exchange() as exchange:
            self._session.send(request(exchange.id))
            return done(exchange.answer(timeout_s))

    def stream(
        self,
        attempt: AttemptId,
        request: Callable[[int, str], Any],
        ended: Callable[[wire.Fetched], None],
        limit_s: float | None,
    ) -> Iterator[bytes]:
        """What comes on the stream of a request of this number and tag; `ended` hears its end.

        An empty piece comes about every second in which nothing else does. Raises KoalaError; TransientError, code
        `stalled`, when nothing has come for `limit_s` seconds.
        """
        with self._session.exchange() as exchange:
            self._session.send(request(exchange.id, tag_of(self._cluster.instance, attempt)))
            try:
                yield from self._chunks(exchange, limit_s)
                end = exchange.answer(self._cluster.timing.stalled)
            except TimeoutError as error:
                raise stalled(self._cluster.name) from error
            if not isinstance(end, wire.Fetched):
                raise SiteError("bad_stream", f"{self._cluster.name} does not say how a stream of files has ended.", "")
            ended(end)

    def _chunks(self, exchange: Exchange, limit_s: float | None) -> Iterator[bytes]:
        try:
            for data in exchange.chunks(limit_s):
                yield data
                if data:
                    self._session.grant(exchange, 1)
        except (GeneratorExit, TimeoutError):
            self._session.send_chunk(Chunk(exchange.id, 0, b""))  # nobody reads any more
            raise

    # ---- what the submitter's threads call

    def _wants(self, number: int) -> bool:
        with self._lock:
            return self._conversation.wants(number)

    def _tell(self, events: Sequence[Event]) -> None:
        self._listener.deliver(Delivery(events=tuple(events), session=self._of))

    def _staged(self, number: int, doubt: bool, staged: list[list[Any]]) -> None:
        with self._lock:
            try:
                for message in self._conversation.say(number, doubt, staged):
                    self._session.send(message)
                return
            except FrameError as error:
                reason = Reason("too_large", "request", f"The component is {error}.", _TOO_LARGE)
                heard = self._conversation.fail(number, reason)
        self._pass_on(heard)

    def _not_staged(self, number: int, doubt: bool, reason: Reason) -> None:
        self._act(lambda talk: talk.not_staged(number, reason, doubt))

    # ---- what the session's threads call

    def _receive(self, message: Any) -> None:
        self._act(lambda talk: talk.heard(self._listener.now(), message))

    def _tick(self) -> None:
        why = self._conversation.given_up(Duration(round(self._session.silent_s * SECOND)))
        if why is not None:
            self.end(why)
        else:
            self._say(lambda talk: (talk.ping(self._listener.now()),))

    # ---- below

    def _say(self, words: Callable[[Conversation], Messages]) -> None:
        """In the order in which the conversation chose them."""
        with self._lock:
            for message in words(self._conversation):
                self._send(message)

    def _act(self, hear: Callable[[Conversation], Heard]) -> None:
        with self._lock:
            heard = hear(self._conversation)
            for message in heard.messages:
                self._send(message)
        self._pass_on(heard)

    def _pass_on(self, heard: Heard) -> None:
        """Without the lock: who listens may want to say something."""
        if heard.welcome is not None and not self._listener.welcomed(heard.welcome):
            return
        if heard.key is not None:
            self._listener.put(*heard.key)
        if heard.refused is not None:
            command, reason = heard.refused
            _LOG.warning("refused", cluster=self._cluster.name, command=type(command).__name__, reason=str(reason))
        for delivery in heard.deliveries:
            self._listener.deliver(delivery)

    def _send(self, message: Any) -> None:
        try:
            self._session.send(message)
        except FrameError as error:
            _LOG.error("message_too_large", cluster=self._cluster.name, message=type(message).__name__, why=str(error))
