"""Processes of the simulated world: they take steps, and may be killed between any two of them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from koalapy.model.units import Duration
from koalapy.world.agenda import Agenda, ScheduledCall


class Killed(BaseException):
    """The process at work was killed. It must not catch this itself."""


@dataclass(slots=True)
class CrashPoint:
    """Kills a process when `left` steps are made; None: never. `steps` counts all steps."""

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
    """A simulated process. All its calls pass through it; none is made once it is dead."""

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
        burnt = [crash_point.count_step() for crash_point in self._crash_points]  # every crash point counts
        if any(burnt):
            self.kill()
            raise Killed

    def after(self, delay: Duration, call: Callable[[], None]) -> ScheduledCall:
        """Schedule a call, which is made if the process still lives."""
        return self.agenda.after(delay, lambda: self.run(call))

    def run(self, call: Callable[[], None]) -> None:
        """Let the process work until it waits again or dies. Calls that come meanwhile are queued."""
        if self._waiting or self._frozen or self._line:
            self._line.append(call)
        else:
            self._work(call)

    def pause(self, others: Callable[[], object]) -> None:
        """Wait in the midst of work, while other processes continue."""
        self._waiting = True
        others()
        self._waiting = False
        if self._line:
            self.agenda.after(Duration(0), self._catch_up)

    def freeze(self) -> None:
        """Stop the process until `thaw`; calls that come meanwhile are queued."""
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
        """End the process, by SIGKILL or by its own exit."""
        if self.alive:
            self.alive = False
            for call in self._on_death:
                call()
