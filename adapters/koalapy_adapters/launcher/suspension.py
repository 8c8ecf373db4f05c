"""Suspension with the batch job: a batch system may stop only the process group with which the job began.

Grid Engine 8.1.9 stops all of it by itself; a cluster's own method (queue_conf(5), suspend_method) may reach only the
job's first process. Then wrapper and node agent are suspended. The Launcher and all processes below it have process
groups of their own: they would continue on a node that belongs to others.
"""

import os
import signal
import time
from typing import Callable, Collection

from koalapy_adapters import clock
from koalapy_adapters.host import descendants

POLL_EVERY = clock.SECOND
_STANDING_S = 0.2  # between two looks while it is suspended


class Suspension:
    """Suspends the processes below this one with its parent, which belongs to the batch job itself."""

    def __init__(self, slots: Callable[[], Collection[int]]) -> None:
        self._parent, self._slots = os.getppid(), slots
        self._look_at = 0
        self._stopped: Collection[int] = ()

    def next_wakeup(self) -> int:
        return self._look_at

    def tick(self, now: int) -> bool:
        """Stop what runs if the batch job is stopped. Returns True if it was, once the job continues or is gone."""
        if now < self._look_at:
            return False
        stopped = descendants.is_stopped(self._parent)
        if stopped:
            self._stand_still()
        else:
            self._let_go_on()
        self._look_at = clock.now() + POLL_EVERY
        return stopped

    def _stand_still(self) -> None:
        while descendants.is_stopped(self._parent):
            self._send(signal.SIGSTOP)  # again: one of them may have forked before it was stopped
            time.sleep(_STANDING_S)
        self._send(signal.SIGCONT)

    def _let_go_on(self) -> None:
        """Continue slots that a program has stopped. A batch system would have stopped all by the second look."""
        stopped = [slot for slot in self._slots() if descendants.is_stopped(slot)]
        descendants.send([slot for slot in stopped if slot in self._stopped], signal.SIGCONT)
        self._stopped = stopped

    def _send(self, number: int) -> None:
        """Send a signal, to slots first: otherwise they would begin another parameter."""
        slots = list(self._slots())
        descendants.send(slots, number)
        for slot in slots:
            descendants.send(descendants.descendants(slot), number)
