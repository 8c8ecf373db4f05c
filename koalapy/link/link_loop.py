"""The loop of one link: it gives events to the session machine, in time, and performs the machine's commands.

koalad and the simulated world run it, each on a `Host` of its own: the one has threads and sockets, the other an agenda
and pipes.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from koalapy_adapters.errors import BatchError
from koalapy_adapters.messages.fields import MessageError, shown

from koalapy.link.session import (
    Adopt,
    Close,
    Command,
    Conversation,
    Decline,
    Dial,
    Probe,
    Send,
    SessionMachine,
    State,
)
from koalapy.link.translate import reason_of_error
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.units import Instant

DIAL, PROBE = "link", "probe"  # kinds of work that may block


class Host(Protocol):
    """The services of the world for one link."""

    def now(self) -> Instant:
        """Return the present instant. It never runs backwards."""
        ...

    def at(self, when: Instant, call: Callable[[], None]) -> object:
        """Make a call at this instant, which does not block. Returns what `cancel` takes.

        The call may be late by as long as the host sleeps meanwhile.
        """
        ...

    def cancel(self, call: Any) -> None:
        """Cancel a call, unless it was made. Nothing happens for None."""
        ...

    def in_thread(self, kind: str, work: Callable[[], None]) -> None:
        """Begin work that may block. Returns at once. `kind`: DIAL, PROBE or the world's own."""
        ...

    def lock(self) -> AbstractContextManager[object]:
        """Return a new lock for what several threads share."""
        ...

    def failed(self, error: Exception) -> None:
        """Log an error of koalapy, by which the link has lost its session."""
        ...


class Connection(Protocol):
    """A connection to the other side. `serve` is called once, also for one that was ended before."""

    def send(self, message: Any) -> None:
        """Send a message. It is lost if the connection has ended."""
        ...

    def end(self, why: Reason | None) -> None:
        """End the connection; the first reason counts. Returns at once."""
        ...

    def serve(
        self, received: Callable[[Any], None], alive: Callable[[], None], ended: Callable[[Reason | None], None]
    ) -> None:
        """Pass on what arrives, until the connection has ended. May block until then.

        `received` is called with each message; if it raises MessageError, that ends the connection. `alive` is called
        at each sign of life, `ended` once, with why this side has ended it; None if the other side has.
        """
        ...


