"""A job in the fields of Slurm's API, as sbatch would fill them: job_desc_msg_t of slurm.h, by the names of its perl
module.

`slurm_submit.pl` gives them to slurm_submit_batch_job(3). sbatch remains for what the fields cannot express: options of
the user (`native`), GPUs, and the lowest priority, for which the field of the perl API is too small.
"""

import re
from typing import Dict, Mapping, Optional

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.batch.text import hosts_left_out, rounded_up

PROGRAM = "slurm_submit.pl"
COMMAND = "sbatch"

# The number of libslurm's interface in each release, API_CURRENT in Slurm's META. From 24.05 on the library begins a
# description with other values than sbatch for what it has no fields for (resv_port_cnt, later oom_kill_step).
RELEASES = {38: "22.05", 39: "23.02", 40: "23.11"}

_APPEND = 1  # OPEN_MODE_APPEND
_EXCLUSIVE = 0  # JOB_SHARED_NONE
_PER_CPU = 1 << 63  # MEM_PER_CPU
_MIB = 1 << 20

_SHELLISH = re.compile(r"[\s'\"\\#]")  # what sbatch would not take as it stands in a directive

# slurm_errno.h: these are the controller's answers. All others mean that no answer came, or none that can be read.
_ANSWERS = range(2000, 3000)


def submit_fields(job: BatchJob, path: str) -> Optional[Dict[str, str]]:
    """The fields for what `slurm.script` and `slurm.submit_argv` give to sbatch, with the variables that sbatch adds.

    Returns None if only sbatch can submit the job. Raises RequestError if a host to avoid is not a host name.
    """
    choices = _choices(job)
    if job.native or job.gpus or job.lowest or any(_SHELLISH.search(str(value)) for value in choices.values()):
        return None
    fields = {**_shape(job), **choices, **_identity(job, path)}
    return {name: str(value) for name, value in fields.items()}


def environment(
    settings: Mapping[str, str], limits: Mapping[str, int], host: str, umask: int, nice: int
) -> Dict[str, str]:
    """The variables that sbatch adds to the environment of every job. `limits` has those of this process by their names
    in slurm.conf.
    """
    return {
        "SLURM_SUBMIT_DIR": "/",
        "SLURM_SUBMIT_HOST": host,
        "SLURM_UMASK": "0%03o" % umask,
        "SLURM_PRIO_PROCESS": str(nice),
        **{"SLURM_RLIMIT_" + name: str(limits[name] % (1 << 64)) for name in limits if _propagated(settings, name)},
    }


def refused(errno: int) -> bool:
    """Whether the controller has answered that it does not take the job. Otherwise it may have taken it."""
    return errno in _ANSWERS


def other_release(settings: Mapping[str, str], number: Optional[int] = None) -> str:
    """Why the API is not used in the controller's release, or with a library of this number; "" if it is."""
    release = ".".join(settings.get("SLURM_VERSION", "?").split(".")[:2])
    if release not in RELEASES.values():
        return "in Slurm %s the API does not describe a job as sbatch does, as far as koalapy knows" % release
    if number is not None and RELEASES.get(number) != release:
        return "its library is not of Slurm %s, as the controller is" % release
    return ""


def _shape(job: BatchJob) -> Dict[str, object]:
    fields = {"num_tasks": job.processors, "min_cpus": job.processors, "time_limit": rounded_up(job.walltime_s, 60)}
    variables = {"env.SLURM_NTASKS": job.processors, "env.SLURM_NPROCS": job.processors}
    if job.processors_per_node:
        nodes = rounded_up(job.processors, job.processors_per_node)
        each = rounded_up(job.processors, nodes)
        fields.update(min_nodes=nodes, max_nodes=nodes, ntasks_per_node=each)
        variables["env.SLURM_NTASKS_PER_NODE"] = each
    return {**fields, **variables}


def _choices(job: BatchJob) -> Dict[str, object]:
    chosen = {
        "partition": job.queue,
        "account": job.account,
        "qos": job.qos,
        "reservation": job.reservation,
        "features": job.constraint,
        "exc_nodes": ",".join(hosts_left_out(job)) if job.avoid else None,
    }
    fields: Dict[str, object] = {name: value for name, value in chosen.items() if value}
    if job.memory_per_processor:
        fields["pn_min_memory"] = _PER_CPU + rounded_up(job.memory_per_processor, _MIB)
    if job.exclusive:
        fields["shared"] = _EXCLUSIVE
    return fields


def _identity(job: BatchJob, path: str) -> Dict[str, object]:
    """The fields for the job's name, files and modes.

    Slurm expands %j and the like in the name of the output file, but not in that of the directory.
    """
    return {
        "name": job.tag,
        "script_path": path,
        "work_dir": job.directory,
        "std_in": "/dev/null",
        "std_out": job.output.replace("%", "%%"),
        "open_mode": _APPEND,
        "requeue": 0,
        "contiguous": 0,
        "mail_type": 0,
        "mem_bind_type": 0,
        "env.SLURM_JOB_NAME": job.tag,
        "env.SLURM_OPEN_MODE": "a",
    }


def _propagated(settings: Mapping[str, str], name: str) -> bool:
    """Whether the limit is propagated to the job.

    In slurm.conf(5), PropagateResourceLimits is ALL, NONE or a list, and PropagateResourceLimitsExcept is a list.
    """
    spared = _listed(settings.get("PropagateResourceLimitsExcept", ""))
    if spared:
        return name not in spared and "ALL" not in spared
    chosen = _listed(settings.get("PropagateResourceLimits", ""))
    return not chosen or "ALL" in chosen or name in chosen


def _listed(setting: str) -> "frozenset[str]":
    return frozenset() if setting == "(null)" else frozenset(word for word in setting.split(",") if word)
