"""The batch job around this process: its batch system, found from the environment, its nodes and its end."""

import importlib
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

from koalapy_adapters.batch.protocol import Host
from koalapy_adapters.errors import BatchError, ClusterError, Result, UnreadableError

# A batch system runs a job where all variables of one of its tuples are set. The innermost job is first.
_SIGNS = (
    ("allocation", ("KOALA_ALLOCATION_JOB",)),
    ("torque", ("PBS_JOBID", "PBS_NODEFILE", "PBS_QUEUE", "PBS_VNODENUM")),
    ("pbs", ("PBS_JOBID", "PBS_NODEFILE")),
    ("sge", ("JOB_ID", "SGE_CELL")),
    ("sge", ("JOB_ID", "PE_HOSTFILE")),
    ("slurm", ("SLURM_JOB_ID",)),
)


class Found(NamedTuple):
    """The batch system, and the batch job's id."""

    batch: str
    id: str

    @property
    def is_own(self) -> bool:
        """Return whether there is no batch job: the queue has this machine itself."""
        return self.batch == "local"

    @property
    def name(self) -> str:
        """A file name for this job."""
        return "%s-%s" % (self.batch, "".join(char if char.isalnum() or char in "._-" else "_" for char in self.id))


class Outer(NamedTuple):
    """The batch job around this process. `environment` is what the dialect's `launch` needs."""

    found: Found
    dialect: Any
    environment: Dict[str, str]
    hosts: List[Host]
    ends_s: Optional[float]


def own_machine(slots: int) -> Outer:
    """This machine in the place of a batch job: one node, with so many processors, or all its cores if that is 0."""
    found, name = own_queue(), os.uname().nodename
    return Outer(found, _dialect(found.batch), dict(os.environ), [Host(name, slots or os.cpu_count() or 1)], None)


def own_queue() -> Found:
    """The queue of this machine itself."""
    return Found("local", os.uname().nodename)


def find(environment: Mapping[str, str]) -> Found:
    """The batch job that this process runs in, or that its environment names. Raises ClusterError if there is none."""
    for batch, variables in _SIGNS:
        if all(environment.get(name) for name in variables):
            return Found(batch, _dialect(batch).batch_id(environment))
    raise ClusterError(
        "not_in_allocation",
        "The KCM does not run in a batch job, and its environment names none, so there is no allocation to use.",
        "Start it inside a job of the batch system, or set SLURM_JOB_ID to a job of yours; see docs/allocations.md.",
    )


def examine(environment: Mapping[str, str], read: Callable[[str], str], run: Callable[[List[str]], Result]) -> Outer:
    """The nodes and the end of the batch job. Raises BatchError if there is none, or it cannot be used."""
    found = find(environment)
    dialect = _dialect(found.batch)
    own, ends_s = dict(environment), None
    try:
        if hasattr(dialect, "surrounding_argv"):
            own, ends_s = dialect.parse_surrounding(own, run(dialect.surrounding_argv(own)))
        hosts = dialect.hosts(own, read)
    except BatchError:
        raise
    except (LookupError, OSError, TypeError, ValueError) as error:
        message = "The nodes of %s job %s cannot be read (%s: %s)." % (*found, type(error).__name__, error)
        raise UnreadableError("unreadable_allocation", message, "Look at the batch system's variables.") from error
    ends_s = min((each for each in (ends_s, _ends_s(environment)) if each is not None), default=None)
    if not hosts:
        raise UnreadableError("no_hosts", "%s names no node of job %s." % found, "Look at the job's variables.")
    return Outer(found, dialect, own, hosts, ends_s)


def _ends_s(environment: Mapping[str, str]) -> Optional[float]:
    """The end that koalad gives a pilot, in seconds since 1970; None outside of pilots."""
    try:
        return float(environment["KOALA_ALLOCATION_ENDS"])
    except (KeyError, ValueError):
        return None


def _dialect(batch: str) -> Any:
    return importlib.import_module("koalapy_adapters.batch." + batch)