T = TypeVar("T", bound=Conversation)
C = TypeVar("C", bound=Connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(Generic[T, C]):
    """The functions of a link that know what is at its other end, and what it is for.

    `open`: logs in and starts the agent there; it may block, and raises KoalaError or BatchError. `begin`: returns the
    conversation of this new session; it may block, and raises KoalaError. `ended`: cleans up after a session, and
    returns why the other side has ended it, if that was so. `perform`: performs a command that the loop does not know.
    `reachable`: returns whether the other side can be reached without a login, None if that is unknown; it may block.
    Without it nothing is probed. `attended`: whether a person had to answer something for the last login.
    """

    open: Callable[[], C]
    begin: Callable[[C], T]
    ended: Callable[[], Reason]
    perform: Callable[[Command], None]
    reachable: Callable[[], bool | None] | None = None
    attended: Callable[[], bool] = lambda: False


class LinkLoop(Generic[T, C]):
    """The loop of one link, around its `machine`. Any thread may call it at any time; calls return at once.

    Each event goes to the machine under `lock`. The machine's commands are performed in its order, by one thread at a
    time, without the lock.
    """

    def __init__(self, machine: SessionMachine[T], callbacks: Callbacks[T, C], host: Host) -> None:
        self.lock = host.lock()
        self.connection: C | None = None  # of the session
        self._machine, self._callbacks, self._host = machine, callbacks, host
        self._commands: deque[Command] = deque()
        self._performing = False
        self._offers: dict[int, C] = {}  # by the id of its conversation, until it is adopted or declined
        self._timer: object = None  # the next call of the machine's `wake`

    @property
    def session(self) -> C | None:
        """The connection, if it takes requests."""
        return self.connection if self._machine.state is State.OPEN else None

    def start(self) -> None:
        """Begin to connect."""
        self.do(self._machine.start)

    def close(self) -> None:
        """End for good; no loss is reported."""
        self.do(self._machine.close)

    def end_session(self, why: Reason) -> int | None:
        """End the present session, to begin a new one. Returns the ended session's epoch; None without a session."""
        with self.lock:
            epoch = self._machine.epoch if self._machine.state.has_session else None
        self.do(lambda now: self._machine.end(now, why))
        return epoch

    def do(self, event: Callable[[Instant], list[Command]]) -> None:
        """Let the machine handle an event, then perform its commands, unless another thread is performing them."""
        with self.lock:
            self._commands += event(self._host.now())
            if self._performing:
                return
            self._performing = True
        while (command := self._next()) is not None:
            try:
                self._perform(command)
            except Exception as error:
                self._host.failed(error)
                with self.lock:
                    self._commands += self._machine.failed(self._host.now(), failure_of(error))

    def _next(self) -> Command | None:
        with self.lock:
            if self._commands:
                return self._commands.popleft()
            self._performing = False
            self._plan()
        return None

    def _perform(self, command: Command) -> None:
        match command:
            case Dial():
                self._host.in_thread(DIAL, self._dial)
            case Send():
                if self.connection is not None:
                    self.connection.send(command.message)
            case Close():
                connection, self.connection = self.connection, None
                if connection is not None:
                    connection.end(command.reason)
            case Adopt():
                self.connection = self._offers.pop(id(command.conversation))
            case Decline():
                self._offers.pop(id(command.conversation)).end(None)
            case Probe():
                self._host.in_thread(PROBE, self._probe)
            case _:
                self._callbacks.perform(command)

    # ---- time

    def _plan(self) -> None:
        """Wake the machine in time. After the host has slept, every timer of before is late."""
        self._host.cancel(self._timer)
        at = self._machine.next_wakeup()
        self._timer = None if at is None else self._host.at(at, partial(self.do, self._machine.wake))

    # ---- connections

    def _dial(self) -> None:
        """Make a connection, and serve it. The link may be closed meanwhile."""
        callbacks = self._callbacks
        try:
            connection = callbacks.open()
            conversation = self._begin(connection)
        except (KoalaError, BatchError) as error:
            reason = error.reason if isinstance(error, KoalaError) else reason_of_error(error)
            self.do(lambda now: self._machine.not_connected(now, reason))
            return
        except Exception as error:
            self._fail(error)
            return
        probes, attended = callbacks.reachable is not None, callbacks.attended()

        def connected(now: Instant) -> list[Command]:
            if self._machine.state is State.DIALING:
                self.connection = connection
            else:
                self._offers[id(conversation)] = connection  # to be declined
            return self._machine.connected(now, conversation, probes, attended)

        self._serve(connection, conversation, connected)

    def offer(self, connection: C, hello: Any, epoch: int, kept: bool) -> None:
        """Offer a connection that the other side has made; see SessionMachine.offered. May block until it has ended.

        Raises KoalaError if no conversation can begin; then the connection was ended.
        """
        conversation = self._begin(connection)
        self._offers[id(conversation)] = connection
        offered = partial(self._machine.offered, conversation=conversation, hello=hello, epoch=epoch, kept=kept)
        self._serve(connection, conversation, offered)

    def _begin(self, connection: C) -> T:
        """Return the conversation of a new connection. An error ends the connection."""
        try:
            return self._callbacks.begin(connection)
        except Exception:
            connection.end(None)
            raise

    def _serve(self, connection: C, conversation: T, began: Callable[[Instant], list[Command]]) -> None:
        """Begin the session, and serve it until it ends."""
        try:
            self.do(began)
            connection.serve(partial(self._received, conversation), self.alive, partial(self._ended, conversation))
        except Exception as error:
            self._fail(error)

    def alive(self) -> None:
        """Note a sign of life of the other side."""
        self._machine.alive(self._host.now())

    def _received(self, conversation: T, message: Any) -> None:
        """React to a message, unless another connection has taken the place of this one. Raises MessageError."""
        try:
            self.do(lambda now: self._machine.received(now, message) if self._is_current(conversation) else [])
        except MessageError:
            raise
        except Exception as error:
            self._fail(error)

    def _ended(self, conversation: T, why: Reason | None) -> None:
        cut = self._callbacks.ended()
        self.do(lambda now: self._machine.cut(now, why or cut) if self._is_current(conversation) else [])

    def _is_current(self, conversation: T) -> bool:
        return self._machine.conversation is conversation

    def _fail(self, error: Exception) -> None:
        self._host.failed(error)
        self.do(lambda now: self._machine.failed(now, failure_of(error)))

    def _probe(self) -> None:
        if self._callbacks.reachable is not None:
            reachable = self._callbacks.reachable()
            self.do(lambda now: self._machine.probed(now, reachable))


def failure_of(error: Exception) -> Reason:
    """Return the reason of a link that has failed over an error of koalapy."""
    message = f"The link failed over what the other side sent ({type(error).__name__}: {shown(str(error))})."
    advice = "koalad connects again after a while. Report this, with koalad's log."
    return Reason("link_failed", "ours", message, advice)
