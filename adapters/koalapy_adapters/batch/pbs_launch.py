"""Inside a job of the PBS family: its batch id, its nodes, and the command that starts the node agents."""

import re
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from koalapy_adapters.batch.protocol import MEMORY, WALLTIME, Argv, Host, Launch, Stopped
from koalapy_adapters.errors import UnreadableError

WORDS = "KOALA_PBS_WORDS"  # the variable that names the file

# mom_main.c of OpenPBS and Torque: "=>> PBS: job killed: mem 320036kb exceeded limit 51200kb"
_KILLED = re.compile(r"^=>> PBS: job killed: .*", re.MULTILINE)
_EXCEEDED = re.compile(r"job killed: (?:(v?mem|pv?mem)|(walltime|p?cput)) \S+ (?:\(.*\) )?exceeded", re.IGNORECASE)
_MUCH = 1 << 16  # bytes


def why_stopped(environment: Mapping[str, str]) -> Optional[Stopped]:
    """Why PBS stopped the job; None if its message is missing or not known.

    PBS writes the message into the job's own output before it signals the job.
    """
    try:
        with open(environment.get(WORDS, ""), "rb") as file:
            found = _KILLED.search(file.read(_MUCH).decode("utf-8", "replace"))
    except OSError:
        return None
    match = found and _EXCEEDED.search(found.group(0))
    return Stopped(MEMORY if match.group(1) else WALLTIME, found.group(0)) if found and match else None


def batch_id(environment: Mapping[str, str]) -> str:
    return environment.get("PBS_JOBID", "")


def restarts(environment: Mapping[str, str]) -> int:
    """Return 0: PBS gives its jobs no such number, which only qstat prints (run_count)."""
    return 0


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    """The nodes of the job, from PBS_NODEFILE, which names a node once for each of its processors, in any order.

    Raises UnreadableError if PBS_NODEFILE is not set, or its file has lines that are not host names.
    """
    if "PBS_NODEFILE" not in environment:
        raise _not_a_job("PBS_NODEFILE is not set")
    counts: Dict[str, int] = {}
    for line in read(environment["PBS_NODEFILE"]).splitlines():
        name = line.strip()
        if name:
            counts[name] = counts.get(name, 0) + 1
    if any(" " in name or "\t" in name for name in counts):
        raise _not_a_job("the file that PBS_NODEFILE names has lines that are not host names")
    return [Host(name, count) for name, count in counts.items()]


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    """A bridge to all of these nodes: PBS's own launchers, pbs_tmrsh and pbsdsh, carry neither standard input nor
    output.

    `agent` is the command that starts the pushed file, then `agent` and the nodes' names.
    """
    return [Launch([*agent[:-2], "pbs-bridge", ",".join(names), *agent], list(names))]


def _not_a_job(what: str) -> UnreadableError:
    return UnreadableError(
        "unreadable_allocation",
        "PBS's environment does not list the nodes of the job: %s." % what,
        "Report it as a bug, with the output of `env | grep PBS` in a batch job.",
    )
