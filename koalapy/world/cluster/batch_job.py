"""One batch job of a simulated batch system, of any user, and the choice of its nodes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from koalapy_adapters.batch.protocol import ENDED, QUEUED, JobStatus

from koalapy.model.units import Duration, Instant
from koalapy.world.cluster.nodes import JobProcesses, SimNode

Part = tuple[SimNode, int]


@dataclass(eq=False, slots=True)
class SimBatchJob:
    """One batch job. `begin` starts its body on the nodes that it gets; `cancels` counts who asked for its end."""

    id: str
    name: str
    processors: int
    walltime: Duration
    begin: Callable[["SimBatchJob"], JobProcesses]
    per_node: int | None = None
    state: str = QUEUED
    restarts: int = 0
    nodes: list[tuple[SimNode, int]] = field(default_factory=list)
    body: JobProcesses | None = None
    after: int = 0  # the instant before which it may not start
    stuck: bool = False  # pending for ever, whatever is free
    stuck_code: str = ""
    restarting: bool = False
    ending: str = ""  # the ending to report, if the exit status alone does not show it
    exit_status: int | None = None
    ended_at: Instant | None = None
    forgotten: bool = False  # by the queue
    lost: bool = False  # the batch system has lost all memory of it
    cancels: int = 0
    lowest: bool = False  # of lower priority than all others
    avoid: tuple[str, ...] = ()  # nodes on which it must not run
    suspended_at: Instant | None = None
    suspended_for: int = 0  # microseconds for which it was suspended, before that
    resuming: bool = False  # it goes on as soon as its processors are free

    @property
    def least_nodes(self) -> int:
        """The least number of nodes that the job needs."""
        return -(-self.processors // self.per_node) if self.per_node else 1

    @property
    def live(self) -> bool:
        return self.state != ENDED

    def status(self) -> JobStatus:
        return JobStatus(
            self.id, self.name, self.state, stuck=self.stuck_code if self.state == QUEUED else "",
            exit_status=self.exit_status, ending=self.ending if self.state == ENDED else "", restarts=self.restarts,
        )  # fmt: skip


def fit(job: SimBatchJob, nodes: Iterable[SimNode], exclusive: bool) -> list[Part]:
    """Return the first nodes that do for the job, with the processors of each; none if it does not fit now.

    With `exclusive` only empty nodes are used.
    """
    found: list[Part] = []
    missing = job.processors
    for node in nodes:
        usable = node.reachable and node.name not in job.avoid
        room = node.free if usable and not (exclusive and node.free < node.processors) else 0
        take = min(missing, room, job.per_node or room)
        if take and not (job.per_node and take < min(job.per_node, missing)):
            found.append((node, take))
            missing -= take
    return [] if missing else found


def take(parts: Iterable[Part], exclusive: bool) -> None:
    for node, processors in parts:
        node.free -= node.processors if exclusive else processors


def give_back(parts: Iterable[Part], exclusive: bool) -> None:
    for node, processors in parts:
        node.free += node.processors if exclusive else processors
