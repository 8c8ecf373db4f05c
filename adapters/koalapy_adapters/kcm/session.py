"""The session of a KCM with koalad, from Hello to its end, without clock, thread or file: events in, actions out.

The KCM's loop and the simulated world drive it. Each event is a method that takes `now` and returns actions, which the
driver performs in their order. Actions of `state.actions` pass through from the machine of the attempts.

    phase      event                      next phase   actions
    SILENT     received: Hello            OPENING      Open
    OPENING    opened                     OPEN         Send: Welcome; those of the machine and of early messages
               failed                     the same     Send: Welcome with the error; Quit
               received: anything else    the same     none: it is an early message
    OPEN       received: a file request   the same     Serve
               received, happened         the same     those of the machine
               received, out of bounds    the same     Send: why it is not obeyed (see confinement)
               due, not ready           the same     SeekAgain
               sought                     the same     Send: Welcome, once everything can be used
               failed                     the same     Quit
    any        received: Ping             the same     Send: Pong
               due, koalad is silent      the same     Quit
"""

from typing import Any, Callable, List, NamedTuple, Optional

from koalapy_adapters.clock import SECOND
from koalapy_adapters.errors import BatchError, RequestError
from koalapy_adapters.kcm import confinement
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.file_requests import SERVED
from koalapy_adapters.kcm.startup import refusal
from koalapy_adapters.kcm.state.actions import Quit, Send, StreamFrameReceived
from koalapy_adapters.kcm.stream_routes import StreamRoutes
from koalapy_adapters.messages.kcm import Pong, Welcome
from koalapy_adapters.messages.koalad import ClusterConfig, Hello, Ping
from koalapy_adapters.messages.streams import OpenStream, StreamReset, StreamState

SILENCE = 60  # seconds without a frame, after which koalad is taken for gone


class Open(NamedTuple):
    """Make what this Hello describes, and try to use it; then call `opened`, or `failed`."""

    hello: Hello


class SeekAgain(NamedTuple):
    """Try again what could not be used; then call `sought`, or `failed`."""


class Serve(NamedTuple):
    """Answer this request for files."""

    message: Any


class KcmSession:
    """One session. Call `tick` at `next_wakeup` or later."""

    def __init__(
        self,
        now: int,
        cpu_seconds: Callable[[], float] = lambda: 0.0,
        lease: Optional[confinement.Confinement] = None,
    ) -> None:
        """`cpu_seconds`: returns the CPU seconds that batch commands have taken. `lease`: the bounds on a lease."""
        self._cpu_seconds, self._lease = cpu_seconds, lease
        self._hello: Optional[Hello] = None
        self._machine: Optional[Machine] = None
        self.streams = StreamRoutes()
        self._early: List[Any] = []  # messages that came before the machine stood
        self._poll = 0
        self._seek_at: Optional[int] = None
        self._received_at = now
        self._silent_at = now + SILENCE * SECOND  # moved only once it has come, and not by every frame

    # ---- from koalad

    def alive(self, now: int) -> None:
        """Note that a frame has come."""
        self._received_at = now

    def received(self, now: int, message: Any) -> List[Any]:
        """React to a message. Hello begins the session; a second one is ignored."""
        self.alive(now)
        if isinstance(message, Hello):
            if self._hello is not None:
                return []
            self._hello = message
            return [Open(message)]
        if isinstance(message, Ping):
            return [Send(Pong(message.id, now, self._cpu_seconds()))]
        if self._machine is None:
            self._early.append(message)
            return []
        if self._lease is not None:
            try:
                message = self._lease.admit(message)
            except RequestError as error:
                return confinement.refusal(message, error)
        if isinstance(message, (OpenStream, StreamState, StreamReset)):
            return self.streams.from_koalad(message)
        return [Serve(message)] if isinstance(message, SERVED) else self._machine.handle(now, message)

    # ---- the outcome of actions

    def opened(self, now: int, config: ClusterConfig, fingerprints: bool, welcome: Welcome, ready: bool) -> List[Any]:
        """Begin to take commands. `fingerprints`: whether the dialect has a queue fingerprint.

        `ready`: whether everything can be used; if not, it is tried again every `config.poll` seconds.
        """
        assert self._hello is not None
        self._machine, self._poll = Machine(now, self._hello, config, fingerprints), round(config.poll * SECOND)
        self._seek_at = None if ready else now + self._poll
        actions: List[Any] = [Send(welcome), *self._machine.start(now)]
        early, self._early = self._early, []
        for message in early:
            actions += self.received(now, message)
        return actions

    def sought(self, now: int, welcome: Welcome, ready: bool) -> List[Any]:
        """React to another try."""
        self._seek_at = None if ready else now + self._poll
        return [Send(welcome)] if ready else []

    def failed(self, now: int, error: BatchError) -> List[Any]:
        """End: the Hello cannot be used, or another KCM has replaced this one."""
        refused: List[Any] = [] if self._machine is not None else [Send(refusal(error, now))]
        return [*refused, Quit(error.message)]

    def happened(self, now: int, event: Any) -> List[Any]:
        """React to the outcome of another action, or to what came over the relay."""
        if isinstance(event, StreamFrameReceived):
            return self.streams.from_wrapper(event)
        return self._machine.handle(now, event) if self._machine is not None else []

    # ---- time

    def next_wakeup(self) -> int:
        """Return when to call `tick`."""
        times = [self._machine.wakeup() if self._machine is not None else None, self._seek_at, self._silent_at]
        return min(time for time in times if time is not None)

    def tick(self, now: int) -> List[Any]:
        """Return what is due by `now`."""
        if now >= self._silent_at:
            if now >= self._received_at + SILENCE * SECOND:
                return [Quit("koalad has sent nothing for %d s" % SILENCE)]
            self._silent_at = self._received_at + SILENCE * SECOND
        actions: List[Any] = []
        if self._seek_at is not None and now >= self._seek_at:
            self._seek_at = None  # until `sought`
            actions.append(SeekAgain())
        machine_at = self._machine.wakeup() if self._machine is not None else None
        if self._machine is not None and machine_at is not None and now >= machine_at:
            actions += self._machine.tick(now)
        return actions

    # ---- for the relay and the files

    def has_ended(self, tag: str) -> bool:
        """Return whether the attempt has ended, or none is known yet."""
        return self._machine is None or self._machine.has_ended(tag)

    def is_suspended(self, tag: str) -> bool:
        """See Machine.is_suspended."""
        return self._machine is not None and self._machine.is_suspended(tag)
