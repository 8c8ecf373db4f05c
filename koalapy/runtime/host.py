"""koalad's host, as its links use it: a thread for each work that may block, and one for the timers of all links."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from koalapy.model.units import SECOND, Instant

_LOG = structlog.get_logger()


@dataclass(eq=False, slots=True)
class Timer:
    """A call that is due."""

    call: Callable[[], None]


class Timers:
    """Makes calls in time, in one thread. Any thread may use it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Timer]] = []  # a heap
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Make a call, which does not block, once so many seconds have passed. The host's sleep does not count."""
        timer = Timer(call)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._numbers), timer))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
                self._thread.start()
            elif self._due[0][2] is timer:
                self._changed.notify()
        return timer

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or (left := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left if self._due else None)
                call = heapq.heappop(self._due)[2].call
            try:
                call()
            except Exception:
                _LOG.exception("timer_failed")


_TIMERS = Timers()  # of this process


def _nothing() -> None: ...


class ThreadHost:
    """The host of the link to `name`; see Host of koalapy.link. It knows the threads of that link."""

    def __init__(self, name: str, now: Callable[[], Instant]) -> None:
        self.now = now
        self._name = name
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def at(self, when: Instant, call: Callable[[], None]) -> Timer:
        return _TIMERS.after(max(0.0, (when - self.now()) / SECOND), call)

    def cancel(self, call: Timer | None) -> None:
        if call is not None:
            call.call = _nothing

    def in_thread(self, kind: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"{kind}-{self._name}", daemon=True)
        with self._lock:
            thread.start()
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def failed(self, error: Exception) -> None:
        _LOG.error("link_failed", cluster=self._name, exc_info=error)

    def join(self, within_s: float | None = None) -> None:
        """Wait until no other thread of the link runs, for `within_s` seconds at most."""
        deadline = None if within_s is None else time.monotonic() + within_s
        own = threading.current_thread()
        while running := [each for each in self._threads if each.is_alive() and each is not own]:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            running[0].join(left)
