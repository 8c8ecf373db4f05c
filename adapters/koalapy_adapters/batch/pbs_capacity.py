"""Capacity of an OpenPBS queue for this user, computed from the nodes, the jobs, the queues and the server."""

import re
from collections import Counter
from typing import Dict, List, NamedTuple, Optional

from koalapy_adapters.batch import pbs_jobs, pbs_records, waiting_demand
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.pbs_errors import NOT_OURS, UNREACHABLE
from koalapy_adapters.batch.pbs_jobs import Job
from koalapy_adapters.batch.pbs_limits import Use, room
from koalapy_adapters.batch.pbs_records import Record, number, records, size, word
from koalapy_adapters.batch.pbs_states import OPENPBS
from koalapy_adapters.batch.protocol import HELD, QUEUED, RUNNING, SUSPENDED, Argv, BatchSettings, Capacity, JobStatus
from koalapy_adapters.batch.text import is_launcher, is_tag, longest, seconds_of
from koalapy_adapters.errors import ClusterError, Result

# pbs_node_attributes(7B), "state". In any other, or with any other beside it, nothing new is started: busy, down,
# offline, maintenance, provisioning, sleep, Stale, job-busy, job-exclusive, resv-exclusive, and what is yet to come.
_USABLE = frozenset(["free", "job-sharing"])
# "sharing": by itself a job has such a node alone.
_ALONE = frozenset(["default_excl", "default_exclhost", "force_excl", "force_exclhost"])


class Space(NamedTuple):
    """The processors of a host, or of a node of Torque."""

    total: int
    assigned: int
    free: int
    memory: int  # bytes; 0 if it is unknown


class Node(NamedTuple):
    """A vnode. The vnodes of one `host` together provide a chunk. `queue` is the only queue that it serves, or ""."""

    host: str
    queue: str
    total: int
    assigned: int
    free: int
    memory: int  # bytes; 0 if it is unknown
    resources: Dict[str, str]


def capacity_argvs(cluster: BatchSettings) -> List[Argv]:
    return [
        ["pbsnodes", "-a", "-v", "-F", "json"],
        ["qstat", "-f", "-F", "json"],
        ["qstat", "-Q", "-f", "-F", "json"],
        ["qstat", "-B", "-f", "-F", "json"],
    ]


def parse_capacity(cluster: BatchSettings, results: List[Result]) -> Capacity:
    """The capacity of the cluster's queue in processors. Limits of groups and projects are not applied.

    If `query_other_jobs` is off, nobody else's jobs are shown. Raises BatchError if a command failed, an answer cannot
    be read, or there is no such queue.
    """
    for result in results:
        check(result, (NOT_OURS, *UNREACHABLE))
    queues = {queue.name: queue for queue in records(results[2], "Queue")}
    servers = records(results[3], "Server")
    queue = _queue(cluster, queues, servers)
    serving = _serving(queue, queues)
    nodes = [_node(cluster, record, results[0]) for record in pbs_records.nodes(results[0])]
    ours = [node for node in nodes if any(_serves(node, each) for each in serving) and _meets(node, cluster.constraint)]
    every = list(pbs_jobs.everybodys(results[1], OPENPBS))
    near = {name for name, each in queues.items() if any(_serves(node, each) for node in ours)}
    hidden = any(word(server, "query_other_jobs") == "False" for server in servers)
    jobs = [job for job in every if job.queue in near]
    capacity = counted(cluster, _hosts(ours), every, jobs, _most(cluster, queue, servers, every, results))
    return capacity._replace(others_hidden=hidden, walltime_limit_s=_walltime_limit(cluster, queue, serving, servers))


def _walltime_limit(
    cluster: BatchSettings, queue: Record, serving: List[Record], servers: List[Record]
) -> Optional[int]:
    """The longest walltime that the queue takes, by its own limit, those of its destinations and the server's."""
    if cluster.native:
        return None
    own = [walltime_limit(each) for each in (queue, *servers)]
    found = [each for each in (*own, longest(map(walltime_limit, serving))) if each is not None]
    return min(found, default=None)


