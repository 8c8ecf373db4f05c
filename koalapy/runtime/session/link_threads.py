"""The session machine on threads: logs in, carries messages, and wakes the machine in time."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog
from koalapy_adapters.connections.protocol import Channel, Remembering
from koalapy_adapters.errors import BatchError
from koalapy_adapters.frames import FrameError
from koalapy_adapters.messages.fields import shown

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
from koalapy.model.units import SECOND, Instant
from koalapy.runtime.session.session import KCM, Session, Wire

_LOG = structlog.get_logger()
_PROBE_S = 3.0
_POLL_S = 5.0  # between two looks at a machine that waits for nothing

T = TypeVar("T", bound=Conversation)


def _fail(message: Any, error: FrameError) -> None:
    raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(Generic[T]):
    """The functions of a link that know what is at its other end, and what it is for.

    `open`: logs in and starts the agent there; it may block, and raises BatchError. `begin`: returns the conversation
    of this new session; it may block, and raises KoalaError. `ended`: cleans up after a session, and returns why the
    other side has ended it, if that was so. `perform`: performs a command other than Dial, Send, Close and Probe.
    `too_large`: reacts to a message that exceeds a frame; without it such a message ends the session. `stream_frame`:
    takes a frame of a byte stream. `wire`: the messages of the link.
    """

    now: Callable[[], Instant]
    open: Callable[[], Channel]
    begin: Callable[[Session], T]
    ended: Callable[[], Reason]
    perform: Callable[[Command], None]
    too_large: Callable[[Any, FrameError], None] = _fail
    stream_frame: Callable[[Any], None] = lambda frame: None
    wire: Wire = KCM


class LinkThreads(Generic[T]):
    """The threads of one link, whose `machine` they drive. Any thread may call it at any time; calls return at once.

    Each event goes to the machine under `lock`. The machine's commands are performed in its order, by one thread at a
    time, without the lock.
    """

    def __init__(
        self, name: str, machine: SessionMachine[T], callbacks: Callbacks[T], remembering: Remembering | None = None
    ) -> None:
        """`name`: of the other side. `remembering`: the link's connection, if it can be probed."""
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, name=f"link-{name}", daemon=True)
        self._name, self._machine, self._callbacks, self._remembering = name, machine, callbacks, remembering
        self._commands: deque[Command] = deque()
        self._performing = self._to_dial = self._to_probe = False
        self._changed = threading.Event()  # the link's thread has to look at the machine again
        self._session: Session | None = None
        self._offers: dict[int, Session] = {}  # by the id of its conversation, until it is adopted or declined

    @property
    def session(self) -> Session | None:
        """The session, if it takes requests."""
        return self._session if self._machine.state is State.OPEN else None

    def start(self) -> None:
        """Begin to connect."""
        self.do(self._machine.start)
        self.thread.start()

    def do(self, event: Callable[[Instant], list[Command]]) -> None:
        """Let the machine handle an event, then perform its commands, unless another thread is performing them."""
        with self.lock:
            self._commands += event(self._callbacks.now())
            if self._performing:
                return
            self._performing = True
        while (command := self._next()) is not None:
            try:
                self._perform(command)
            except Exception as error:
                _LOG.exception("link_failed", cluster=self._name)
                with self.lock:
                    self._commands += self._machine.failed(self._callbacks.now(), _failure_of(error))

    def _next(self) -> Command | None:
        with self.lock:
            if self._commands:
                return self._commands.popleft()
            self._performing = False
        self._changed.set()
        return None

    def _perform(self, command: Command) -> None:
        match command:
            case Dial():
                self._to_dial = True
            case Send():
                self._send(command.message)
            case Close():
                session, self._session = self._session, None
                if session is not None:
                    session.end(command.reason)
            case Adopt():
                self._session = self._offers.pop(id(command.conversation))
            case Decline():
                if (declined := self._offers.pop(id(command.conversation), None)) is not None:
                    declined.end(None)
            case Probe():
                self._to_probe = True
            case _:
                self._callbacks.perform(command)

    def _send(self, message: Any) -> None:
        if self._session is None:
            return
        try:
            self._session.send(message)
        except FrameError as error:
            self._callbacks.too_large(message, error)

    # ---- the link's thread

    def _run(self) -> None:
        while self._machine.state is not State.ENDED:
            self._changed.clear()
            if self._to_dial:
                self._to_dial = False
                try:
                    self._live()
                except Exception as error:
                    _LOG.exception("link_failed", cluster=self._name)
                    self._fail(_failure_of(error))
                continue
            wakeup = self._machine.next_wakeup()
            self._changed.wait(None if wakeup is None else self._seconds_until(wakeup))
            self.do(self._machine.wake)

    def _live(self) -> None:
        """Make one connection, and serve it until it ends."""
        try:
            channel = self._callbacks.open()
        except BatchError as error:
            self._not_connected(reason_of_error(error))
            return
        try:
            session, conversation = self._begin(channel)
        except KoalaError as error:
            self._not_connected(error.reason)
            return
        attended = self._remembering is not None and self._remembering.asked
        probes = self._remembering is not None

        def connected(now: Instant) -> list[Command]:
            if self._machine.state.has_session:
                self._offers[id(conversation)] = session  # to be declined
            else:
                self._session = session  # to be closed if the link was closed meanwhile
            return self._machine.connected(now, conversation, probes, attended)

        self._serve(session, conversation, connected)

    def offer(self, channel: Channel, hello: Any, epoch: int, kept: bool) -> None:
        """Offer a connection that the other side has made; see SessionMachine.offered. Blocks until it has ended.

        Raises KoalaError if no conversation can begin; then the channel is closed.
        """
        session, conversation = self._begin(channel)
        self._offers[id(conversation)] = session
        self._serve(session, conversation, lambda now: self._machine.offered(now, conversation, hello, epoch, kept))

    def _begin(self, channel: Channel) -> tuple[Session, T]:
        """Return a session on the channel, and its conversation. Raises KoalaError; then the channel is closed."""

        def received(message: Any) -> None:
            """React to a message, unless another connection has taken the place of this one."""
            self.do(lambda now: self._machine.received(now, message) if self._is_current(conversation) else [])

        callbacks = self._callbacks
        session = Session(channel, received, self._tick, self._alive, callbacks.stream_frame, callbacks.wire)
        try:
            conversation = callbacks.begin(session)
        except KoalaError:
            channel.close()
            raise
        return session, conversation

    def _serve(self, session: Session, conversation: T, began: Callable[[Instant], list[Command]]) -> None:
        """Begin the session, and serve it until it ends."""
        try:
            self.do(began)
            why = session.run()
        finally:
            cut = self._callbacks.ended()
        self.do(lambda now: self._machine.cut(now, why or cut) if self._is_current(conversation) else [])

    def _is_current(self, conversation: T) -> bool:
        return self._machine.conversation is conversation

    def _not_connected(self, reason: Reason) -> None:
        self.do(lambda now: self._machine.not_connected(now, reason))

    def _fail(self, reason: Reason) -> None:
        self.do(lambda now: self._machine.failed(now, reason))

    # ---- the session's threads

    def _alive(self) -> None:
        self._machine.alive(self._callbacks.now())

    def _tick(self) -> float:
        """Do what is due. Returns the seconds until something is due again."""
        self.do(self._machine.wake)
        if self._to_probe and self._remembering is not None:
            self._to_probe = False
            reachable = self._remembering.reachable(_PROBE_S)
            self.do(lambda now: self._machine.probed(now, reachable))
        wakeup = self._machine.next_wakeup()
        return _POLL_S if wakeup is None else self._seconds_until(wakeup)

    def _seconds_until(self, instant: Instant) -> float:
        return max(0.0, (instant - self._callbacks.now()) / SECOND)


def _failure_of(error: Exception) -> Reason:
    message = f"The link failed over what the other side sent ({type(error).__name__}: {shown(str(error))})."
    advice = "koalad connects again after a while. Report this, with koalad's log."
    return Reason("link_failed", "ours", message, advice)
