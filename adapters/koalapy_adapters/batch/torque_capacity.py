"""Capacity of a Torque queue for this user, computed from the nodes, the jobs and the queues."""

import re
from typing import List, Optional

from koalapy_adapters.batch import pbs_jobs, pbs_records, torque_errors
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.pbs_capacity import Space, counted, holds_processors, walltime_limit
from koalapy_adapters.batch.pbs_jobs import Job
from koalapy_adapters.batch.pbs_limits import Use, room
from koalapy_adapters.batch.pbs_records import Record, asked, number, records, size, word
from koalapy_adapters.batch.pbs_states import TORQUE
from koalapy_adapters.batch.protocol import Argv, BatchSettings, Capacity
from koalapy_adapters.errors import ClusterError, Result

# XML cannot be broken by what a user wrote into a variable; Slurm's qstat has no -x, and prints text.
_LIST = 'answer=$(qstat -x "$@" 2>/dev/null) && [ -n "$answer" ] && printf "%s\\n" "$answer" || exec qstat -f "$@"'
LISTED = ["sh", "-c", _LIST, "qstat"]

_SERVER_S = 600.0  # seconds for which the output of `qstat -B` is valid

# Exit status of qstat where none of the jobs is known; Slurm's returns it without any text, and of no jobs at all.
_NONE_KNOWN = 153
_GONE = re.compile(r"unknown job id", re.IGNORECASE)

# pbsnodes(8B), "state"; "mixed" is Slurm's. Busy, down, offline, reserve, job-exclusive, unknown, and what else
# another state beside these, can start nothing.
_USABLE = frozenset(["free", "job-sharing", "mixed"])


def capacity_argvs(cluster: BatchSettings) -> List[Argv]:
    return [["pbsnodes", "-a"], list(LISTED), ["qstat", "-Q", "-f"], ["qstat", "-B", "-f"]]


def parse_capacity(cluster: BatchSettings, results: List[Result]) -> Capacity:
    """The capacity of the cluster in processors: all nodes with the `constraint` count, under the queue's own limits.

    Torque does not show which nodes serve which queue, nor what its scheduler has reserved. Raises BatchError if a
    command failed, an answer cannot be read, or there is no such queue.
    """
    check(results[0], torque_errors.REFUSALS)
    check(results[2], torque_errors.REFUSALS)
    every = list(pbs_jobs.everybodys(check_answer(results[1]), TORQUE))
    queue = _queue(cluster, records(results[2], "Queue"))
    nodes = [_node(cluster, record, every, results[0]) for record in _meeting(cluster, results[0])]
    capacity = counted(cluster, nodes, every, every, _most(cluster, queue, every, results[2]))
    return capacity._replace(
        others_hidden=_hidden(results[0], every) or _hides(results[3]),
        walltime_limit_s=None if queue is None or cluster.native else walltime_limit(queue),
    )


def cache_seconds(result: Result) -> float:
    """Seconds for which the answer of one of these commands is good.

    A failed `qstat -B` is good as long as any: Slurm's qstat does not know -B, and will not learn it soon.
    """
    answered = result.exit_status is not None and bool(result.stdout or result.stderr)
    return _SERVER_S if result.argv[1:2] == ["-B"] and answered else 0.0


def _hides(result: Result) -> bool:
    """Return whether `qstat -B -f` shows that only an administrator sees others' jobs, which is Torque's default."""
    setting = re.search(r"^\s*query_other_jobs = (\w+)", result.stdout, re.MULTILINE)
    torques = re.search(r"^\s*pbs_version = ", result.stdout, re.MULTILINE)
    return setting.group(1).lower() not in ("true", "1") if setting else torques is not None


def _hidden(nodes: Result, every: List[Job]) -> bool:
    """Return whether a node names a job that no list shows, or Slurm reports one in use without a listed job."""
    listed = {job.status.batch_id.partition(".")[0] for job in every}
    records_of = pbs_records.nodes(nodes)
    running = {number for each in records_of for number in re.findall(r"/(\d+)", word(each, "jobs"))}
    used = [each for each in records_of if "slurmstate=" in word(each, "status") and _in_use(each)]
    return bool(running - listed) or any(not any(_slurms(job.exec_host, each.name) for job in every) for each in used)


