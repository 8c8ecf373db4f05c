"""Capacity of a Slurm partition for this user, from one sinfo, one squeue and the limits of the account."""

import re
from collections import Counter
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Set

from koalapy_adapters.batch import hostlist, slurm_jobs, slurm_limits, waiting_demand
from koalapy_adapters.batch.classify import Verdict, check, unreadable
from koalapy_adapters.batch.protocol import HELD, QUEUED, RUNNING, SUSPENDED, Argv, BatchSettings, Capacity, JobStatus
from koalapy_adapters.batch.slurm_errors import UNREACHABLE
from koalapy_adapters.batch.slurm_jobs import Job
from koalapy_adapters.batch.slurm_states import WAITS_FOR_RESOURCES
from koalapy_adapters.batch.text import is_launcher, is_tag, longest, seconds_of
from koalapy_adapters.errors import ClusterError, Result

# A line for each node and partition, twenty times shorter than --json and a tenth of `scontrol show node`.
SINFO_FORMAT = (
    "NodeList:|,Partition:|,StateComplete:|,CPUsState:|,SocketCoreThread:|,OverSubscribe:|,Available:|"
    ",AllocMem:|,Memory:|,MaxCPUsPerNode:|,Time:"
)
_NODE = re.compile(
    r"([^|]+)\|([^|]+)\|([^|]+)\|(\d+)/(\d+)/\d+/(\d+)\|([^|]*)\|([^|]*)\|([^|]*)\|(\d*)\|(\d*)\|(\w*)(?:\|(\S*))?\s*\Z"
)

# sinfo(1), NODE STATE CODES: a node can start something if it is in one of these states and has no flag but one of
# these. So planned (kept for a local job), completing, drained, reserved, powering up or down and rebooting nodes are
# out, and whatever a later Slurm may add. Slurm boots a node that is powered down for the first job on it.
_USABLE = frozenset(["idle", "mixed", "allocated"])
_HARMLESS = frozenset(["cloud", "dynamic_norm", "dynamic_future"])
_BOOTED_FOR_A_JOB = frozenset(["powered_down"])
_RESERVED = frozenset(["reserved", "maint"])
_KEPT_FOR_THEM = frozenset(["planned"])
_NO_MEMORY = 1  # megabytes, slurm.conf(5): the RealMemory of a node for which none is configured
_PRIVATE = re.compile(r"^PrivateData *= *(\S+)", re.MULTILINE)
_CONFIG_S = 600.0  # seconds for which the output of `scontrol show config` is valid

_NO_RESERVATION = (
    Verdict(
        r"not found|invalid reservation",
        ClusterError,
        "no_such_reservation",
        "Slurm has no reservation of the name in the grid file.",
        "Correct `reservation` in the grid file, or take it out.",
    ),
)


JOB_LIST_QUERY = 1  # of the commands below, squeue


class Node(NamedTuple):
    """A node as one partition sees it. `flags` is its state in lower case, with all that follows a `+`."""

    name: str
    partition: str
    default: bool
    flags: Set[str]
    allocated: int
    idle: int
    total: int
    threads: bool  # the unit of allocation is a hardware thread
    exclusive: bool
    up: bool
    full: bool  # no memory left, whatever processors are
    most: Optional[int]  # processors that the partition allows on one node
    memory: Optional[int]  # bytes; None if Slurm does not know it
    limit_s: Optional[int]  # the partition's longest walltime; None for any


def capacity_argvs(cluster: BatchSettings) -> List[Argv]:
    """The commands. Without --local, sinfo and squeue may also list nodes and jobs of other members of a federation
    (fed_display).
    """
    argvs = [
        ["sinfo", "--local", "-h", "-a", "-N", "-O", SINFO_FORMAT],
        ["squeue", "--local", "-h", "-a", "-O", slurm_jobs.SHAPES_FORMAT],
        slurm_limits.argv(cluster),
        ["scontrol", "show", "config"],
    ]
    if cluster.reservation:
        argvs.append(["scontrol", "show", "reservation", "-o", cluster.reservation])
    return argvs


def cache_seconds(result: Result) -> float:
    """Seconds for which the answer of one of these commands is good; none for a configuration without PrivateData."""
    read = result.argv[1:] == ["show", "config"] and result.exit_status == 0 and _PRIVATE.search(result.stdout)
    return _CONFIG_S if read else 0.0


def hidden(result: Result) -> bool:
    """Return whether others' jobs are hidden, or may be, for all that `scontrol show config` shows."""
    match = _PRIVATE.search(result.stdout)
    return match is None or bool({"all", "jobs"}.intersection(match.group(1).split(",")))


