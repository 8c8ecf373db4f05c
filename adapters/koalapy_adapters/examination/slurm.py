"""Slurm's partitions and accounts, and its answer to a job: scontrol(1), sinfo(1), sbatch(1), sshare(1)."""

import re
from typing import Any, Dict, List, Mapping, Optional

from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.batch.slurm_errors import REFUSALS, UNREACHABLE
from koalapy_adapters.batch.text import seconds_of
from koalapy_adapters.errors import Result
from koalapy_adapters.examination.protocol import Lowest, Queue, Run, chosen, from_stdin, smallest_job

COMMANDS = ["sinfo", "sbatch"]

_FORMAT = "%R|%T"
_LIVING = re.compile(r"(idle|mixed|allocated|completing|reserved|planned)[^*]*$")
_TEST = ["sbatch", "--test-only"]
# By the grid file's keys; see sbatch(1), INPUT ENVIRONMENT VARIABLES. koalapy's own commands run without them.
_PROFILE = {"queue": "SBATCH_PARTITION", "account": "SBATCH_ACCOUNT", "qos": "SBATCH_QOS"}


def queues(run: Run, cluster: BatchSettings) -> List[Queue]:
    shown = run(["scontrol", "-a", "show", "partition", "-o"])
    check(shown, UNREACHABLE)
    seen = run(["sinfo", "-h", "-a", "-N", "-o", _FORMAT])
    check(seen, UNREACHABLE)
    return parse_queues(shown, seen)


def parse_queues(shown: Result, seen: Result) -> List[Queue]:
    """The partitions of `scontrol show partition -o`, with sinfo's `partition|state` of each node of each."""
    rows = [line.strip().partition("|") for line in seen.stdout.splitlines() if "|" in line]
    living = {name for name, _, state in rows if _LIVING.match(state)}
    return [_queue(line, living) for line in shown.stdout.splitlines() if line.startswith("PartitionName=")]


def accounts(run: Run, cluster: BatchSettings) -> List[str]:
    """The accounts of sshare, which asks the controller; empty without a database of accounts."""
    result = run(["sshare", "-U", "-h", "-P", "-u", cluster.user, "-o", "Account"])
    return sorted(set(result.stdout.split())) if result.exit_status == 0 else []


def profile(environment: Mapping[str, str]) -> Dict[str, str]:
    """The options that the user's profile sets for sbatch, by the grid file's keys."""
    return {key: environment[name] for key, name in _PROFILE.items() if environment.get(name)}


def try_access(run: Run, cluster: BatchSettings) -> Optional[str]:
    """`sbatch --test-only` looks at everything that a submit looks at, and submits nothing."""
    result = run(access_argv(cluster))._replace(argv=_TEST)
    check(result, REFUSALS)
    return result.words


def access_argv(cluster: BatchSettings) -> Argv:
    """The command that has sbatch read a script such as a job's, because a directive is not read as an argument is."""
    return from_stdin(_TEST, slurm.script(smallest_job(cluster)))


def lowest(run: Run, cluster: BatchSettings) -> Optional[Lowest]:
    """Return None: no user can see how the administrator weighs priorities."""
    return None


def span(run: Run, cluster: BatchSettings) -> Optional[Dict[str, Any]]:
    nodes = sum(queue.nodes or 0 for queue in chosen(queues(run, cluster), cluster))
    return {"processors": 2, "processors_per_node": 1} if nodes > 1 else None


def _queue(line: str, living: Any) -> Queue:
    fields = dict(re.findall(r"(\w+)=(\S*)", line))
    name, state = fields["PartitionName"], fields.get("State", "UP")
    closed = "" if state == "UP" else "its state is %s" % state
    if not closed and name not in living:
        closed = "none of its nodes is up"
    return Queue(
        name=name,
        default=fields.get("Default") == "YES",
        closed=closed,
        walltime_s=seconds_of(fields.get("MaxTime", "")),
        nodes=_number(fields.get("TotalNodes")),
        processors=_number(fields.get("TotalCPUs")),
    )


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text is not None and text.isdigit() else None
