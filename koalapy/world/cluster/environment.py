"""The environment that the parts of one simulated cluster share: clock, random streams, directory, nodes and logs."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from koalapy_adapters.frames import Chunk

from koalapy.model.units import MILLISECOND, Duration
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.batch_system import BatchSystem
from koalapy.world.cluster.files import SharedDirectory
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.cluster.observers import ClusterObserver, NoClusterObserver
from koalapy.world.network import End
from koalapy.world.processes import CrashPoint
from koalapy.world.program_log import ProgramLog
from koalapy.world.random_streams import between, stream
from koalapy.world.streams import StreamLog


class Listener(Protocol):
    """An acceptor of connections at a port of the head node."""

    def accept(self, end: End, source: str) -> None: ...


@dataclass
class Environment:
    """The shared parts of one cluster. `ports` are those of the head node, `head`.

    A crash point counts each step of every process of its kind.
    """

    agenda: Agenda
    seed: int
    cluster: str
    batch: BatchSystem
    shared: SharedDirectory
    program_log: ProgramLog
    head: SimNode
    streams: StreamLog
    kcm_crash_point: CrashPoint = field(default_factory=CrashPoint)
    wrapper_crash_point: CrashPoint = field(default_factory=CrashPoint)
    ports: dict[int, Listener] = field(default_factory=dict)
    observer: ClusterObserver = field(default_factory=NoClusterObserver)
    agents_to_hang: int = 0  # so many of the next
    chunks_to_lose: int = 0  # of byte streams, at the KCM: so many of the next
    relay_cut_until: int = 0

    @property
    def reaches_relay(self) -> bool:
        """Return whether compute nodes reach the head node."""
        return self.head.reachable and self.agenda.now >= self.relay_cut_until

    def cut_relay(self, duration: Duration) -> None:
        self.relay_cut_until = max(self.relay_cut_until, self.agenda.now + duration)

    def mend(self) -> None:
        self.agents_to_hang = self.relay_cut_until = self.chunks_to_lose = 0

    def loses(self, frame: Any) -> bool:
        """Return whether the KCM drops this frame, as it drops chunks where too many wait."""
        if not self.chunks_to_lose or not isinstance(frame, Chunk):
            return False
        self.chunks_to_lose -= 1
        return True

    def rng(self, name: str) -> Random:
        return stream(self.seed, f"{self.cluster}/{name}")

    def file_latency(self, rng: Random) -> Duration:
        """Draw the duration of one access to the shared directory, which has a few operations."""
        return Duration(self.shared.slow * between(rng, MILLISECOND, Duration(200 * MILLISECOND)))
