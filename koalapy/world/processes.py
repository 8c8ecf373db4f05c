"""Processes of the simulated world: they take steps, and may be killed between any two of them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from koalapy.model.units import Duration
from koalapy.world.agenda import Agenda, ScheduledCall


class Killed(BaseException):
    """The process that was at work is no more. No handler of its own may catch this."""


@dataclass(slots=True)
class CrashPoint:
    """Burns by one at each step; at the last one it has burnt down. None: it does not burn. `steps` counts all."""

    left: int | None = None
    steps: int = 0

    def count_step(self) -> bool:
        self.steps += 1
        if self.left is None:
            return False
        self.left -= 1
        if self.left > 0:
            return False
        self.left = None
        return True


class Process:
    """A simulated process. Its calls are entered through it, and none is made once it is dead."""

    def __init__(self, agenda: Agenda, crash_points: list[CrashPoint]) -> None:
        self.agenda = agenda
        self.alive = True
        self.crash_point = CrashPoint()
        self._crash_points = [self.crash_point, *crash_points]
        self._waiting = self._frozen = False
        self._line: deque[Callable[[], None]] = deque()
        self._on_death: list[Callable[[], None]] = []

    def step(self) -> None:
        """Mark a step, at which the process may die. Raises Killed if it does, or is dead."""
        if not self.alive:
            raise Killed
        burnt = [crash_point.count_step() for crash_point in self._crash_points]  # all of them
        if any(burnt):
            self.kill()
            raise Killed

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall:
        """Call it then, if the process still lives."""
        return self.agenda.after(delay, lambda: self.run(call))

    def run(self, call: Callable[[], None]) -> None:
        """Let it work until it waits again, or dies. What comes while it is at work waits in line."""
        if self._waiting or self._frozen or self._line:
            self._line.append(call)
        else:
            self._work(call)

    def pause(self, others: Callable[[], object]) -> None:
        """In the midst of its work it must wait; meanwhile others go on."""
        self._waiting = True
        others()
        self._waiting = False
        if self._line:
            self.agenda.after(Duration(0), self._catch_up)

    def freeze(self) -> None:
        """It is not run any more, until `thaw`; what comes meanwhile waits in line."""
        self._frozen = True

    def thaw(self) -> None:
        self._frozen = False
        if self._line:
            self.agenda.after(Duration(0), self._catch_up)

    def _catch_up(self) -> None:
        while self._line and not self._waiting and not self._frozen:
            self._work(self._line.popleft())

    def _work(self, call: Callable[[], None]) -> None:
        if self.alive:
            try:
                call()
            except Killed:
                assert not self.alive

    def on_death(self, call: Callable[[], None]) -> None:
        """Add a call for the end of the process, however it ends: the operating system's clean-up."""
        self._on_death.append(call)

    def kill(self) -> None:
        """SIGKILL, or its own exit."""
        if self.alive:
            self.alive = False
            for call in self._on_death:
                call()
