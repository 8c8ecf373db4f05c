"""Queries beyond a dialect: a batch system's queues and accounts, and whether it would accept a job of ours."""

import difflib
import importlib
from types import ModuleType
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings
from koalapy_adapters.errors import ClusterError, Result

Json = Dict[str, Any]
Run = Callable[[Argv], Result]  # raises BatchError for a command that is not there


class Misnamed(ClusterError):
    """The grid file has a wrong name. `value`: the name that was probably meant, "" if that is unknown."""

    def __init__(self, code: str, message: str, advice: str, value: str) -> None:
        super().__init__(code, message, advice)
        self.value = value


class Queue(NamedTuple):
    """A queue or partition as this user sees it. `closed`: why it starts no job now, "" if it does."""

    name: str
    default: bool = False
    closed: str = ""
    walltime_s: Optional[int] = None  # the longest; None: no limit is shown
    nodes: Optional[int] = None
    processors: Optional[int] = None
    environments: List[str] = []  # Grid Engine's parallel environments


class Environment(NamedTuple):
    """A parallel environment of Grid Engine. `controls`: its jobs may start processes on their other nodes."""

    name: str
    controls: bool
    rule: str
    slots: int


class Lowest(NamedTuple):
    """Whether jobs of the lowest priority that a user may set come after all others, and how that is known.

    `advice`: what to do if they do not, or may not.
    """

    is_last: bool
    words: str
    advice: str = ""


class Examiner:
    """The protocol, for readers: a module of this package named as its batch system, with these functions.

    Each raises BatchError if the commands fail, or their output cannot be read.
    """

    COMMANDS: List[str]  # any of them on the PATH shows that this batch system is installed

    queues: Callable[[Run, BatchSettings], List[Queue]]
    accounts: Callable[[Run, BatchSettings], List[str]]  # empty if the batch system has none
    try_access: Callable[
        [Run, BatchSettings], Optional[str]
    ]  # its answer to a job that is only checked; None: it cannot check one
    lowest: Callable[[Run, BatchSettings], Optional[Lowest]]  # the order of jobs of the lowest priority; None: unknown
    span: Callable[
        [Run, BatchSettings], Optional[Json]
    ]  # options of a job that surely lies on two nodes; None: there are none


def examiner(batch: str) -> Optional[ModuleType]:
    """The module for this batch system; None if there is none."""
    try:
        return importlib.import_module("koalapy_adapters.examination." + batch)
    except ImportError:
        return None


def smallest_job(cluster: BatchSettings) -> BatchJob:
    """A job of one processor for one minute with all that the grid file names. It is only checked, and never runs."""
    return BatchJob(
        tag="koala",
        directory="/tmp",
        command=["true"],
        processors=1,
        walltime_s=60,
        queue=cluster.queue,
        account=cluster.account,
        qos=cluster.qos,
        reservation=cluster.reservation,
        constraint=cluster.constraint,
        parallel_environment=cluster.parallel_environment,
    )


def from_stdin(argv: Argv, text: str) -> Argv:
    """The command `argv` with this text as its standard input."""
    return ["sh", "-c", 'text=$1; shift; printf %s "$text" | "$@"', "sh", text, *argv]


def nearest(name: Optional[str], known: List[str], usual: List[str]) -> str:
    """The known name that was probably meant, else the usual one if there is only one; else ""."""
    near = difflib.get_close_matches(name or "", known, 1, 0.5)
    if near:
        return near[0]
    return usual[0] if len(usual) == 1 else ""


def chosen(queues: List[Queue], cluster: BatchSettings) -> List[Queue]:
    """The queues that a job of this cluster goes to: `queue: a,b` is either of them."""
    if cluster.queue is None:
        return [queue for queue in queues if queue.default]
    names = cluster.queue.split(",")
    return [queue for queue in queues if queue.name in names]
