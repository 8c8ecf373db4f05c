"""A session with a KCM on a head node, with an instance id that exists as long as the session."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from koalapy_adapters import messages as wire
from koalapy_adapters.connections.protocol import Channel
from koalapy_adapters.errors import BatchError
from koalapy_adapters.messages import files, kcm, koalad
from koalapy_adapters.messages.details import diagnosed

import koalapy
from koalapy.link.link_loop import Callbacks, LinkLoop
from koalapy.link.reconnect import Timing
from koalapy.link.session import Accepted, Command, ConversationCommand, Lost, Reaction, SessionMachine, State
from koalapy.link.translate import reason_of
from koalapy.model.errors import ClusterError, KoalaError, Reason, TransientError
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import Instant
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.host import ThreadHost
from koalapy.runtime.session.exchange import Exchange, done, understood
from koalapy.runtime.session.session import Session

_ANSWER_S = 60.0
_TIMING = Timing(silence=75.0, welcome=75.0)  # a request that is not answered in time is reported first
_GONE_S = 75.0  # from a cancel until nothing of it is left, node agents included that notice their wrapper's silence
_MOST_READ = 16 << 20  # bytes of output of the session's own jobs

T = TypeVar("T")
Bodies = Sequence[Any]  # the bodies of the KCM's events, in their order


class Interrupted(Exception):
    """The user interrupted the examination."""


@dataclass(frozen=True, slots=True)
class _Note(ConversationCommand):
    """Keep the Welcome, or the body of an event."""

    message: Any


class _Conversation:
    """The messages of the only session: every event is acknowledged at once."""

    epoch = 1

    def __init__(self, config: dict[str, Any], instance: InstanceId) -> None:
        self._config, self._instance = koalad.ClusterConfig(**config)._asdict(), instance

    def hello(self, now: Instant) -> koalad.Hello:
        return koalad.Hello(wire.PROTOCOL, koalapy.__version__, self.epoch, self._instance, now, dict(self._config))

    def ping(self, now: Instant) -> koalad.Ping:
        return koalad.Ping(0, now)

    def received(self, now: Instant, message: Any) -> Reaction:
        if isinstance(message, kcm.Welcome):
            accepted = Accepted(message.host, message.batch_version)
            return Reaction((koalad.WatchCluster(urgent=True),), (_Note(message),), accepted)
        if isinstance(message, kcm.Event):
            body = wire.from_json(message.body, wire.EVENTS)
            return Reaction((koalad.Acknowledge(message.number),), (_Note(body),))
        return Reaction()


class KcmSession:
    """A session that starts with `begin` and ends with `end`. After `end` nothing of it is left on the cluster.

    Every call that waits raises Interrupted after `interrupt`, and TransientError if the connection is lost.
    """

    def __init__(
        self, channel: Channel, config: dict[str, Any], instance: InstanceId, error_lines: Sequence[str]
    ) -> None:
        """`config`: the fields of messages.ClusterConfig.

        `error_lines`: the lines of the KCM's standard error, as they arrive.
        """
        self._channel, self._instance, self._error_lines = channel, instance, error_lines
        self._clock = SystemClock()
        self._machine: SessionMachine[_Conversation] = SessionMachine("the head node", _TIMING, random.uniform)
        self._host = ThreadHost("examined", self._clock.now)
        self._session = Session(channel, self._host)
        callbacks = Callbacks(
            open=lambda: self._session, begin=lambda session: self._conversation, ended=self._ended,
            perform=self._perform,
        )  # fmt: skip
        self._loop: LinkLoop[_Conversation, Session] = LinkLoop(self._machine, callbacks, self._host)
        self._conversation = _Conversation(config, instance)
        self._changed = threading.Condition()
        self._received: list[Any] = []
        self._welcome: kcm.Welcome | None = None
        self._exchange: Exchange | None = None
        self._lost: Reason | None = None
        self._interrupted = self._ending = False
        self._tags: list[str] = []

    # ---- requests

    def begin(self) -> kcm.Welcome:
        """Send Hello, and return the KCM's Welcome. Its `error` names what cannot be used.

        Raises TransientError if none arrives within 60 s.
        """
        self._loop.start()
        self._wait(lambda: self._welcome is not None, _ANSWER_S)
        if self._welcome is None:
            raise TransientError("silent", "The agent on the head node does not answer.", "Is the head overloaded?")
        return self._welcome

    def ask(self, message: Callable[[int], Any], timeout_s: float = _ANSWER_S) -> Any:
        """Send the message that `message` makes with a number, and return the KCM's answer.

        Raises KoalaError if it refuses or does not answer.
        """
        with self._session.exchange() as exchange:
            with self._changed:
                self._exchange = exchange
            self._check()
            self._session.send(message(exchange.id))
            try:
                return exchange.answer(timeout_s)
            except TransientError:
                self._check()
                raise
            except TimeoutError as error:
                raise _silent(timeout_s) from error

    def diagnose(self, check: str) -> dict[str, Any]:
        """Return what the head node found, or `failure` and `value`; see messages.Diagnose. Raises KoalaError."""
        found = done(self.ask(lambda id: koalad.Diagnose(id, check), 2 * _ANSWER_S)).details
        return understood(partial(diagnosed, check), found)

    def skew(self) -> float:
        """Return the seconds that the head node's clock is ahead of this machine's, within half of a round trip.

        Raises KoalaError, with code `garbled` if the answer is not a Pong.
        """
        asked = self._clock.now()
        pong = self.ask(lambda id: koalad.Ping(id, asked))
        if not isinstance(pong, kcm.Pong):
            raise ClusterError("garbled", "The agent on the head node does not report its clock.", "")
        return float((pong.clock - (asked + self._clock.now()) / 2) / 1e6)

    def now(self) -> int:
        """Return this machine's clock, in microseconds since 1970."""
        return self._clock.now()

    def submit(self, job: int, batch: dict[str, Any], program: dict[str, Any]) -> str:
        """Submit the only attempt of this job. Returns its tag. `end` ends the attempt at the latest.

        Raises KoalaError.
        """
        tag = tag_of(self._instance, AttemptId(JobId(job), 0, 1))
        self._tags.append(tag)
        self.ask(lambda id: koalad.Submit(id, tag, batch, program), 2 * _ANSWER_S)
        return tag

    def read(self, tag: str, where: str, path: str = "") -> bytes:
        """Return the bytes of a file that the attempt has written; see messages.Fetch. Raises KoalaError."""
        with self._session.exchange() as exchange:
            self._session.send(files.Fetch(exchange.id, tag, where, path))
            try:
                data = self._all_of(exchange)
                exchange.answer(_ANSWER_S)
            except TimeoutError as error:
                raise _silent() from error
            return data

    def _all_of(self, exchange: Exchange) -> bytes:
        data = bytearray()
        for chunk in exchange.chunks(_ANSWER_S):
            data += chunk
            if len(data) > _MOST_READ:
                message = f"More than {_MOST_READ} bytes came of what the agent's own job has written."
                raise ClusterError("bad_stream", message, "Look at what runs on that head node.")
            if chunk:
                self._session.grant(exchange, 1)
        return bytes(data)

    def wait(self, tag: str, found: Callable[[Bodies], T | None], timeout_s: float) -> T | None:
        """Return the first result of `found` that is not None; None after `timeout_s`.

        `found` is called with the bodies of all events of this attempt, again after each new one.
        """
        result: list[T] = []

        def happened() -> bool:
            bodies = [body for body in self._received if getattr(body, "tag", "") == tag]
            seen = found(bodies)
            if seen is not None:
                result.append(seen)
            return seen is not None

        self._wait(happened, timeout_s)
        return result[0] if result else None

    def interrupt(self) -> None:
        """Make every call that waits, or will wait, raise Interrupted until `end`.

        Any thread may call it at any time.
        """
        with self._changed:
            self._interrupted = not self._ending
            if self._interrupted and self._exchange is not None:
                self._exchange.lost(_INTERRUPTED)
            self._changed.notify_all()

    # ---- the end

    def end(self) -> list[str]:
        """Remove all that the session has brought to the cluster. Returns descriptions of what could not be removed."""
        if self._machine.state is State.IDLE:  # it was not started: the KCM has brought nothing yet
            self._channel.close()
            return []
        with self._changed:
            self._interrupted, self._ending = False, True
        left = [words for tag in self._tags if (words := self._remove(tag))]
        try:
            if not left and self._lost is None:
                self.ask(lambda id: koalad.Dissolve(id))
        except (KoalaError, BatchError) as error:
            left.append(f"the directory {self._instance} in the shared directory ({error})")
        finally:
            self._loop.close()
            self._host.join()
        return left

    def _remove(self, tag: str) -> str:
        """Cancel and forget the attempt. Returns a description of what may be left of it, '' if nothing is."""
        try:
            self.ask(lambda id: koalad.Cancel(id, tag, force=True))
            if self.wait(tag, _gone, _GONE_S) is None:
                return f"the batch job named {tag}: cancel it"
            self.ask(lambda id: koalad.Forget(id, tag))
        except (KoalaError, BatchError) as error:
            return f"the batch job named {tag}, which ends by itself within minutes ({error})"
        return ""

    # ---- internals

    def _check(self) -> None:
        if self._interrupted:
            raise Interrupted
        if self._lost is not None:
            raise TransientError(self._lost.code, self._lost.message, "Examine it again.")

    def _wait(self, happened: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not happened() and (left := deadline - time.monotonic()) > 0:
                self._check()
                self._changed.wait(left)

    def _ended(self) -> Reason:
        words = f": {self._error_lines[-1].rstrip('.')}." if self._error_lines else "."
        return Reason("lost", "transient", f"The connection to the head node was lost{words}")

    def _perform(self, command: Command) -> None:
        with self._changed:
            match command:
                case Lost(reason):
                    self._lost = reason
                    self._loop.close()  # no further try
                case _Note(kcm.Welcome() as welcome):
                    self._welcome = welcome
                case _Note(body):
                    self._received.append(body)
            self._changed.notify_all()


def _gone(bodies: Bodies) -> bool | None:
    return True if any(isinstance(body, kcm.CleanedUp) for body in bodies) else None


def refusal(details: dict[str, Any]) -> Reason | None:
    """Return the failure that a head node's answer reports; None if it reports none."""
    return reason_of(details["failure"]) if "failure" in details else None


_INTERRUPTED = Reason("interrupted", "request", "It was interrupted.")


def _silent(after_s: float = _ANSWER_S) -> TransientError:
    message = f"The agent on the head node did not answer within {after_s:.0f} s."
    return TransientError("silent", message, "Is the head node overloaded?")