def parse_capacity(cluster: BatchSettings, results: List[Result]) -> Capacity:
    """The capacity of the cluster's partitions in processors.

    Limits other than those of slurm_limits are not applied, such as those of a partition's quality of service. Raises
    BatchError if a command failed, an answer cannot be read, or there is no such partition or reservation.
    """
    for result in results[:2]:
        check(result, UNREACHABLE)
    nodes = _nodes(results[0], cluster.queue)
    limits = slurm_limits.limits(cluster, results[2])
    ours = _queue(cluster, nodes)
    near = _neighbours(nodes, ours)
    reserved = _reserved(results[4]) if cluster.reservation else None
    jobs = list(slurm_jobs.jobs(results[1], shaped=True))
    statuses = {job.batch_id: _status(job, limits.most, results[1]) for job in jobs if _is_ours(cluster, job)}
    held = [job for job in jobs if job.batch_id in statuses and _holds_processors(statuses[job.batch_id])]
    mine = sum(job.processors for job in held if near.intersection(job.partitions))
    each = {node.name: node for node in ours}
    free = _free(cluster, ours, reserved)
    total = sum(node.total for node in each.values())
    idle = min(sum(free.values()), total - _running(held, ours))  # what ended since squeue is reported by the next one
    idle = max(0, idle if limits.room is None else min(limits.room, idle))
    whole = [free[name] for name, node in each.items() if not node.allocated]
    waits = [job for job in jobs if job.state == "PENDING" and _wants_now(job, near)]
    room = _free_to_all(cluster, nodes, near)
    return Capacity(
        total=total,
        idle=idle,
        ours=mine,
        others=max(0, sum(node.allocated for node in each.values()) - mine),
        waiting_local=sum(job.batch_id not in statuses and not is_launcher(job.name) for job in waits),
        allocated=[job.name for job in held],
        pending=[status.name for status in statuses.values() if status.state in (QUEUED, HELD)],
        free_nodes=[list(count) for count in sorted(Counter(free.values()).items(), reverse=True) if count[0]],
        statuses=statuses,
        largest=limits.largest,
        unit="thread" if any(node.threads for node in ours) else "core",
        wanted_local=waiting_demand.wanted(
            _waiting_jobs(cluster, jobs, waits), room, [node.total for node in each.values()], idle
        ),
        others_hidden=hidden(results[3]),
        whole_nodes=waiting_demand.whole_nodes(whole, idle),
        memory=min((node.memory for node in ours if node.memory), default=None),
        walltime_limit_s=_walltime_limit(cluster, ours),
    )


def _walltime_limit(cluster: BatchSettings, ours: List[Node]) -> Optional[int]:
    """The longest walltime of the cluster's partitions. A quality of service, a reservation or a native option of the
    grid file may replace the partition's own limit, which then shows nothing.
    """
    if cluster.qos or cluster.reservation or cluster.native:
        return None
    return longest({node.partition: node.limit_s for node in ours}.values())


def _nodes(result: Result, queue: Optional[str] = None) -> List[Node]:
    nodes = [_node(line, result) for line in result.stdout.splitlines() if line.strip()]
    slurm_jobs.check_end(result)
    marked = _marked({node.partition for node in nodes}, queue)
    return [node._replace(partition=marked[:-1], default=True) if node.partition == marked else node for node in nodes]


def _marked(partitions: Set[str], queue: Optional[str]) -> str:
    """The default partition with its mark, a `*` behind its name; "" if there is none.

    A name may end with a `*` of its own: then the doubled one is the mark, unless the grid file's queue shows which is.
    """
    wanted = set((queue or "").split(","))
    ending = {name for name in partitions if name.endswith("*")} - wanted
    found = (
        {name for name in ending if name[:-1] in wanted} or {name for name in ending if name.endswith("**")} or ending
    )
    return found.pop() if len(found) == 1 else ""


def _node(line: str, result: Result) -> Node:
    match = _NODE.match(line)
    if not match:
        raise unreadable(result, "printed a line that is not a node (%.100r)" % line)
    name, partition, state, allocated, idle, total, shape, shared, available, used, memory, most, time = match.groups()
    return Node(
        name=name,
        partition=partition,
        default=False,
        flags=set(state.lower().split("+")),
        allocated=int(allocated),
        idle=int(idle),
        total=int(total),
        threads=_counts_threads(int(total), shape),
        exclusive=shared.startswith("EXCLUSIVE"),
        up=available == "up",
        full=bool(used and memory) and 0 < int(memory) <= int(used),
        most=int(most) if most.isdigit() else None,
        memory=int(memory) << 20 if memory and int(memory) > _NO_MEMORY else None,
        limit_s=seconds_of(time or ""),
    )


def _counts_threads(processors: int, shape: str) -> bool:
    """Return whether Slurm counts each hardware thread of this node: `shape` is sockets:cores:threads."""
    numbers = [int(number) for number in re.findall(r"\d+", shape)]
    if len(numbers) != 3 or numbers[2] == 1:
        return False
    return processors > numbers[0] * numbers[1]


