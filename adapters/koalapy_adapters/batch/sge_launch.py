"""Inside a Grid Engine job: its batch id, its nodes, and the commands that start the node agents by qrsh."""

from typing import Callable, Dict, List, Mapping, Sequence

from koalapy_adapters.batch.protocol import Argv, Host, Launch
from koalapy_adapters.errors import UnreadableError


def batch_id(environment: Mapping[str, str]) -> str:
    return environment.get("JOB_ID", "")


def restarts(environment: Mapping[str, str]) -> int:
    """Return 1 in a job that was started before, however often, else 0: RESTARTED of qsub(1)."""
    return int(environment.get("RESTARTED", "0") or "0")


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    """The nodes of the job, from PE_HOSTFILE; without it, NSLOTS processors of HOSTNAME.

    A line has host, slots, queue instance and processor range; a host has a line for each of its queues. Raises
    UnreadableError if a line has no number of slots.
    """
    if "PE_HOSTFILE" not in environment:
        return [Host(environment.get("HOSTNAME", "localhost"), int(environment.get("NSLOTS", "1")))]
    slots: Dict[str, int] = {}
    for line in read(environment["PE_HOSTFILE"]).splitlines():
        fields = line.split()
        if len(fields) < 2 or not fields[1].isdigit():
            raise UnreadableError(
                "unreadable_allocation",
                "The host file of the parallel environment has the line %.100r." % line,
                "Report it as a bug, with the file that $PE_HOSTFILE names in a batch job.",
            )
        slots[fields[0]] = slots.get(fields[0], 0) + int(fields[1])
    return [Host(name, count) for name, count in slots.items()]


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    """A qrsh for each other host, and the agent itself on the host of this process.

    If job_is_first_task is set, the job has taken that host's last slot, and qrsh would be refused.
    """
    here = environment.get("HOSTNAME", "")
    return [Launch(agent if name == here else _qrsh(environment, name) + agent, [name]) for name in names]


def _qrsh(environment: Mapping[str, str], name: str) -> Argv:
    """The qrsh command for one host. A job's PATH need not contain qrsh.

    With -noshell the arguments arrive byte for byte; without it, a shell of the other host reads them again. -noshell
    takes absolute paths only, so env(1) looks up the program there.
    """
    path = "PATH=" + ":".join(_directories(environment))
    return ["env", path, "qrsh", "-inherit", "-noshell", name, "/usr/bin/env"]


def _directories(environment: Mapping[str, str]) -> List[str]:
    directories = [environment.get("PATH", "/usr/bin:/bin")]
    if "SGE_BINARY_PATH" in environment:
        directories.append(environment["SGE_BINARY_PATH"])
    if "SGE_ROOT" in environment and "ARC" in environment:
        directories.append("%s/bin/%s" % (environment["SGE_ROOT"], environment["ARC"]))
    return directories