def _in_use(record: Record) -> bool:
    return bool({"mixed", "job-exclusive"} & set(word(record, "state").replace(" ", "").split(",")))


def check_answer(result: Result) -> Result:
    """The list of jobs that LISTED printed. Raises BatchError if qstat failed, unless it was over unknown jobs only."""
    result = asked(result, "qstat")
    setting = [line for line in result.stderr.splitlines() if line.strip()]
    if result.exit_status != _NONE_KNOWN or not all(_GONE.search(line) for line in setting):
        check(result, torque_errors.REFUSALS)
    return result


def _queue(cluster: BatchSettings, queues: List[Record]) -> Optional[Record]:
    """The record of the configured queue. Raises ClusterError if there is none of this name.

    Returns None if none is configured: only an administrator can see which queue is the default.
    """
    if not cluster.queue:
        return None
    name = cluster.queue.partition("@")[0]
    for queue in queues:
        if queue.name == name:
            return queue
    raise ClusterError(
        "no_such_queue",
        "Torque has no queue named %s." % cluster.queue,
        "Correct `queue` in the grid file; `qstat -Q` on the head node lists the queues.",
    )


def _meeting(cluster: BatchSettings, result: Result) -> List[Record]:
    """The nodes that have the properties of `constraint`, such as `haswell:ib`."""
    wanted = {part for part in (cluster.constraint or "").split(":") if part}
    return [each for each in pbs_records.nodes(result) if wanted <= set(re.split(r"[, ]+", word(each, "properties")))]


def _most(cluster: BatchSettings, queue: Optional[Record], every: List[Job], result: Result) -> Optional[int]:
    if queue is None:
        return None
    if word(queue, "enabled").lower() in ("false", "no") or word(queue, "started").lower() in ("false", "no"):
        return 0
    running = [job for job in every if holds_processors(job.status) and job.queue == queue.name]
    mine = [job.processors for job in running if job.user == cluster.user]
    use = Use(len(mine), sum(mine), len(running), sum(job.processors for job in running))
    return room(queue, cluster.user, use, result)


def _node(cluster: BatchSettings, record: Record, every: List[Job], result: Result) -> Space:
    total = number(record, "np", result)
    assigned = min(total, _assigned(record, total, every))
    words = set(word(record, "state").replace(" ", "").split(","))
    usable = words <= _USABLE and not (cluster.exclusive and assigned)
    if "mixed" in words and not assigned:
        usable = False  # Slurm lists it as in use, and no job is listed there: the list is older, or was cut off
    memory = re.search(r"\bphysmem=(\w+)", word(record, "status"))
    return Space(total, assigned, total - assigned if usable else 0, size(memory.group(1)) if memory else 0)


def _assigned(record: Record, total: int, every: List[Job]) -> int:
    """The assigned processors of a node.

    A node has `jobs = 0/12.server, 1/12.server`, since Torque 5 also `0-3/12.server`: one or several processors, and
    their job. Slurm's pbsnodes has no such list; there the exec_host of a job gives its processors on each node.
    """
    if word(record, "state") == "job-exclusive":
        return total
    if "jobs" in record.fields:
        return sum(_processors(each) for each in re.findall(r"(\d[\d,-]*)/\d+", word(record, "jobs")))
    if "slurmstate=" in word(record, "status"):
        return sum(_slurms(job.exec_host, record.name) for job in every if holds_processors(job.status))
    return 0


def _slurms(exec_host: str, node: str) -> int:
    """The processors of a node in Slurm's `c1/3+c2/1`, which has their number and not their indices."""
    found = (part.rpartition("/") for part in exec_host.split("+"))
    return sum(int(count) for name, _, count in found if name == node and re.match(r"[0-9]{1,9}\Z", count))


def _processors(indices: str) -> int:
    """The number of processors in `0`, `0-3` or `0-3,6`."""
    return pbs_jobs.given("/" + indices.strip(","))