def _queue(cluster: BatchSettings, nodes: List[Node]) -> List[Node]:
    """The rows of the configured queue (`a,b` is either of them, as for sbatch), else of the default partition. Raises
    ClusterError if there are none.
    """
    names = set(cluster.queue.split(",")) if cluster.queue else set()
    rows = [node for node in nodes if (node.partition in names if names else node.default)]
    if not rows:
        missing = "partition named %s" % cluster.queue if cluster.queue else "default partition"
        raise ClusterError(
            "no_such_queue",
            "Slurm has no %s with nodes." % missing,
            "Correct `queue` in the grid file; `sinfo` on the head node lists the partitions.",
        )
    return rows


def _neighbours(nodes: List[Node], ours: List[Node]) -> Set[str]:
    """The partitions that share a node with ours, for which their jobs compete."""
    names = {node.name for node in ours}
    return {node.partition for node in nodes if node.name in names}


def _reserved(result: Result) -> Set[str]:
    """The nodes of the configured reservation; empty while it is not active."""
    check(result, UNREACHABLE + _NO_RESERVATION)
    match = re.search(r"\bNodes=(\S+).*\bState=ACTIVE\b", result.stdout)
    if not match or match.group(1) == "(null)":
        return set()
    try:
        return set(hostlist.expand(match.group(1)))
    except ValueError as error:
        raise unreadable(result, "printed nodes that cannot be read (%s)" % error) from error


def _free(cluster: BatchSettings, rows: List[Node], reserved: Optional[Set[str]]) -> Dict[str, int]:
    """The free processors of each node, once, through the partition that offers most of them."""
    free: Dict[str, int] = {}
    for node in rows:
        free[node.name] = max(free.get(node.name, 0), _free_on(cluster, node, reserved))
    return free


def _free_to_all(cluster: BatchSettings, nodes: List[Node], near: Set[str]) -> List[int]:
    """The free processors of each node for all jobs that compete with ours.

    They include nodes that Slurm keeps for one of these jobs.
    """
    free: Dict[str, int] = {}
    for node in nodes:
        if node.partition in near and _starts(node, _harmless(cluster) | _KEPT_FOR_THEM):
            free[node.name] = max(free.get(node.name, 0), node.idle)
    return list(free.values())


def _starts(node: Node, harmless: FrozenSet[str]) -> bool:
    """Return whether a job can start on the node through this partition. `harmless` are the flags that it may have."""
    return node.up and not node.full and bool(_USABLE & node.flags) and not node.flags - _USABLE - harmless


def _harmless(cluster: BatchSettings) -> FrozenSet[str]:
    return _HARMLESS | _BOOTED_FOR_A_JOB if cluster.power_up else _HARMLESS


def _free_on(cluster: BatchSettings, node: Node, reserved: Optional[Set[str]]) -> int:
    harmless = _harmless(cluster) | _RESERVED if reserved is not None else _harmless(cluster)
    if reserved is not None and node.name not in reserved:
        return 0
    if not _starts(node, harmless):
        return 0
    if (cluster.exclusive or node.exclusive) and node.allocated:
        return 0
    return node.idle if node.most is None else min(node.idle, node.most)


def _is_ours(cluster: BatchSettings, job: Job) -> bool:
    return job.user == cluster.user and is_tag(job.name)


def _status(job: Job, most: Optional[int], result: Result) -> JobStatus:
    """The status of a job. It is stuck if it wants more than its account can ever have.

    Slurm reports only that the account has no more now.
    """
    status = slurm_jobs.status(job, result)
    if job.reason == "AssocGrpCpuLimit" and most is not None and job.processors > most:
        return status._replace(stuck="assoc_grp_cpu_limit")
    return status


def _holds_processors(status: JobStatus) -> bool:
    return status.state in (RUNNING, SUSPENDED)


def _running(held: List[Job], ours: List[Node]) -> int:
    """The processors of these jobs that are certainly on our nodes: by their partition, and not suspended for another
    job.
    """
    own = {node.partition for node in ours}
    return sum(job.processors for job in held if job.state == "RUNNING" and own.issuperset(job.partitions))


def _wants_now(job: Job, near: Set[str]) -> bool:
    """Return whether a waiting job wants processors of ours now: it is not held, dependent, limited or postponed."""
    return job.reason in WAITS_FOR_RESOURCES and bool(near.intersection(job.partitions))


def _waiting_jobs(cluster: BatchSettings, jobs: List[Job], waits: List[Job]) -> List[waiting_demand.WaitingJob]:
    running = Counter(slurm_jobs.array_of(job) for job in jobs if job.state == "RUNNING")
    return [
        waiting_demand.WaitingJob(
            job.processors,
            job.nodes,
            alone=job.alone,
            picky=job.picky,
            tasks=slurm_jobs.waiting_tasks(job, running[slurm_jobs.array_of(job)]),
        )
        for job in waits
        if waiting_demand.counts(cluster, job.user, job.name)
    ]
