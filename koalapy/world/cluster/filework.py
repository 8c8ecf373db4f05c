"""How a simulated process works on files: every access takes its time, and some are tried until they succeed."""

from collections import deque
from collections.abc import Callable
from typing import Any

from koalapy_adapters.wrapper import start

from koalapy.model.units import SECOND, Duration, Instant
from koalapy.world.processes import Process

Act = Callable[[], Any]
Then = Callable[[Any], None]  # with what came of it

_PATIENCE, _PAUSE = Duration(round(start.PATIENCE_S * SECOND)), Duration(round(start.PAUSE_S * SECOND))


class FileWork:
    """The file accesses of one process. `latency` returns the duration of the next access."""

    def __init__(self, process: Process, latency: Callable[[], Duration]) -> None:
        self._process, self._latency = process, latency
        self._tasks: deque[tuple[Act, Then]] = deque()

    def in_turn(self, act: Act, then: Then) -> None:
        """One thing after the other."""
        self._tasks.append((act, then))
        if len(self._tasks) == 1:
            self._next()

    def patiently(self, act: Act, then: Then, give_up: Callable[[], None]) -> None:
        """Repeat an operation until the process gives up, as `start` does. A ValueError is not repeated."""
        self._try(act, then, give_up, Instant(self._process.agenda.now + _PATIENCE))

    def _next(self) -> None:
        self._process.after(self._latency(), self._perform)

    def _perform(self) -> None:
        act, then = self._tasks[0]
        result = act()
        self._tasks.popleft()
        if self._tasks:
            self._next()
        then(result)

    def _try(self, act: Act, then: Then, give_up: Callable[[], None], until: Instant) -> None:
        try:
            result = act()
        except (OSError, ValueError) as error:
            if self._process.agenda.now >= until or isinstance(error, ValueError):
                give_up()
            else:
                self._process.after(_PAUSE, lambda: self._try(act, then, give_up, until))
            return
        self._process.after(self._latency(), lambda: then(result))
