"""Capacity of a Grid Engine queue for this user: its free slots, under the parallel environment and the quotas."""

from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Set
from xml.etree import ElementTree

from koalapy_adapters.batch import sge_environments, sge_jobs, sge_quotas, waiting_demand
from koalapy_adapters.batch.classify import Verdict, check
from koalapy_adapters.batch.protocol import HELD, QUEUED, Argv, BatchSettings, Capacity
from koalapy_adapters.batch.sge_accounting import bytes_of
from koalapy_adapters.batch.sge_environments import Environment, fewer
from koalapy_adapters.batch.sge_errors import UNREACHABLE
from koalapy_adapters.batch.sge_jobs import Job
from koalapy_adapters.batch.sge_quotas import Room
from koalapy_adapters.batch.text import is_launcher, is_tag, longest, seconds_of
from koalapy_adapters.errors import ClusterError, Result


class Instance(NamedTuple):
    """A queue instance, `all.q@node1`. `left`: the slots left to the host in all its queues, None if not stated.

    `memory`: bytes of its host, None if it reports nothing. `limit_s`: the longest walltime, None for any.
    """

    queue: str
    host: str
    usable: bool
    batch: bool
    used: int
    reserved: int
    total: int
    left: Optional[int]
    memory: Optional[int]
    limit_s: Optional[int]


# qselect has no other words for "none", of the queue, the parallel environment or the access lists.
_NONE_SELECTED = (
    Verdict(
        r"\A\s*\Z|no such parallel environment|no queues",
        ClusterError,
        "no_such_queue",
        "Grid Engine has no queue instance that fits the grid file and admits this user.",
        "Correct `queue` or `parallel_environment` in the grid file; `qconf -sql` and `qconf -spl` list them.",
    ),
)


def capacity_argvs(cluster: BatchSettings) -> List[Argv]:
    """The commands. qselect knows the parallel environments of each queue and its permitted users, which qstat does not
    print.
    """
    select = ["qselect", "-U", cluster.user]
    if cluster.queue:
        select += ["-q", cluster.queue]
    if cluster.parallel_environment:
        select += ["-pe", cluster.parallel_environment]
    listing = ["qstat", "-f", "-F", "slots,mem_total,h_rt", "-u", "*", *sge_jobs.ALL, "-xml"]
    return [listing, select, sge_quotas.quotas_argv(cluster), *sge_environments.environment_argvs(cluster)]


def cache_seconds(result: Result) -> float:
    """Seconds for which the answer of one of these commands is good: a cluster seldom changes its configuration.

    qconf and qselect print the configuration, and never nothing. An empty answer of the quotas' command means that no
    quotas are configured.
    """
    prints = result.argv[0] in ("qconf", "qselect")
    configured = bool(result.stdout) if prints else result.argv[0] == "sh" and not result.stdout
    return 60.0 if configured and result.exit_status == 0 else 0.0


def parse_capacity(cluster: BatchSettings, results: List[Result]) -> Capacity:
    """The capacity of the cluster's queue in slots. The processors of a host with two queues count once.

    Raises BatchError if the command failed or its answer cannot be read.
    """
    check(results[0], UNREACHABLE)
    check(results[1], UNREACHABLE + _NONE_SELECTED)
    environment = sge_environments.environment(cluster, results[3:])
    root = sge_jobs.listing(results[0])
    every = [_instance(element) for element in root.iter("Queue-List")]
    selected = set(results[1].stdout.split())
    ours = [each for each in every if "%s@%s" % (each.queue, each.host) in selected]
    near = {each.host for each in ours}
    jobs = list(sge_jobs.jobs(root))
    statuses = {job.batch_id: sge_jobs.status(job, results[0]) for job in jobs if _is_ours(cluster, job)}
    mine = sum(_slots_of_ours(cluster, element) for element in root.iter("Queue-List") if _host(element) in near)
    busy = _busy(every, near)
    sizes = [_size(host, ours, busy) for host in sorted(near)]
    quotas = sge_quotas.room(cluster, results[2])
    room = _free(cluster, ours, busy)
    permitted = _permitted(room, environment, quotas, mine)
    free = list(permitted.values())
    waits = _waiting(jobs)
    shaped = environment.per_host is not None
    return Capacity(
        total=sum(sizes),
        idle=sum(free),
        ours=mine,
        others=max(0, sum(busy.values()) - mine),
        waiting_local=len({job.batch_id for job in waits if not _is_ours(cluster, job) and not is_launcher(job.name)}),
        allocated=sorted({job.name for job in jobs if job.batch_id in statuses and sge_jobs.holds_slots(job)}),
        pending=[status.name for status in statuses.values() if status.state in (QUEUED, HELD)],
        free_nodes=[list(count) for count in sorted(Counter(free).items(), reverse=True) if count[0]],
        statuses=statuses,
        unit="slot",
        largest=environment.most(sizes) if shaped else None,
        largest_idle=environment.most(free) if shaped else None,
        wanted_local=waiting_demand.wanted(_waiting_jobs(cluster, waits), room.values(), sizes, sum(free)),
        whole_nodes=waiting_demand.whole_nodes([permitted[host] for host in sorted(near) if not busy[host]], sum(free)),
        memory=min((each.memory for each in ours if each.memory), default=None),
        walltime_limit_s=None if cluster.native else longest(each.limit_s for each in ours),
    )


