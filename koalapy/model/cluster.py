"""A cluster as the engine knows it: its settings, and measurements of its batch system."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.hours import Hours
from koalapy.model.identity import Tag
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

DEFAULT_NETWORK = "default"
SCAVENGING_FLOOR = Duration(2 * SECOND)  # so that looking costs less than 1 % of a processor


@dataclass(frozen=True, slots=True, kw_only=True)
class Scavenge:
    """Limits on the nodes that sweeps may have of a cluster. The defaults allow all idle nodes at any time.

    `idle_share`: the share of its nodes that must be idle; nodes that sweeps hold count as idle. `max_nodes`: the most
    nodes that sweeps may hold. `hours`: when sweeps may hold nodes, by the clock of koalad's host. `floor`: the
    shortest poll interval while sweeps hold nodes there. `queue`, `qos`: where the batch system itself takes nodes back
    from sweeps for others' jobs, if it has such. `parallel_environment`: for the batch jobs of sweeps, in place of the
    cluster's.
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
        """Return whether the batch system preempts sweeps' jobs by itself."""
        return self.queue is not None or self.qos is not None


Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]
Attributes = tuple[tuple[str, Value], ...]  # (name, value), each name once, whatever its case


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a head node, by uname(2), such as Linux, 6.1.0 and x86_64; each '' if it is unknown.

    `mpi`: the flavours of MPI that are found there, by name. `speed`: that of a processor, as the number of kilobytes
    that it compresses in a second; 0 if it is unknown.
    """

    system: str = ""
    release: str = ""
    architecture: str = ""
    mpi: tuple[str, ...] = ()
    speed: int = 0


UNKNOWN_MACHINE = Machine()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings of a cluster that decisions depend on. `backlog`: None stands for the cluster's size.

    `draining`: nothing is placed there any more, and sweeps give its nodes back. `only_named`: components that do not
    name the cluster are not placed there. `sweeps_only`: no job is. `attributes`: what the grid file states of the
    cluster for requirements and ranks. `frees_when_suspended`: another job can have the processors of a suspended one
    there. `isolation`: set for a pilot or lease that isolates programs, to the directories that these see beside those
    of the system. `race`: components that wait elsewhere may enter its batch queue too.
    """

    name: str
    batch: str
    network: str = DEFAULT_NETWORK
    processors_per_node: int | None = None
    exclusive: bool = False
    max_age: Duration = MINUTE
    poll: Duration = Duration(10 * SECOND)
    backlog: int | None = None
    scavenge: Scavenge = Scavenge()
    draining: bool = False
    only_named: bool = False
    sweeps_only: bool = False
    attributes: Attributes = ()
    frees_when_suspended: bool = False
    isolation: tuple[str, ...] | None = None
    race: bool = True


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One measurement of a cluster, in processors, each counted once.

    `total` counts every processor of the configured queue, down ones included; `idle` counts those on which this user
    could start now. `waiting_local` counts others' jobs that wait for resources. `allocated` and `pending` are the tags
    of our batch jobs that the batch system listed. `free_nodes`: ((free processors, nodes), ...), the number of nodes
    by their free processors. `largest` and `largest_idle`: the most that one component could get there ever and now, if
    the batch system limits it.

    `wanted_local`: the processors that must be idle for all those waiting jobs to start. It is at most `idle` if they
    can start on that; else it is `idle` plus what they lack, in whole nodes. `others_hidden`: it is unknown whether
    others' jobs wait. `whole_nodes`: the part of `free_nodes` on which nothing runs. `memory`: bytes of the node
    with the least of it, None if no node's is known. `walltime_limit`: the longest walltime of a batch job in the
    configured queue, None if no limit is known.
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
    memory: int | None = None
    walltime_limit: Duration | None = None


@fast_frozen
@dataclass(frozen=True, slots=True)
class Node:
    """A node of an allocation: its name, the address that its peers use, and the number of processes on it."""

    name: str
    address: str
    processes: int
