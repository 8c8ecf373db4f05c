"""Slurm's words for jobs, translated once: states, endings, and pending reasons that cannot clear."""

import re

from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    EXITED,
    HELD,
    LOST,
    MEMORY,
    PREEMPTED,
    QUEUED,
    RUNNING,
    SUSPENDED,
    WALLTIME,
)

# squeue(1), JOB STATE CODES. A completing job still holds its nodes, and one being configured holds them already.
STATES = {
    "PENDING": QUEUED,
    "REQUEUED": QUEUED,
    "EXPEDITING": QUEUED,
    "REQUEUE_FED": QUEUED,
    "REQUEUE_HOLD": HELD,
    "RESV_DEL_HOLD": HELD,
    "SPECIAL_EXIT": HELD,
    "CONFIGURING": RUNNING,
    "RUNNING": RUNNING,
    "COMPLETING": RUNNING,
    "RESIZING": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
    "STOPPED": SUSPENDED,
    "SUSPENDED": SUSPENDED,
    "BOOT_FAIL": ENDED,
    "CANCELLED": ENDED,
    "COMPLETED": ENDED,
    "DEADLINE": ENDED,
    "FAILED": ENDED,
    "NODE_FAIL": ENDED,
    "OUT_OF_MEMORY": ENDED,
    "PREEMPTED": ENDED,
    "REVOKED": ENDED,
    "TIMEOUT": ENDED,
}

# How a job of each final state ended; FAILED is decided by its exit code.
ENDINGS = {
    "BOOT_FAIL": LOST,
    "CANCELLED": CANCELLED,
    "COMPLETED": EXITED,
    "DEADLINE": WALLTIME,
    "NODE_FAIL": LOST,
    "OUT_OF_MEMORY": MEMORY,
    "PREEMPTED": PREEMPTED,
    "REVOKED": LOST,
    "TIMEOUT": WALLTIME,
}

# sbatch(1): the largest --nice. What is left of the job's priority then is at least 1: it is not held.
NICEST = 2147483645

# Why a local job waits that wants processors now; "None" is a job that the scheduler has not looked at yet.
WAITS_FOR_RESOURCES = frozenset(["None", "Priority", "Resources"])

_HELD = re.compile(r"JobHeld|JobHoldMaxRequeue|requeued[ _](in[ _])?held", re.IGNORECASE)

# Slurm's "job reason codes" (job_state_reason.c). A limit of one job's own size can never clear; a limit of what a
# user or group has at a time (AssocGrpCpuLimit, QOSMaxJobsPerUserLimit, ...RunMinutes) clears as jobs end; a budget
# (...Minutes, ...Wall) is used up. ReqNodeNotAvail, PartitionDown, Reservation and Licenses clear by themselves.
_STUCK = re.compile(
    r"""
    (Assoc|QOS)Max\w*Per(Job|Node)(Limit)?
    | (Assoc|QOS)Grp(?!\w*Run)\w*Minutes(Limit)? | (Assoc|QOS)GrpWallLimit
    | QOSMin\w+ | QOSTimeLimit | QOSUsageThreshold | AssociationTimeLimit
    | PartitionTimeLimit | PartitionNodeLimit | PartitionConfig | MaxMemPerLimit
    | BadConstraints | Constraints | DeadLine | DependencyNeverSatisfied
    | InvalidAccount | InvalidQOS | AccountNotAllowed | QOSNotAllowed
    | ReservationDeleted | ReservationInvalid
    | JobHeldAdmin | JobHoldMaxRequeue
    """,
    re.VERBOSE,
)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Free words instead of a code, as slurmctld puts them after a launch that failed.
_LAUNCH_FAILED = re.compile(r"(launch[ _]failed|job)[ _]requeued[ _](in[ _])?held", re.IGNORECASE)
_RESERVATION_DELETED = re.compile(r"reservation[ _]\S+[ _](was[ _])?deleted", re.IGNORECASE)


def holds(reason: str) -> bool:
    """Return whether a pending job with this reason waits until somebody releases it."""
    return _HELD.search(reason) is not None


def stuck(reason: str, state: str = "") -> str:
    """The code of a pending reason that cannot clear, such as `partition_time_limit`; "" if it can.

    `state`: Slurm's word for the job's state. In RESV_DEL_HOLD the reason is a sentence: "Reservation … was deleted".
    """
    if _LAUNCH_FAILED.match(reason):
        return "launch_failed"
    if state == "RESV_DEL_HOLD" or _RESERVATION_DELETED.match(reason):
        return "reservation_deleted"
    code = reason.split(",")[0]  # some codes are followed by details
    return _WORDS.sub("_", code).lower() if _STUCK.fullmatch(code) else ""
