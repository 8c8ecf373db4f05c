"""The dialect of the queue of a machine itself (`koalapy_adapters.allocation`): its commands and their JSON answers.

A batch id is NUMBER@DIRECTORY, where DIRECTORY is the queue's own in SHARED/local-queue. An executable `queue` there
starts its commands; the command `describe` creates it, and a KCM begins with that one. The KCM asks the queue's server
by its socket instead, without a process for each command.
"""

import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from koalapy_adapters import errors
from koalapy_adapters.batch import waiting_demand
from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    EXITED,
    KILLED,
    LOST,
    QUEUED,
    RUNNING,
    SUSPENDED,
    WALLTIME,
    Argv,
    BatchJob,
    BatchSettings,
    Capacity,
    Description,
    Host,
    JobStatus,
    Launch,
)
from koalapy_adapters.batch.text import exec_line, is_tag, native_lines, one_line
from koalapy_adapters.errors import Result
from koalapy_adapters.host.node_identity import ALLOCATION_JOB

NAME = "local"

_STATES = {"queued": QUEUED, "running": RUNNING, "suspended": SUSPENDED, "ended": ENDED}
_ENDINGS = {
    "": "",
    "exited": EXITED,
    "killed": KILLED,
    "lost": LOST,
    "walltime": WALLTIME,
    "cancelled": CANCELLED,
}
_WHOSE = {
    "transient": errors.TransientError,
    "cluster": errors.ClusterError,
    "request": errors.RequestError,
}
DIRECTORY = "local-queue"
HAS_QUEUE_SERVER = True  # see koalapy_adapters.kcm.execution.queue_requests


def describe_argv(cluster: BatchSettings) -> Argv:
    return _command(cluster, "describe")


def parse_describe(result: Result) -> Description:
    return Description(version=str(_field(result, _answer(result), "version")))


def script(job: BatchJob, more: Sequence[str] = ()) -> str:
    """The batch script for /bin/sh. `native` and `more` hold further `key=value` requests; the later of two applies.

    The local queue has no queues, constraints, GPUs or hosts to avoid. The script states a request for one all the
    same, so that the local queue refuses the job with its own message. Raises RequestError if a value contains a
    control character.
    """
    lacked = {"queue": job.queue, "constraint": job.constraint, "gpus": job.gpus, "avoid": " ".join(job.avoid)}
    options = [
        "name=" + job.tag,
        "processors=%d" % job.processors,
        "walltime=%d" % job.walltime_s,
        "directory=" + one_line("directory", job.directory),
        "output=" + one_line("output", job.output),
        *(one_line(key, "%s=%s" % (key, value)) for key, value in lacked.items() if value),
        *more,
    ]
    last = ["lowest=1"] if job.lowest else []
    lines = ["#!/bin/sh"] + ["#KOALA " + option for option in options + native_lines(job.native) + last]
    return "\n".join(lines) + "\n" + exec_line(job.command)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The submit command. The attempt's directory is SHARED/INSTANCE/TAG, and that of the queue SHARED/local-queue."""
    shared = os.path.dirname(os.path.dirname(job.directory))
    return [os.path.join(shared, DIRECTORY, "queue"), "submit", path]


def parse_submit(result: Result) -> str:
    return str(_field(result, _answer(result), "id"))


def status_argv(batch_ids: Sequence[str]) -> Argv:
    return [starter(batch_ids), "status", *batch_ids]


def parse_status(result: Result) -> Dict[str, JobStatus]:
    return {job.batch_id: job for job in _statuses(result, _answer(result))}


def find_argv(cluster: BatchSettings, tag: str) -> Argv:
    return _command(cluster, "find", tag)


def parse_find(result: Result, tag: str) -> Optional[JobStatus]:
    """The status of the last listed job with this tag, ended or not; None if there is none. Raises BatchError if the
    command failed or its answer cannot be read.
    """
    found = [job for job in _statuses(result, _answer(result)) if job.name == tag]
    return found[-1] if found else None


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> Optional[Argv]:
    return find_argv(cluster, tag)


def parse_history(result: Result, tag: str) -> Optional[JobStatus]:
    return parse_find(result, tag)


def cancel_argv(batch_ids: Sequence[str]) -> Argv:
    return [starter(batch_ids), "cancel", *batch_ids]


def parse_cancel(result: Result) -> None:
    _answer(result)


def hold_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    """Return None: the local queue holds no jobs. Its only user does not submit a job that must not run yet."""
    return None


def release_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return None


def parse_hold(result: Result) -> None:
    """Do nothing: this dialect has no command to hold jobs."""


def capacity_argvs(cluster: BatchSettings) -> List[Argv]:
    return [_command(cluster, "capacity")]


