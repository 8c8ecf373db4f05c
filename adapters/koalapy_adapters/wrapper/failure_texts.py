"""Why an attempt ended as it did: each a sentence of what is wrong and one of what to do, and whose move it is."""

import errno
import os
import signal
from typing import List, Optional

from koalapy_adapters.batch import protocol as batch
from koalapy_adapters.batch.protocol import Stopped
from koalapy_adapters.messages import read
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper.events import Json, ProcessEnded, failure

# A process that dies of these did it to itself: that is its answer, not somebody's who killed it from outside.
OWN_FAULTS = frozenset(
    int(number)
    for number in (
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGPIPE,
    )
)

# Exit statuses of a shell whose command was stopped from outside: it exits by itself, with no signal of its own.
STOPPED = frozenset(128 + int(number) for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM))

RESTARTED = failure(
    "restarted",
    "cluster",
    "The batch system started this attempt a second time.",
    "Its program was not run again; look whether the cluster reruns jobs that are submitted as not rerunnable.",
)
SIGNALLED = failure(
    "signalled",
    "cluster",
    "The batch system stopped the job (SIGTERM).",
    "See the batch system's accounting for the reason.",
)
LEFT_BARRIER = failure(
    "barrier_timeout",
    "transient",
    "The component waited at its barrier, and no release came in time.",
    "Raise `barrier` in the grid file if the other components need longer to start.",
)
WALLTIME = failure(
    "walltime_exceeded",
    "request",
    "The program ran longer than the component's walltime.",
    "Ask for more with `walltime`.",
)
ORPHANED = failure(
    "orphaned",
    "transient",
    "The wrapper reached neither its relay nor the shared directory for `orphan_timeout`, and ended its program.",
    "Look after the cluster's file system and the network between its nodes and its head node.",
)
SETUP_SLOW = failure(
    "setup_slow",
    "request",
    "The login shell and the `setup` lines did not end in time.",
    "Look for a command in them, or in the shell's start-up files, that waits.",
)

_STOPPED_BY = {
    batch.CANCELLED: "somebody cancelled it there",
    batch.LOST: "it lost the job, or a node of it",
    batch.PREEMPTED: "it was preempted",
}


def stopped(why: Stopped) -> Json:
    """The failure for a job that the batch system stopped for this reason."""
    if why.ending in _STOPPED_BY:
        message = "The batch system stopped the job: %s." % _STOPPED_BY[why.ending]
        return failure(SIGNALLED["code"], "cluster", message, "", why.words, "The batch system")
    if why.ending == batch.MEMORY:
        message = "The component used more memory than it asked for."
        return failure("memory_exceeded", "request", message, "Ask for more memory.", why.words, "the batch system")
    return dict(WALLTIME, words=why.words)


def shut_out(node: str, addresses: List[str], port: int) -> Json:
    return failure(
        "shut_out",
        "cluster",
        "The node %s cannot connect to the relay of its head node (%s, port %d)." % (node, ", ".join(addresses), port),
        "Set `relay: files` for this cluster in the grid file, or let its nodes connect to the head's high ports "
        "and name their network in `relay_network`.",
    )


def agents_late(nodes: List[str]) -> Json:
    return failure(
        "agents_late",
        "transient",
        "No node agent answered in time from %s." % ", ".join(nodes),
        "Look whether the batch system can start processes on these nodes, and whether they see the shared directory.",
    )


def agent_not_started(node: str) -> Json:
    return failure(
        "agent_not_started",
        "transient",
        "The node agent on %s could not be started, or ended at once." % node,
        "The output of the batch system's launcher is in the attempt's batch.out.",
    )


def agent_lost(node: str) -> Json:
    return failure(
        "agent_lost",
        "transient",
        "The node agent on %s was lost." % node,
        "Look whether that node is up, and whether something killed the job's processes there.",
    )


def process_failed(ended: ProcessEnded) -> Json:
    """Return the failure of the process that failed first, with its last words. koalad completes the sentence."""
    rank = "a process" if ended.rank is None else "rank %d" % ended.rank
    where = "%s on %s" % (rank, ended.node)
    how = "exit status %s, %s." % (named_status(ended.exit_status), where)
    return failure("process_failed", "request", how, "", ended.words, where[:1].upper() + where[1:])


def named_status(status: int) -> str:
    """An exit status with the signal that it stands for in a shell: `139 (signal 11, SEGV)`."""
    try:
        name = signal.Signals(status - 128).name
    except ValueError:
        return str(status)
    return "%d (signal %d, %s)" % (status, status - 128, name[len("SIG") :])


def mpi_not_isolated() -> Json:
    return failure(
        "mpi_not_isolated",
        "request",
        "A component with `launch: mpi` cannot run isolated, and this pilot isolates programs.",
        "Run it elsewhere, or with another `launch`.",
    )


def no_executable(executable: str, why: str, advice: str) -> Json:
    return failure("no_executable", "request", "The executable %s %s." % (executable, why), advice)


def cannot_start(node: str, what: str, executable: str, why: str) -> Json:
    """The node could not open its files, or not execute the program. `why`: perhaps a sentence of ours."""
    why = why.rstrip(".")
    if what == "prepare":
        return failure(
            "node_not_prepared",
            "cluster",
            "The node %s could not prepare the program: %s." % (node, why),
            "Look whether it sees the shared directory, and whether that has room.",
        )
    advice = "A script needs a first line such as #!/bin/sh; a binary must be built for these nodes."
    if os.strerror(errno.E2BIG) in why:
        advice = "Its arguments and environment, or one of them, are too long: put them into a file, and stage it in."
    return failure(
        "no_executable", "request", "The node %s could not execute %s: %s." % (node, executable, why), advice
    )


def setup_failed(words: str, has_setup: bool) -> Json:
    """`words`: the shell's last ones."""
    if has_setup:
        advice = "Correct it; the shell's output shows why."
        return failure("setup_failed", "request", "A line of `setup` failed.", advice, words, "The shell of `setup`")
    return failure(
        "login_failed",
        "cluster",
        "The login shell gave no environment.",
        "Look whether `$SHELL -l -c true` succeeds on this cluster.",
        words,
        "The login shell",
    )


def no_room(what: str, error: OSError) -> Json:
    return failure(
        "shared_directory",
        "cluster",
        "The shared directory cannot be used: %s: %s." % (what, error.strerror or error),
        "Free space there, or look after the file system.",
    )


def recorded_report(record: Optional[Json]) -> Optional[Report]:
    """The Report that a record holds; None where there is none, or what lies there is none."""
    try:
        report: Report = read(Report, record)
    except MessageError:
        return None
    return report