def walltime_limit(place: Record) -> Optional[int]:
    """The longest walltime of a queue or server, in seconds: pbs_queue_attributes(7B), "resources_max"."""
    return seconds_of(word(place, "resources_max.walltime"))


def counted(
    cluster: BatchSettings, hosts: List[Space], every: List[Job], near: List[Job], most: Optional[int]
) -> Capacity:
    """The capacity of these hosts, of whose jobs `near` may run there. `most`: processors that limits leave, if any."""
    found = tagged(cluster, every)
    held = [job for job in every if job.status.batch_id in found and holds_processors(job.status)]
    mine = sum(job.processors for job in near if job.status.batch_id in found and holds_processors(job.status))
    room, sizes = [host.free for host in hosts], [host.total for host in hosts]
    free = fewer(room, most)
    return Capacity(
        total=sum(sizes),
        idle=sum(free),
        ours=mine,
        others=max(0, sum(host.assigned for host in hosts) - mine),
        waiting_local=sum(
            job.waiting for job in near if job.status.batch_id not in found and not is_launcher(job.status.name)
        ),
        allocated=[job.status.name for job in held],
        pending=[status.name for status in found.values() if status.state in (QUEUED, HELD)],
        free_nodes=[list(count) for count in sorted(Counter(free).items(), reverse=True) if count[0]],
        statuses=found,
        wanted_local=waiting_demand.wanted(
            waiting_jobs(cluster, near), room, [host.total for host in hosts], sum(free)
        ),
        whole_nodes=waiting_demand.whole_nodes([host.free for host in hosts if not host.assigned], sum(free)),
        memory=min((host.memory for host in hosts if host.memory), default=None),
    )


def waiting_jobs(cluster: BatchSettings, jobs: List[Job]) -> List[waiting_demand.WaitingJob]:
    """The demands of the jobs that wait for processors."""
    return [
        waiting_demand.WaitingJob(job.processors, job.nodes, job.alone, tasks=job.waiting)
        for job in jobs
        if job.waiting and waiting_demand.counts(cluster, job.user, job.status.name)
    ]


def tagged(cluster: BatchSettings, every: List[Job]) -> Dict[str, JobStatus]:
    """The statuses of this user's jobs that bear a tag, by batch id."""
    return pbs_jobs.by_id(job for job in every if job.user == cluster.user and is_tag(job.status.name))


def holds_processors(status: JobStatus) -> bool:
    return status.state in (RUNNING, SUSPENDED)


def fewer(free: List[int], most: Optional[int]) -> List[int]:
    """The free processors of each node, largest first, cut to `most` in all. The smallest nodes lose theirs first."""
    left = sum(free) if most is None else most
    kept = []
    for count in sorted(free, reverse=True):
        kept.append(min(count, left))
        left -= kept[-1]
    return kept


def _queue(cluster: BatchSettings, queues: Dict[str, Record], servers: List[Record]) -> Record:
    """The record of the configured reservation or queue, else of the default queue. Raises ClusterError if there is
    none.

    A reservation R17.server is a queue of its own, named R17.
    """
    default = next((word(server, "default_queue") for server in servers), "")
    name = cluster.reservation or cluster.queue or default
    for each in (name, name.partition("@")[0], name.partition(".")[0]):
        if each in queues:
            return queues[each]
    raise ClusterError(
        "no_such_reservation" if cluster.reservation else "no_such_queue",
        "PBS has no queue named %s." % name if name else "PBS has no default queue.",
        "Correct `queue` or `reservation` in the grid file; `qstat -Q` on the head node lists the queues.",
    )


def _serving(queue: Record, queues: Dict[str, Record]) -> List[Record]:
    """The queue itself or, if it routes its jobs, its started destinations on this server."""
    if not word(queue, "queue_type").lower().startswith("route"):
        return [queue]
    names = [name.strip() for name in word(queue, "route_destinations").split(",")]
    return [queues[name] for name in names if name in queues and word(queues[name], "started") == "True"]


