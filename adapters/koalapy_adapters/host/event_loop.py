"""Waiting for descriptors, and feeding what happened to a machine whose answers are carried out in order."""

import selectors
from collections import deque
from typing import Any, Callable, Deque, Optional

from koalapy_adapters import clock


def turn(selector: selectors.BaseSelector, timeout: Optional[float]) -> None:
    """Wait, and call. What an earlier call of the same turn has unregistered, and perhaps closed, is passed over."""
    for key, _ in selector.select(timeout):
        current = selector.get_map().get(key.fd)
        if current is not None and current.fileobj is key.fileobj:
            current.data()


class Drive:
    """Of a machine with `handle`, `tick` and `next_wakeup`; `do` carries out one command of its answers."""

    def __init__(self, machine: Any, do: Callable[[Any], None]) -> None:
        self._machine, self._do = machine, do
        self._pending: Deque[Any] = deque()
        self._telling = False

    def tell(self, event: Any) -> None:
        """Tell the machine, and do what it answers; what that brings about comes after it.

        Where `do` raises, the rest of that answer is not done; what was pending stays, and comes before the next event.
        """
        self._pending.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._pending:
                for command in self._machine.handle(clock.now(), self._pending.popleft()):
                    self._do(command)
        finally:
            self._telling = False

    def tick(self, now: int) -> None:
        """Do whatever time has brought, if something is due."""
        due = self._machine.next_wakeup()
        if due is not None and now >= due:
            for command in self._machine.tick(now):
                self._do(command)
