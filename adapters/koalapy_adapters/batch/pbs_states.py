"""The words and numbers of the PBS family for jobs, translated once: states, endings, holds, reasons."""

import re
from typing import Dict, Mapping, NamedTuple, Optional

from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    HELD,
    KILLED,
    LOST,
    MEMORY,
    QUEUED,
    RUNNING,
    SUSPENDED,
    WALLTIME,
)

# qstat(1), "job_state". An exiting job still holds its nodes; a subjob that expired is X, an array that began B, a job
# that was handed to another server M. Torque keeps completed jobs as C. Suspended by the keyboard's user is U.
STATES = {
    "B": RUNNING,
    "C": ENDED,
    "E": RUNNING,
    "F": ENDED,
    "H": HELD,
    "M": QUEUED,
    "Q": QUEUED,
    "R": RUNNING,
    "S": SUSPENDED,
    "T": QUEUED,
    "U": SUSPENDED,
    "W": QUEUED,
    "X": ENDED,
}

# job.h of OpenPBS, JOB_SUBSTATE_*.
DELETED = 91
FAILED = 93

# A status from here on is this plus the signal that ended the job.
SIGNALLED = 256
# From here to below SIGNALLED it is a shell's code for a command that a signal ended.
_SHELL_SIGNALLED, _LAST_SIGNAL = 128, 64


class Failure(NamedTuple):
    """The ending of a job with a negative exit status, and the reason, as JOB_EXEC_* of each job.h has it."""

    ending: str
    reason: str


_SAME = {
    -1: Failure(LOST, "could not be started, before its files were staged"),
    -2: Failure(LOST, "could not be started, such as without a home directory on the node"),
    -3: Failure(LOST, "could not be started, to be tried again"),
    -4: Failure(LOST, "aborted when the node's daemon began anew"),
    -5: Failure(LOST, "aborted when the node's daemon began anew"),
    -6: Failure(LOST, "aborted when the node's daemon began anew"),
    -7: Failure(LOST, "restart failed"),
}
OPENPBS_FAILURES: Dict[int, Failure] = {
    **_SAME,
    -10: Failure(LOST, "the user or group is not known on the node"),
    -11: Failure(LOST, "was to be run again"),
    -12: Failure(LOST, "checkpointed and ended"),
    -13: Failure(LOST, "bad password"),
    -14: Failure(LOST, "was to be run again, since a node could not join"),
    -15: Failure(LOST, "was to be restarted from its checkpoint"),
    -16: Failure(LOST, "a hook of the cluster refused it, to be tried again"),
    -17: Failure(LOST, "a hook of the cluster refused it"),
    -18: Failure(LOST, "a hook of the cluster requeued it"),
    -19: Failure(CANCELLED, "a hook of the cluster deleted it"),
    -20: Failure(LOST, "the connection to its first node failed"),
    -21: Failure(LOST, "a directory of PBS is not safe"),
    -22: Failure(LOST, "a hook of the cluster failed"),
    -23: Failure(LOST, "no Kerberos credentials"),
    -24: Failure(KILLED, "exceeded ncpus (burst)"),
    -25: Failure(KILLED, "exceeded ncpus (sum)"),
    -26: Failure(MEMORY, "exceeded vmem"),
    -27: Failure(MEMORY, "exceeded mem"),
    -28: Failure(WALLTIME, "exceeded cput"),
    -29: Failure(WALLTIME, "exceeded walltime"),
    -30: Failure(LOST, "a node could not join the job"),
}
TORQUE_FAILURES: Dict[int, Failure] = {
    **_SAME,
    -8: Failure(LOST, "the command could not be executed"),
    -9: Failure(LOST, "its output files could not be opened"),
    -10: Failure(MEMORY, "exceeded a memory limit"),
    -11: Failure(WALLTIME, "exceeded walltime"),
    -12: Failure(WALLTIME, "exceeded cput"),
    -13: Failure(LOST, "its cgroups could not be made"),
}


class Family(NamedTuple):
    """The codes in which OpenPBS and Torque differ: states by letter, and failures by exit status."""

    states: Mapping[str, str]
    failures: Mapping[int, Failure]


OPENPBS = Family(STATES, OPENPBS_FAILURES)
# Torque has no U, but Slurm's qstat calls all so that it has no letter for: mostly a job that is completing.
TORQUE = Family({**STATES, "U": RUNNING}, TORQUE_FAILURES)

# Of the scheduler's comments, those that no job waits for resources with: limits, times, queues and shares.
_OTHERWISE = re.compile(
    r"limit|dedicated|primetime|queue not|zero shares|does not exist|provision|license|PBS Error", re.IGNORECASE
)
_NEVER = re.compile(r"can never run", re.IGNORECASE)
_TOO_OFTEN = re.compile(r"too many failed attempts", re.IGNORECASE)


def signal_of(exit_status: int) -> Optional[int]:
    """The signal that ended the job, in either encoding; None for an exit status of its own."""
    if exit_status >= SIGNALLED:
        return exit_status - SIGNALLED
    if _SHELL_SIGNALLED < exit_status <= _SHELL_SIGNALLED + _LAST_SIGNAL:
        return exit_status - _SHELL_SIGNALLED
    return None


def stuck(state: str, comment: str, holds: str, depends: bool) -> str:
    """The code of a pending reason that cannot clear; "" if it can.

    `holds` are letters of Hold_Types. A dependency also puts the system's hold on a job, and removes it again.
    """
    if state not in (QUEUED, HELD):
        return ""
    if _NEVER.match(comment):
        return "can_never_run"
    if _TOO_OFTEN.search(comment):
        return "too_many_failed_starts"
    if state == HELD and set("sop") & set(holds) and not depends:
        return "held_by_site"
    return ""


def waits_for_resources(comment: str) -> bool:
    """Return whether a queued job wants processors now. A job has no comment until the scheduler has considered it."""
    return not _NEVER.match(comment) and not _OTHERWISE.search(comment)