def _permitted(free: Dict[str, int], environment: Environment, quotas: Room, mine: int) -> Dict[str, int]:
    """The slots of each host that a job can get, under the quotas and the environment's own number of slots.

    No command shows which of the others' jobs are in the environment.
    """
    limited = {host: min(slots, quotas.of_hosts.get(host, slots)) for host, slots in free.items()}
    most = min(environment.slots - mine, sum(limited.values()) if quotas.slots is None else quotas.slots)
    return {host: environment.usable(slots) for host, slots in fewer(limited, most).items()}


def _instance(element: ElementTree.Element) -> Instance:
    queue, _, host = element.findtext("name", "").partition("@")
    resources = {each.get("name"): each.text or "" for each in element.findall("resource")}
    left = element.find("resource[@type='hc']")
    return Instance(
        queue=queue,
        host=host,
        # Any letter means that nothing is started there: a(larm), A, u(nknown), d(isabled), D, s(uspended), S, C,
        # E(rror), c(onfiguration ambiguous), o(rphaned), P(reempted).
        usable=not element.findtext("state", "").strip(),
        batch="B" in element.findtext("qtype", ""),
        used=int(element.findtext("slots_used", "0")),
        reserved=int(element.findtext("slots_resv", "0")),
        total=int(element.findtext("slots_total", "0")),
        left=int(float(left.text)) if left is not None and left.text else None,
        memory=int(bytes_of(resources.get("mem_total", ""))) or None,
        limit_s=seconds_of(resources.get("h_rt", "")),
    )


def _host(element: ElementTree.Element) -> str:
    return element.findtext("name", "").partition("@")[2]


def _busy(every: List[Instance], near: Set[str]) -> Dict[str, int]:
    """The slots in use on each of our hosts, in all queues, because they are the same processors."""
    busy = dict.fromkeys(sorted(near), 0)
    for each in every:
        if each.host in near:
            busy[each.host] += each.used
    return busy


def _size(host: str, ours: List[Instance], busy: Dict[str, int]) -> int:
    """The processors of a host, once: its own number of slots if the cluster set one, else its largest queue's."""
    here = [each for each in ours if each.host == host]
    limits = [each.left + busy[host] for each in here if each.left is not None]
    return min(sum(each.total for each in here), *limits) if limits else max(each.total for each in here)


def _free(cluster: BatchSettings, ours: List[Instance], busy: Dict[str, int]) -> Dict[str, int]:
    """The free processors of each host.

    If the host states how many it has left, its queues may give them together. Otherwise it has no more than the queue
    that offers most, because they are the same processors.
    """
    free: Dict[str, int] = {}
    for host in sorted({each.host for each in ours}):
        here = [each for each in ours if each.host == host]
        offers = [each.total - each.used - each.reserved for each in here if each.usable and each.batch]
        limits = [each.left for each in here if each.left is not None]
        most = min(sum(offers), *limits) if limits else min(max(offers or [0]), _size(host, ours, busy) - busy[host])
        free[host] = 0 if cluster.exclusive and busy[host] else max(0, most)
    return free


def _is_ours(cluster: BatchSettings, job: Job) -> bool:
    return job.user == cluster.user and is_tag(job.name)


def _slots_of_ours(cluster: BatchSettings, element: ElementTree.Element) -> int:
    return sum(job.slots for job in sge_jobs.jobs(element) if _is_ours(cluster, job))


def _waiting(jobs: List[Job]) -> List[Job]:
    """The jobs that want processors now.

    The scheduler gives a priority to the jobs that it considers. A job without one has a later start time or is a
    second old, or the cluster uses no priorities at all.
    """
    graded = any(job.priority > 0 for job in jobs)
    waits = [job for job in jobs if job.state.replace("R", "") in ("qw", "q", "w")]
    return [job for job in waits if job.priority > 0 or not graded]


def _waiting_jobs(cluster: BatchSettings, waits: List[Job]) -> List[waiting_demand.WaitingJob]:
    """The demands of the waiting jobs, with as many slots of a host as it has.

    No list of jobs shows what the allocation rules of their environments require instead.
    """
    return [
        waiting_demand.WaitingJob(job.slots, tasks=job.tasks)
        for job in waits
        if waiting_demand.counts(cluster, job.user, job.name)
    ]
