"""Stops all processes below this one, and lets them go on later: an attempt is suspended for an urgent job.

SIGSTOP can neither be caught nor ignored. A process that was stopped before, as by an interactive shell, stays so.
"""

import os
import signal
from typing import Optional, Set

from koalapy_adapters import clock
from koalapy_adapters.host import descendants

POLL_EVERY = clock.SECOND  # while they are stopped: one may have been resumed by somebody else


class Suspension:
    """The processes below this one, which run until `begin` and again from `end` on."""

    def __init__(self) -> None:
        self.look_at: Optional[int] = None  # None while they run
        self._stopped: Set[int] = set()
        self._stood_before: Set[int] = set()

    def begin(self, now: int) -> None:
        """Stop them, parents before children: no parent that runs sees a child stop."""
        self.look_at = now + POLL_EVERY
        while True:  # until no process has begun meanwhile
            below = descendants.descendants(os.getpid())
            new = [pid for pid in below if pid not in self._stopped and pid not in self._stood_before]
            for pid in new:
                (self._stood_before if descendants.is_stopped(pid) else self._stopped).add(pid)
            descendants.send([pid for pid in below if pid in self._stopped], signal.SIGSTOP)
            if not new:
                return

    def tick(self, now: int) -> None:
        """Stop again what runs."""
        if self.look_at is not None and now >= self.look_at:
            self.begin(now)

    def end(self) -> None:
        """Let them go on, children before parents."""
        if self.look_at is None:
            return
        self.look_at = None
        below = descendants.descendants(os.getpid())
        descendants.send([pid for pid in reversed(below) if pid in self._stopped], signal.SIGCONT)
        self._stopped, self._stood_before = set(), set()
