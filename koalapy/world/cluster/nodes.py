"""Nodes of a simulated cluster: they run processes, lose power, and are cut off from everything around them."""

from typing import Protocol

from koalapy.model.units import Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.network import Pipe


class JobProcesses(Protocol):
    """All processes of one start of a batch job, on all nodes. `exit_status` is that of its ended batch script."""

    exit_status: int | None

    def terminate(self) -> None:
        """Send SIGTERM to its batch script."""

    def suspend(self) -> None:
        """Send SIGTSTP to its batch script."""

    def resume(self) -> None:
        """Send SIGCONT to its batch script."""

    def kill_on(self, node: "SimNode") -> None:
        """End all of it on this node: by SIGKILL, or with the node's power."""


class SimNode:
    """A compute node; `skew` is its clock minus the true one. `free` is the batch system's own book-keeping."""

    def __init__(self, agenda: Agenda, name: str, processors: int) -> None:
        self.agenda, self.name, self.processors = agenda, name, processors
        self.free = processors
        self.skew = Duration(0)
        self.up = True
        self.gone = False  # for ever
        self.bodies: dict[JobProcesses, None] = {}
        self._cut_until = Instant(0)
        self._pipes: list[Pipe] = []

    @property
    def reachable(self) -> bool:
        return self.up and self.agenda.now >= self._cut_until

    @property
    def address(self) -> str:
        return f"10.0.0.{self.name}"

    def clock(self) -> int:
        return self.agenda.now + self.skew

    def lose(self) -> None:
        """Let the node's power fail: all its processes end at once without a message."""
        self.up = False
        for pipe in self._pipes:
            pipe.cut(_NEVER, _NEVER)
        self._pipes.clear()
        for body in list(self.bodies):
            body.kill_on(self)

    def cut(self, duration: Duration) -> None:
        """Cut its network; what runs there goes on."""
        self._cut_until = Instant(max(self._cut_until, self.agenda.now + duration))
        for pipe in self._pipes:
            pipe.stall(duration)

    def mend(self) -> None:
        self.up = not self.gone
        self._cut_until = Instant(0)

    def keep(self, pipe: Pipe) -> None:
        """Record a connection of a process on this node."""
        self._pipes = [each for each in self._pipes if each.near.open or each.far.open]
        self._pipes.append(pipe)


def cluster_of(address: str) -> str:
    """Nodes of one cluster lie in one network; `name` is the cluster's, and a number."""
    return address.rstrip("0123456789")


_NEVER = Duration(10**15)
