"""What is known of a cluster: its settings as the engine reads them, and measurements of its batch system."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.hours import Hours
from koalapy.model.identity import Tag
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

DEFAULT_NETWORK = "default"
SCAVENGING_FLOOR = Duration(2 * SECOND)  # so that looking costs less than 1 % of a processor


@dataclass(frozen=True, slots=True, kw_only=True)
class Scavenge:
    """Limits on the nodes that sweeps may have of a cluster. The defaults: whatever is idle, at any time.

    `idle_share`: of its nodes, that must be idle (what sweeps hold counts as idle). `max_nodes`: that sweeps may hold.
    `hours`: when they may, by the clock of koalad's host. `floor`: the shortest poll while sweeps hold nodes there.
    `queue`, `qos`: where the batch system itself takes nodes back from sweeps' jobs for others', if it has such.
    `parallel_environment`: for their batch jobs, instead of the cluster's.
    """

    off: bool = False
    idle_share: float = 0.0
    max_nodes: int | None = None
    hours: Hours | None = None
    floor: Duration = SCAVENGING_FLOOR
    queue: str | None = None
    qos: str | None = None
    parallel_environment: str | None = None

    @property
    def native(self) -> bool:
        """The batch system preempts sweeps' jobs by itself."""
        return self.queue is not None or self.qos is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The part of the grid file's cluster that decisions depend on. `backlog` None: the cluster's size."""

    name: str
    batch: str
    network: str = DEFAULT_NETWORK
    processors_per_node: int | None = None
    exclusive: bool = False
    max_age: Duration = MINUTE
    poll: Duration = Duration(10 * SECOND)
    backlog: int | None = None
    scavenge: Scavenge = Scavenge()


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One measurement of a cluster, in processors, each counted once.

    `total` counts every processor of the configured queue, down ones too; `idle` is what this user could start now.
    `waiting_local` counts others' jobs that wait for resources. `allocated` and `pending` are the tags of ours that the
    batch system showed when it was asked. `free_nodes` says how many nodes have how many free processors, for
    requests of so many processors a node: ((free processors, nodes), ...). `largest` and `largest_idle` are what one
    component could get there ever and now, where the batch system gives no job all that there is.

    `wanted_local` is what must be idle for all those waiting jobs to start: no more than is, where they can start on
    that; else `idle` and, in whole nodes, what they lack. Where `others_hidden`, nobody knows whether one waits.
    `whole_nodes` are those of `free_nodes` on which nothing runs at all.
    """

    measured_at: Instant
    total: int
    idle: int
    ours: int
    others: int
    waiting_local: int
    scavenged: int = 0
    allocated: tuple[Tag, ...] = ()
    pending: tuple[Tag, ...] = ()
    free_nodes: tuple[tuple[int, int], ...] = ()
    unit: str = "core"
    largest: int | None = None
    largest_idle: int | None = None
    wanted_local: int = 0
    others_hidden: bool = False
    whole_nodes: tuple[tuple[int, int], ...] = ()


@fast_frozen
@dataclass(frozen=True, slots=True)
class Node:
    """A node of an allocation: its name, the address its peers reach it by, and how many processes run there."""

    name: str
    address: str
    processes: int
