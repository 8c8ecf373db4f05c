"""The settings that the engine's decisions depend on, as the grid file gives them, and their defaults."""

from dataclasses import dataclass, field
from enum import StrEnum

from koalapy.model.cluster import ClusterSettings
from koalapy.model.hours import Offsets
from koalapy.model.lease import Borrow, Delegation, Lend
from koalapy.model.pilot import PilotRule
from koalapy.model.request import DEFAULT_PRIORITY, Fill
from koalapy.model.sent import RunLimits
from koalapy.model.units import DAY, HOUR, MINUTE, SECOND, Duration

DEFAULT_QUEUE = "fpfs"
DEFAULT_PLACEMENT = "worst-fit"
DEFAULT_MAX_OVERTAKES = 20
DEFAULT_MAX_REVOCATIONS = 10
DEFAULT_MAX_FAILURES = 3
CLAIM_TIMEOUT = Duration(2 * MINUTE)
BARRIER_TIMEOUT = Duration(5 * MINUTE)
BARRIER_WAIT = Duration(15 * MINUTE)
WALLTIME_MARGIN = MINUTE  # of a batch job, beyond its program and the barrier
QUEUE_AFTER = Duration(5 * MINUTE)
ORPHAN_TIMEOUT = Duration(10 * MINUTE)
STREAM_TIMEOUT = Duration(MINUTE)
GRACE = Duration(5 * SECOND)
DEFAULT_SHARING = "equipartition-persite"
DEFAULT_IDLENESS = "cluster-rules"
DEFAULT_RECLAIM = "newest-first"
DEFAULT_ORDER = "in-order"
DEFAULT_QUEUES, DEFAULT_CANDIDATES = 3, "shortest-queues"
MOST_QUEUES = 32  # of a component at once
DEFAULT_VACATING = "youngest-first"
BY_HAND, DYNAMIC = "by-hand", "dynamic"
LAUNCHER_WALLTIME = HOUR
NODES_PER_RUNNER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Scavenging:
    """How sweeps share idle nodes. `policy`, `idleness`, `admission`, `reclaim`, `order`: registered policies.

    `grace`: the time that a parameter's program has between SIGTERM and SIGKILL. `walltime`: a Launcher's.
    `max_runners`: active ones at once; None for no bound. `nodes_per_runner`: the nodes that `dynamic` admission wants
    for each. `offsets`: of the local clock of koalad's host, for hours. `personal`: every sweep counts as a user of its
    own.
    """

    policy: str = DEFAULT_SHARING
    idleness: str = DEFAULT_IDLENESS
    admission: str = BY_HAND
    reclaim: str = DEFAULT_RECLAIM
    order: str = DEFAULT_ORDER
    grace: Duration = GRACE
    walltime: Duration = LAUNCHER_WALLTIME
    max_runners: int | None = None
    nodes_per_runner: int = NODES_PER_RUNNER
    offsets: Offsets = ()
    personal: bool = True


class PreemptBy(StrEnum):
    """How a job of high priority gets processors of running jobs: not at all, or these go back into the queue.

    SUSPEND: they are suspended where that frees their processors, and go back into the queue elsewhere.
    """

    OFF = "off"
    VACATE = "vacate"
    SUSPEND = "suspend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempt:
    """Which waiting jobs may take processors of running jobs, and how. A lower priority is one of a greater number.

    `highest`: jobs of priority 0 up to this one may preempt. `lowest`: jobs of this priority or a lower one may be
    preempted. `policy`: the registered policy that orders them. `users`: the owners whose jobs may preempt; None for
    all.
    """

    how: PreemptBy = PreemptBy.OFF
    highest: int = 0
    lowest: int = DEFAULT_PRIORITY
    policy: str = DEFAULT_VACATING
    users: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """In how many batch queues a component may wait at once, for the one in which it starts first.

    `most`: of them, at least 1. `of`: the clusters whose queues are entered beside the first; None for all.
    `processors`: for how many on each cluster the candidates of all jobs may ask, of which one always may; None for a
    fourth of the cluster. `policy`: the registered policy that chooses the queues.
    """

    most: int = DEFAULT_QUEUES
    of: tuple[str, ...] | None = None
    processors: int | None = None
    policy: str = DEFAULT_CANDIDATES


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of the grid file that decisions depend on. `queue` and `placement` name registered policies.

    `claim_timeout` counts from the claim until the last batch job has started, `barrier_timeout` from the first
    component at its barrier until release. `barrier_wait`: how long components that came through queues wait there for
    those in queues; 0 if `barrier_timeout` applies to them, too. `held_limit`: the processor-microseconds that those of
    one job may wait there in all; None for no bound. `fill`: what runs on their processors meanwhile. A job is
    resubmitted while its failures do not exceed their maximum.
    `grace`: the time that a program has between SIGTERM and SIGKILL. `lend`, `borrow`: what is lent to neighbouring
    sites, and when they are asked; None: nothing, and never. `run`: the terms on which jobs of neighbouring sites are
    run; None: none are. `delegation`: how requests go from site to site. `pilots`: by cluster, those that koalapy opens
    by itself.
    """

    clusters: tuple[ClusterSettings, ...]
    queue: str = DEFAULT_QUEUE
    placement: str = DEFAULT_PLACEMENT
    settles: Duration = DAY  # after so long, a smaller measured size counts as a cluster's own; not in grid files
    max_overtakes: int = DEFAULT_MAX_OVERTAKES
    claim_timeout: Duration = CLAIM_TIMEOUT
    barrier_timeout: Duration = BARRIER_TIMEOUT
    barrier_wait: Duration = BARRIER_WAIT
    held_limit: int | None = None
    fill: Fill = Fill.SWEEPS
    max_submission_failures: int = DEFAULT_MAX_FAILURES
    max_completion_failures: int = DEFAULT_MAX_FAILURES
    max_revocations: int = DEFAULT_MAX_REVOCATIONS
    queue_after: Duration = QUEUE_AFTER
    orphan_timeout: Duration = ORPHAN_TIMEOUT
    grace: Duration = GRACE
    scavenging: Scavenging = Scavenging()
    preempt: Preempt = Preempt()
    race: Race = Race()
    lend: Lend | None = None
    borrow: Borrow | None = None
    run: RunLimits | None = None
    delegation: Delegation = field(default_factory=Delegation)
    pilots: tuple[tuple[str, PilotRule], ...] = ()

    @property
    def beside_program(self) -> Duration:
        """The part of a batch job's walltime that its program does not have: the time at the barrier, and a margin."""
        return Duration(self.barrier_timeout + WALLTIME_MARGIN)
