"""The dialect of an allocation (`koalapy_adapters.allocation`): a batch job of another batch system as a cluster.

A batch id is NUMBER@DIRECTORY, where DIRECTORY is the queue's own in SHARED/allocations. An executable `queue` there
starts its commands. The KCM asks the queue's server by its socket instead, without a process for each command.
"""

import importlib
import json
import os
from typing import List, Mapping, Sequence

from koalapy_adapters.batch import local
from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings, Capacity, Launch
from koalapy_adapters.errors import Result
from koalapy_adapters.host.node_identity import ALLOCATION_JOB
from koalapy_adapters.isolation import options

NAME = "allocation"
DIRECTORY = "allocations"
_LIMIT_STEP_S = 30
HAS_QUEUE_SERVER = True  # see koalapy_adapters.kcm.execution.queue_requests
FREES_WHEN_SUSPENDED = True

parse_describe = local.parse_describe
parse_submit = local.parse_submit
parse_status = local.parse_status
parse_find = local.parse_find
parse_history = local.parse_history
parse_cancel = local.parse_cancel
parse_suspend = local.parse_cancel
hold_argv = local.hold_argv
release_argv = local.release_argv
parse_hold = local.parse_hold
restarts = local.restarts
status_argv = local.status_argv
cancel_argv = local.cancel_argv
batch_id = local.batch_id
hosts = local.hosts


def describe_argv(cluster: BatchSettings) -> Argv:
    return _command(cluster, "describe")


def script(job: BatchJob) -> str:
    """The batch script for /bin/sh, as that of the local queue, with the command beside it as a JSON list.

    The node servers run the command without a shell. Raises RequestError if a value contains a control character.
    """
    directives = ["command=" + json.dumps(job.command)]
    if job.processors_per_node:
        directives.append("per_node=%d" % min(job.processors_per_node, job.processors))
    if job.exclusive:
        directives.append("exclusive=1")
    return local.script(job, directives)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The submit command. The attempt's directory is SHARED/INSTANCE/TAG, and the queues lie in SHARED/allocations."""
    shared = os.path.dirname(os.path.dirname(job.directory))
    return [os.path.join(shared, DIRECTORY, "queue"), "submit", path]


def find_argv(cluster: BatchSettings, tag: str) -> Argv:
    return _command(cluster, "find", tag)


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> Argv:
    return find_argv(cluster, tag)


def suspend_argv(batch_id: str) -> Argv:
    """The command that stops a job's program, so that its processors are free for other jobs."""
    return [local.starter([batch_id]), "suspend", batch_id]


def resume_argv(batch_id: str) -> Argv:
    """The command that lets a job's program go on, as soon as the processors on its nodes are free."""
    return [local.starter([batch_id]), "resume", batch_id]


def capacity_argvs(cluster: BatchSettings) -> List[Argv]:
    return [_command(cluster, "capacity")]


def parse_capacity(cluster: BatchSettings, results: List[Result]) -> Capacity:
    """The capacity of the allocation, node by node. Nothing is idle while a job waits. Raises BatchError if the command
    failed or its answer cannot be read.

    Processors that a suspended job waits for are idle; no node shows them as free. No job may last longer than the
    allocation; what is left of it is rounded down, so that not every measurement differs from the one before.
    """
    whole = local.parse_capacity(cluster, results)
    try:
        answer = json.loads(results[0].stdout)
        nodes = [(int(size), int(free)) for size, free in answer["nodes"]]
        left_s = answer.get("left_s")
        limit_s = None if left_s is None else int(left_s) // _LIMIT_STEP_S * _LIMIT_STEP_S
    except (KeyError, TypeError, ValueError) as error:
        raise local.unreadable(results[0]) from error
    if not whole.idle:
        nodes = []
    free = [free for _, free in nodes if free]
    return whole._replace(
        free_nodes=_counted(free),
        whole_nodes=_counted([size for size, free in nodes if size == free]),
        walltime_limit_s=limit_s,
    )


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    """The commands of the batch system around the allocation, with that batch job's variables.

    An agent finds the job's id in its environment: the variables of the batch job around it count for nothing then.
    """
    outer = importlib.import_module("koalapy_adapters.batch." + environment["KOALA_ALLOCATION_BATCH"])
    outer_env = json.loads(environment.get("KOALA_ALLOCATION_OUTER", "{}"))  # a job of one node needs none
    job = "%s=%s" % (ALLOCATION_JOB, environment[ALLOCATION_JOB])
    isolation = options.asked(environment)
    isolated = ["%s=%s" % each for each in sorted(isolation.variables().items())] if isolation is not None else []
    marked = ["/usr/bin/env", "-u", "KOALA_ALLOCATION_NODE", job, *isolated, *agent]
    variables = ["%s=%s" % each for each in sorted(outer_env.items())]
    launches: List[Launch] = outer.launch(outer_env, names, marked)
    return [Launch(["/usr/bin/env", *variables, *each.argv], each.hosts) for each in launches]


def _command(cluster: BatchSettings, *words: str) -> Argv:
    return [*cluster.command, "allocation", os.path.join(cluster.directory, DIRECTORY), *words]


def own_slots(cluster: BatchSettings) -> None:
    """Return None: the queue is that of a batch job."""


def _counted(sizes: List[int]) -> List[List[int]]:
    """[size, how many] of each size, the largest first."""
    return [[size, sizes.count(size)] for size in sorted(set(sizes), reverse=True)]