def parse_capacity(cluster: BatchSettings, results: List[Result]) -> Capacity:
    """The capacity of the local queue. It is first come, first served: nothing is idle while a job waits. Raises
    BatchError if the command failed or its answer cannot be read.
    """
    result = results[0]
    answer = _answer(result)
    statuses = _statuses(result, answer)
    processors = {job["id"]: job["processors"] for job in answer["jobs"]}
    running = [job for job in statuses if job.state == RUNNING]
    queued = [job for job in statuses if job.state == QUEUED and not job.stuck]
    ours = sum(processors[job.batch_id] for job in running if is_tag(job.name))
    others = sum(processors[job.batch_id] for job in running if not is_tag(job.name))
    slots = int(_field(result, answer, "slots"))
    left = max(0, slots - ours - others)
    idle = 0 if queued else left
    strangers = [job for job in queued if not is_tag(job.name)]
    wanted = sum(processors[job.batch_id] for job in queued if waiting_demand.counts(cluster, cluster.user, job.name))
    return Capacity(
        total=slots,
        idle=idle,
        ours=ours,
        others=others,
        waiting_local=len(strangers),
        allocated=[job.name for job in running if is_tag(job.name)],
        pending=[job.name for job in statuses if job.state == QUEUED and is_tag(job.name)],
        free_nodes=[[idle, 1]] if idle else [],
        statuses={job.batch_id: job for job in statuses if is_tag(job.name)},
        wanted_local=min(slots, max(0, wanted - left)),
        whole_nodes=[[slots, 1]] if idle == slots else [],
        memory=answer.get("memory"),
    )


def batch_id(environment: Mapping[str, str]) -> str:
    return environment.get(ALLOCATION_JOB, "")


def restarts(environment: Mapping[str, str]) -> int:
    """Return 0: the local queue starts no job twice."""
    return 0


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    """The nodes of the job, from KOALA_ALLOCATION_HOSTS: `node1:4,node2:2`. Raises UnreadableError if it is none."""
    try:
        shares = [entry.rpartition(":") for entry in environment["KOALA_ALLOCATION_HOSTS"].split(",")]
        return [Host(name, int(processors)) for name, _, processors in shares]
    except (KeyError, ValueError) as error:
        message = "This is not a job of an embedded queue (%s)." % error
        raise errors.UnreadableError("not_in_a_job", message, "Submit it to the queue.") from error


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    """Return no commands: there is only one node, and the wrapper runs on it."""
    return []


def own_slots(cluster: BatchSettings) -> Optional[int]:
    """The processors of the machine's own queue; 0: as many as before, at first all of the machine."""
    return cluster.slots or 0


def starter(batch_ids: Sequence[str]) -> str:
    """The path of the executable that starts the commands of these jobs' queues."""
    return os.path.join(os.path.dirname(batch_ids[0].partition("@")[2]), "queue")


def _command(cluster: BatchSettings, *words: str) -> Argv:
    place = os.path.join(cluster.directory, DIRECTORY)
    return [*cluster.command, "allocation", place, "--slots", str(own_slots(cluster)), *words]


def _answer(result: Result) -> Dict[str, Any]:
    """The JSON document that the command printed.

    Raises the BatchError that the document states, TransientError if the command had no exit status, or UnreadableError
    if there is no such document.
    """
    if result.exit_status is None:
        raise errors.TransientError("batch_timeout", "The queue did not answer in time.", "", result)
    try:
        answer = json.loads(result.stdout)
        error = answer.get("error")
        if error is not None:
            kind = _WHOSE.get(error["whose"], errors.UnreadableError)
            quoted = result._replace(stdout="")  # the error contains the text
            raise kind(error["code"], error["message"], error["advice"], quoted)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as broken:
        raise unreadable(result) from broken
    if result.exit_status != 0:
        raise unreadable(result)
    return dict(answer)


def _statuses(result: Result, answer: Dict[str, Any]) -> List[JobStatus]:
    try:
        return [_status(job) for job in answer["jobs"]]
    except (KeyError, TypeError) as error:
        raise unreadable(result) from error


def _status(job: Dict[str, Any]) -> JobStatus:
    return JobStatus(
        batch_id=job["id"],
        name=job["name"],
        state=_STATES[job["state"]],
        reason=job["reason"],
        stuck=job["stuck"],
        exit_status=job["exit_status"],
        ending=_ENDINGS[job["ending"]],
    )


def _field(result: Result, answer: Dict[str, Any], name: str) -> Any:
    if name not in answer:
        raise unreadable(result)
    return answer[name]


def unreadable(result: Result) -> errors.BatchError:
    """The error for an answer that cannot be read."""
    return errors.UnreadableError(
        "unreadable",
        "The queue answered what cannot be read: %s." % (result.words or "nothing"),
        "Look whether its directory and its python3 are still there.",
        result,
    )