def _open(queue: Record) -> bool:
    """Return whether the queue accepts jobs and starts or routes them."""
    return word(queue, "enabled") == "True" and word(queue, "started") == "True"


def _most(
    cluster: BatchSettings, queue: Record, servers: List[Record], every: List[Job], results: List[Result]
) -> Optional[int]:
    """The processors that queue and server allow this user beyond those held now; None if nothing limits them."""
    if not _open(queue) or any(word(server, "scheduling") == "False" for server in servers):
        return 0
    rooms = [room(queue, cluster.user, _use(cluster.user, every, queue.name), results[2])]
    rooms += [room(server, cluster.user, _use(cluster.user, every, None), results[3]) for server in servers]
    return min((left for left in rooms if left is not None), default=None)


def _use(user: str, every: List[Job], queue: Optional[str]) -> Use:
    running = [job for job in every if holds_processors(job.status) and queue in (None, job.queue)]
    mine = [job.processors for job in running if job.user == user]
    return Use(len(mine), sum(mine), len(running), sum(job.processors for job in running))


def _node(cluster: BatchSettings, record: Record, result: Result) -> Node:
    total = number(record, "resources_available.ncpus", result)
    assigned = number(record, "resources_assigned.ncpus", result)
    usable = set(word(record, "state").replace(" ", "").split(",")) <= _USABLE
    alone = cluster.exclusive or word(record, "sharing") in _ALONE
    # A node with reservations to come may be asked back before our job is over.
    reserved = "resv" in record.fields and not cluster.reservation
    idle = usable and not reserved and not (alone and _taken(record)) and not _full(record)
    return Node(
        host=word(record, "resources_available.host") or record.name,
        queue=word(record, "queue"),
        total=total,
        assigned=assigned,
        free=max(0, total - assigned) if idle else 0,
        memory=size(word(record, "resources_available.mem")),
        resources={name: word(record, name) for name in record.fields},
    )


def _taken(record: Record) -> bool:
    return bool(record.fields.get("jobs"))


def _full(record: Record) -> bool:
    """Return whether the node has no memory left, however many processors are free."""
    memory = size(word(record, "resources_available.mem"))
    return 0 < memory <= size(word(record, "resources_assigned.mem"))


def _serves(node: Node, queue: Record) -> bool:
    """Return whether the node serves the queue.

    A node may be given to one queue; a queue with nodes of its own uses no others. If a queue adds a word to each chunk
    (such as default_chunk.Qlist), only nodes with this word serve it.
    """
    if node.queue != (queue.name if word(queue, "hasnodes") == "True" else ""):
        return False
    chunk = {
        name.partition(".")[2]: value
        for name, value in queue.fields.items()
        if name.startswith("default_chunk.") and isinstance(value, str)
    }
    return _has(node, chunk)


def _meets(node: Node, constraint: Optional[str]) -> bool:
    """Return whether the node has what each chunk of ours must have: `model=haswell:ib=True`."""
    return _has(node, dict(part.partition("=")[::2] for part in (constraint or "").split(":") if part))


def _has(node: Node, wanted: Dict[str, str]) -> bool:
    """Return whether the node has the wanted resources.

    Words must be among the node's own; amounts are not compared.
    """
    return all(
        value in node.resources.get("resources_available." + name, "").split(",")
        for name, value in wanted.items()
        if not re.match(r"[0-9.]+[kmgtpbw]*\Z", value.lower())
    )


def _hosts(ours: List[Node]) -> List[Space]:
    """The hosts, each with the sums of its vnodes, which provide one chunk together."""
    hosts: Dict[str, Space] = {}
    for node in ours:
        host = hosts.get(node.host, Space(0, 0, 0, 0))
        hosts[node.host] = Space(
            host.total + node.total, host.assigned + node.assigned, host.free + node.free, host.memory + node.memory
        )
    return list(hosts.values())
