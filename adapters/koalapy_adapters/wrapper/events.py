"""Events of the wrapper's machine, in the past tense, and its commands, in the imperative: plain values."""

from typing import Any, Dict, List, NamedTuple, Optional

from koalapy_adapters.messages.kcm import Failure, Report

Json = Dict[str, Any]


class Settings(NamedTuple):
    """The settings of one attempt. Durations are integer microseconds."""

    tag: str
    batch_id: str
    barrier_timeout: int
    walltime: int
    grace: int
    orphan_timeout: int
    mpi: bool = False  # the one process is mpirun, on the first node; all ranks end with it


class Node(NamedTuple):
    """A node of the allocation and how many processes run there. No agent is started where none do."""

    name: str
    processes: int


def failure(code: str, whose: str, message: str, advice: str, words: str = "", speaker: str = "") -> Json:
    """A messages.Failure as JSON. `speaker`: where the words come from."""
    return dict(Failure(code, whose, message, advice, command=speaker, words=words)._asdict())


# ---- events ----------------------------------------------------------------------------------------------------------


class Claimed(NamedTuple):
    """The attempt is ours; these are its nodes, the wrapper's own first."""

    nodes: List[Node]


class AttemptRevoked(NamedTuple):
    """The attempt was given up before this batch job began."""


class ClaimedBefore(NamedTuple):
    """Another start of this batch job has claimed it; `record` is what that one wrote at its end, if it did."""

    record: Optional[Json]


class PreparationFailed(NamedTuple):
    """The program cannot be started at all."""

    error: Json


class EnvironmentCaptured(NamedTuple):
    """Environment and executable are there: the nodes can be prepared."""


class NodeReady(NamedTuple):
    """Everything is prepared on this node, which its peers reach by this address."""

    node: str
    address: str


class NodeFailed(NamedTuple):
    """The node could not be prepared, or a process of it could not be started."""

    node: str
    error: Json


class NodeStarted(NamedTuple):
    """All processes of this node run; `at` is when the last of them was about to be executed."""

    node: str
    at: int


class ProcessEnded(NamedTuple):
    """`signal`: what killed it, 0 for none; `exit_status` is then 128 + that.

    Of the node's first that failed: its rank in the job, and `words`, the end of its standard error.
    """

    node: str
    at: int
    exit_status: int
    signal: int
    rank: Optional[int] = None
    words: str = ""


class NodeEmptied(NamedTuple):
    """Nothing of the program is left on this node."""

    node: str


class NodeLost(NamedTuple):
    """The node's agent has ended without having been asked. `sure`: and nothing that it started lives."""

    node: str
    sure: bool = True


class Signalled(NamedTuple):
    """The batch system stops the wrapper or a node's agent (SIGTERM). `why`: the reason, as far as it is known."""

    why: Optional[Json] = None


class Resumed(NamedTuple):
    """The batch system let the wrapper go on, which it had suspended; or its host woke up, which had `slept` so long.

    Microseconds. A host that sleeps runs no program: they are not counted to any walltime.
    """

    slept: int = 0


class SuspendRequested(NamedTuple):
    """The batch system suspends the program (SIGTSTP), and not the wrapper. Resumed, with no `slept`, ends that."""


class RelayEntered(NamedTuple):
    """The relay let the wrapper in."""


class RelayLost(NamedTuple):
    """The connection to the relay broke; `contact_at`: the last message of the relay, perhaps well before."""

    contact_at: int


class ReleaseReceived(NamedTuple):
    """See messages.Release."""

    first_rank: int
    hosts: List[List[Any]]


class StopReceived(NamedTuple):
    """See messages.Stop."""

    force: bool


class SharedReached(NamedTuple):
    """The shared directory could be written."""


class RecordWritten(NamedTuple):
    """The record lies in the shared directory."""


class RecordFailed(NamedTuple):
    """The record could not be written."""

    why: str


# ---- commands --------------------------------------------------------------------------------------------------------


class SendReport(NamedTuple):
    """Send the report to the relay, if it is connected."""

    report: Report


class PrepareNodes(NamedTuple):
    """Give every agent its part of the program. -> NodeReady or NodeFailed"""


class ReleaseNodes(NamedTuple):
    """Write the hosts file and let every agent start its processes. -> NodeStarted or NodeFailed"""

    first_rank: int
    hosts: List[List[Any]]


class StopNodes(NamedTuple):
    """Let every agent end its processes: SIGTERM, then SIGKILL after `grace` microseconds. -> NodeEmptied"""

    grace: int


class SuspendNodes(NamedTuple):
    """Let every agent stop its processes, by SIGSTOP."""


class ResumeNodes(NamedTuple):
    """Let the processes go on that SuspendNodes has stopped."""


class AbandonNodes(NamedTuple):
    """Kill the agents that did not stop. -> NodeLost"""


class WriteRecord(NamedTuple):
    """-> RecordWritten or RecordFailed. `only_if_none`: what another start of the job wrote stays."""

    report: Report
    only_if_none: bool = False


class Leave(NamedTuple):
    """End the wrapper with this exit status."""

    exit_status: int
