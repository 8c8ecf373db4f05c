"""Inside a Grid Engine job: who we are, which nodes we have, and how qrsh starts the node agents."""

from typing import Callable, Dict, List, Mapping, Sequence

from koalapy_adapters.batch.protocol import Argv, Host, Launch
from koalapy_adapters.errors import UnreadableError


def batch_id(environment: Mapping[str, str]) -> str:
    return environment.get("JOB_ID", "")


def restarts(environment: Mapping[str, str]) -> int:
    """qsub(1): RESTARTED is 1 in a job that was started before, however often."""
    return int(environment.get("RESTARTED", "0") or "0")


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    """From PE_HOSTFILE: host, slots, queue instance, processor range; a host has a line for each of its queues."""
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
    """A qrsh for each other host, and nothing for the one we are on: where job_is_first_task is set, the job itself
    has taken that host's last slot, and qrsh would be refused.
    """
    here = environment.get("HOSTNAME", "")
    return [Launch(agent if name == here else _qrsh(environment, name) + agent, [name]) for name in names]


def _qrsh(environment: Mapping[str, str], name: str) -> Argv:
    """With -noshell the arguments arrive byte for byte, while without it a shell of the other host reads them again;
    it also takes absolute paths only, so env(1) looks the program up there. A job's PATH need not have qrsh.
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
