"""Wait for descriptors, feed events to a machine, and execute its commands in order."""

import selectors
from collections import deque
from typing import Any, Callable, Deque, List, Optional

from koalapy_adapters import clock


def dispatch_ready(selector: selectors.BaseSelector, timeout: Optional[float]) -> None:
    """Wait for ready descriptors and call their registered functions.

    A descriptor that an earlier call has unregistered, and perhaps closed, is skipped. `timeout` is in seconds.
    """
    for key, _ in selector.select(timeout):
        current = selector.get_map().get(key.fd)
        if current is not None and current.fileobj is key.fileobj:
            current.data()


class EventPump:
    """Feeds events to a machine with `handle`, `tick` and `next_wakeup`; `do` carries out one of its commands."""

    def __init__(self, machine: Any, do: Callable[[Any], None]) -> None:
        self._machine, self._do = machine, do
        self._pending: Deque[Any] = deque()
        self._feeding = False

    def feed(self, event: Any) -> None:
        """Pass the event to the machine and carry out its commands; events that these cause are handled after them.

        If `do` raises, the rest of that answer is not carried out. Pending events stay, and come before the next one.
        """
        self._pending.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._pending:
                for command in self._machine.handle(clock.now(), self._pending.popleft()):
                    self._do(command)
        finally:
            self._feeding = False

    def tick(self, now: int) -> None:
        """Carry out the commands that are due by `now`."""
        due = self._machine.next_wakeup()
        if due is not None and now >= due:
            for command in self._machine.tick(now):
                self._do(command)


class CommandQueue:
    """Performs commands in their order, by `perform`; those that come meanwhile are performed after them."""

    def __init__(self, perform: Callable[[Any], None]) -> None:
        self._perform = perform
        self._waiting: Deque[Any] = deque()
        self._performing = False

    def add(self, commands: List[Any]) -> None:
        """Perform these commands, or leave that to a call of `add` that is under way."""
        self._waiting.extend(commands)
        if self._performing:
            return
        self._performing = True
        try:
            while self._waiting:
                self._perform(self._waiting.popleft())
        finally:
            self._performing = False
