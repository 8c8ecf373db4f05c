"""Inside a Slurm job: its batch id, its nodes, and the commands that start the node agents by srun."""

import re
import time
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from koalapy_adapters.batch import hostlist
from koalapy_adapters.batch.protocol import Argv, Host, Launch, Surrounding
from koalapy_adapters.errors import ClusterError, Result, TransientError, UnreadableError

_FIELD = re.compile(r"(?:^|\s)(JobState|NodeList|EndTime)=(\S+)")
_SHARE = re.compile(r"(?:^|\s)Nodes=(\S+) CPU_IDs=(\S+)")
_STEP = re.compile(
    r"SLURM_(STEP|NTASKS|NPROCS|CPUS_PER_TASK|TASKS_PER|MEM_PER|PROCID|LOCALID|NODEID|GTIDS|DISTRIBUTION)"
)


def batch_id(environment: Mapping[str, str]) -> str:
    return environment.get("SLURM_JOB_ID", "")


def restarts(environment: Mapping[str, str]) -> int:
    """The number of restarts. The variable is set only in a job that was requeued or restarted: sbatch(1)."""
    return int(environment.get("SLURM_RESTART_COUNT", "0"))


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    """The nodes of the job, with a processor for each task, as the script requests them.

    Processors that Slurm gave beyond that, to fill nodes or make them equal, do not count. Raises UnreadableError if
    the environment does not show the nodes.
    """
    names = _names(environment)
    counts = _counts(environment, "SLURM_TASKS_PER_NODE", names)
    left = int(environment.get("SLURM_NTASKS", sum(counts)))
    found = []
    for name, count in zip(names, counts):
        found.append(Host(name, min(count, left)))
        left -= found[-1].processors
    return [host for host in found if host.processors]


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    """One srun for all nodes on which the job has equally many processors; this is nearly always one srun in all.

    Each agent gets all processors that the job has on its node. Its standard input is a copy of srun's. srun prints
    lines of the agents whole up to 1024 bytes; longer ones mix, and a flood can break the step. Raises UnreadableError
    if the environment does not show the nodes.
    """
    every = _names(environment)
    owned = dict(zip(every, _counts(environment, "SLURM_JOB_CPUS_PER_NODE", every)))
    groups: Dict[int, List[str]] = {}
    for name in names:
        groups.setdefault(owned[name], []).append(name)
    return [Launch(_srun(group, processors) + agent, group) for processors, group in groups.items()]


def surrounding_argv(environment: Mapping[str, str]) -> Argv:
    """Ask for the job with its processors on each node. A step of srun sees only its own nodes in its environment."""
    return ["scontrol", "--details", "--oneliner", "show", "job", batch_id(environment)]


def parse_surrounding(environment: Mapping[str, str], result: Result) -> Surrounding:
    """The environment of the job's batch script, made of what scontrol shows, and the job's end.

    Raises ClusterError for a job that does not run, TransientError if Slurm does not answer, UnreadableError for an
    answer without nodes.
    """
    if result.exit_status != 0:
        if "Invalid job id" in result.stderr:
            raise _allocation_ended(environment, "is not known to Slurm any more")
        raise TransientError("no_answer", "Slurm does not describe job %s." % batch_id(environment), "", result)
    fields = dict(_FIELD.findall(result.stdout))
    if fields.get("JobState") != "RUNNING":
        raise _allocation_ended(environment, "does not run: its state is %s" % fields.get("JobState", "unknown"))
    try:
        names = hostlist.expand(fields["NodeList"])
        counts = {
            name: sum(map(_count, ids.split(",")))
            for nodes, ids in _SHARE.findall(result.stdout)
            for name in hostlist.expand(nodes)
        }
        processors = ",".join(str(counts[name]) for name in names)
    except (KeyError, ValueError) as error:
        raise _not_a_job("scontrol shows no processors of its nodes (%s)" % error) from error
    found = {name: value for name, value in environment.items() if not _STEP.match(name)}
    found.update(
        SLURM_JOB_NODELIST=fields["NodeList"],
        SLURM_JOB_NUM_NODES=str(len(names)),
        SLURM_NNODES=str(len(names)),
        SLURM_JOB_CPUS_PER_NODE=processors,
        SLURM_TASKS_PER_NODE=processors,
    )
    return Surrounding(found, _instant(fields.get("EndTime", "")))


def _allocation_ended(environment: Mapping[str, str], why: str) -> ClusterError:
    return ClusterError(
        "allocation_ended",
        "Slurm job %s, which is to be the allocation, %s." % (batch_id(environment), why),
        "Start another allocation, and set SLURM_JOB_ID to its number.",
    )


def _count(ids: str) -> int:
    """The number of processors in `3` or `0-7`. Raises ValueError for anything else."""
    first, _, last = ids.partition("-")
    return int(last or first) - int(first) + 1


def _instant(text: str) -> Optional[float]:
    """Seconds since 1970 of scontrol's local time; None for `Unknown`."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def _srun(names: List[str], processors: int) -> Argv:
    return [
        "srun",
        "--overlap",  # several agents of a node, after one was lost, must not wait for each other
        "--nodes=%d" % len(names),
        "--ntasks=%d" % len(names),
        "--ntasks-per-node=1",
        "--cpus-per-task=%d" % processors,  # since 22.05 srun does not take it from the job
        "--mem=0",  # all that the job has on the node
        "--mpi=none",  # else an MPI program that an agent starts would take itself for a task of this step
        "--nodelist=" + ",".join(names),
        "--export=ALL",
        "--input=all",
        "--kill-on-bad-exit=0",  # the wrapper decides what the end of an agent means
        "--wait=0",
        "--",
    ]


def _names(environment: Mapping[str, str]) -> List[str]:
    try:
        return hostlist.expand(environment["SLURM_JOB_NODELIST"])
    except KeyError as error:
        raise _not_a_job("SLURM_JOB_NODELIST is not set") from error
    except ValueError as error:
        raise _not_a_job(str(error)) from error


def _counts(environment: Mapping[str, str], variable: str, names: List[str]) -> List[int]:
    try:
        counts = hostlist.expand_counts(environment.get(variable, ""))
    except ValueError as error:
        raise _not_a_job("%s is %s" % (variable, error)) from error
    if len(counts) != len(names):
        raise _not_a_job("%s counts %d nodes, not %d" % (variable, len(counts), len(names)))
    return counts


def _not_a_job(what: str) -> UnreadableError:
    return UnreadableError(
        "unreadable_allocation",
        "Slurm's environment does not list the nodes of the job: %s." % what,
        "Report it as a bug, with the output of `env | grep SLURM` in a batch job.",
    )
