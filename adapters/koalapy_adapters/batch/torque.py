"""The dialect of Torque, and of Slurm's imitation of it (slurm-wlm-torque).

The manual is qsub(1B), qstat(1B) and pbs_resources(7B) of Torque 4 to 6. The modules `pbs_*` have what Torque shares
with OpenPBS.
"""

import re
import shlex
from typing import Callable, Dict, List, Mapping, Optional, Sequence

from koalapy_adapters.batch import pbs_jobs, pbs_launch, slurm_launch, torque_capacity
from koalapy_adapters.batch.classify import NOT_HELD, check, failure, unreadable
from koalapy_adapters.batch.pbs import ALWAYS, LOWEST_PRIORITY, clock, everywhere, quoted, submitted_id, whole_script
from koalapy_adapters.batch.pbs_records import asked
from koalapy_adapters.batch.pbs_states import TORQUE
from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings, Description, Host, JobStatus, Launch
from koalapy_adapters.batch.sge import VERSION
from koalapy_adapters.batch.slurm_states import NICEST
from koalapy_adapters.batch.text import native_lines, one_line, rounded_up
from koalapy_adapters.batch.torque_capacity import LISTED, check_answer
from koalapy_adapters.batch.torque_errors import REFUSALS
from koalapy_adapters.errors import ClusterError, RequestError, Result

NAME = "torque"

capacity_argvs = torque_capacity.capacity_argvs
parse_capacity = torque_capacity.parse_capacity
cache_seconds = torque_capacity.cache_seconds
why_stopped = pbs_launch.why_stopped

_MIB = 1024 * 1024

# Slurm's qsub has sbatch hand on all that is in our own commands' environment, where Torque begins with the login's;
# so there this drops it again. As slurm._CLEAN, for the same reasons.
_CLEAN = """\
if [ -n "${SLURM_JOB_ID-}" ]; then
    for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do
        case $name in
        PBS_* | SLURM* | CUDA_VISIBLE_* | GPU_DEVICE_* | ROCR_VISIBLE_* | ZE_AFFINITY_*) ;;
        HOME | LOGNAME | PATH | SHELL | TMPDIR | USER) ;;
        *) unset "$name" ;;
        esac
    done
fi
"""
# Slurm's qsub takes the number for one of --nice, where more is less; and its sbatch, which reads it as a directive in
# the script too, refuses a negative one.
_LOWEST = 'p=%d; command -v sbatch >/dev/null && p=%d; exec qsub -p "$p" "$@"' % (LOWEST_PRIORITY, NICEST)
_OUTPUT = "/dev/null"
_PLAIN_PATH = re.compile(r"[\w./+,:@%=-]+\Z")
_GONE = re.compile(r"unknown job id|invalid for state|already in exit state|job not found", re.IGNORECASE)


def describe_argv(cluster: BatchSettings) -> Argv:
    """The command that prints the version. Slurm's qstat knows neither --version nor -B, so its help identifies it."""
    return ["sh", "-c", "qstat --version 2>&1 || qstat --help", "qstat"]


def parse_describe(result: Result) -> Description:
    """The version of Torque, or "Slurm's" and the feature `slurm`.

    Raises ClusterError if this is another batch system, and another BatchError if the command failed or printed no
    version.
    """
    result = asked(result, "qstat")
    output = result.stdout + result.stderr
    if VERSION.match(output):
        raise ClusterError("batch_system_other", "This is Grid Engine.", "Write `batch: sge` in the grid file.", result)
    check(result, REFUSALS)
    match = re.search(r"^[Vv]ersion: (\S+)", output, re.MULTILINE)
    if match:
        return Description(match.group(1))
    if re.search(r"^pbs_version = ", output, re.MULTILINE):
        raise ClusterError(
            "batch_system_other", "This is OpenPBS or PBS Professional.", "Write `batch: pbs` in the grid file.", result
        )
    if "--man" in output:
        return Description("Slurm's", ["slurm"])
    raise unreadable(result, "did not print its version")


def script(job: BatchJob) -> str:
    """The batch script. `constraint` is a property of the nodes, and `gpus` the number on each node.

    Raises RequestError or ClusterError for a request that Torque cannot express.
    """
    everywhere(job, "Torque")
    directives = ["-S /bin/sh", "-m n", *_shape(job), *_options(job), *native_lines(job.native)]
    return whole_script(job, directives, _OUTPUT, _CLEAN)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The qsub command. Slurm's qsub hands its arguments to a shell, so the path must be plain.

    Raises ClusterError if the path contains a blank or a special character of the shell.
    """
    if not _PLAIN_PATH.match(path):
        raise ClusterError(
            "bad_directory",
            "Torque's qsub cannot be trusted with %s, for it has a blank or a sign of the shell." % path,
            "Choose another `shared` directory of the cluster in the grid file.",
        )
    submit = ["sh", "-c", _LOWEST, "qsub"] if job.lowest else ["qsub"]
    return [*submit, "-N", job.tag, *ALWAYS, "-o", _OUTPUT, path]


def parse_submit(result: Result) -> str:
    """The batch id, such as `56.server`, or `56` from Slurm's qsub, which also prints its errors to standard output.

    Raises BatchError if qsub failed or printed no id.
    """
    result = asked(result, "qsub") if result.argv[:1] == ["sh"] else result
    check(result, REFUSALS)
    found = submitted_id(result)
    if not found:
        raise unreadable(result, "printed no job id")
    return found


def status_argv(batch_ids: Sequence[str]) -> Argv:
    return [*LISTED, *batch_ids]


def parse_status(result: Result) -> Dict[str, JobStatus]:
    """The statuses by batch id of the jobs that the server still knows.

    Torque keeps ended jobs for keep_completed seconds, and Slurm for MinJobAge. Raises BatchError if the command failed
    or its answer cannot be read.
    """
    return pbs_jobs.by_id(pbs_jobs.jobs(check_answer(result), TORQUE))


def find_argv(cluster: BatchSettings, tag: str) -> Argv:
    return list(LISTED)


def parse_find(result: Result, tag: str) -> Optional[JobStatus]:
    return pbs_jobs.named(pbs_jobs.everybodys(check_answer(result), TORQUE), tag)


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> Optional[Argv]:
    """Return None: the accounting is a file that only root may read (tracejob)."""
    return None


def parse_history(result: Result, tag: str) -> Optional[JobStatus]:
    """Return None: this dialect has no command for the history."""
    return None


def cancel_argv(batch_ids: Sequence[str]) -> Argv:
    return ["qdel", *batch_ids]


def parse_cancel(result: Result) -> None:
    """Check each line of qdel's answer: one unknown job makes qdel fail, although it deletes the others.

    Slurm's qdel prints nothing about an unknown job. Raises BatchError if qdel failed for any other reason than jobs
    that are unknown, ended or ending.
    """
    output = [line for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    if result.exit_status == 0:
        return
    missing = result.exit_status in (None, 126, 127)
    if missing or not all(_GONE.search(line) for line in output):
        raise failure(result, REFUSALS)


def hold_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["qhold", "-h", "u", *batch_ids]  # Slurm's holds nothing unless it is given the kind of hold


def release_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["qrls", "-h", "u", *batch_ids]


def parse_hold(result: Result) -> None:
    check(result, (NOT_HELD, *REFUSALS))


def batch_id(environment: Mapping[str, str]) -> str:
    """Return the id of the job around this process. Inside one, where Slurm imitates Torque, it is a job of Slurm."""
    return pbs_launch.batch_id(environment) or slurm_launch.batch_id(environment)


def restarts(environment: Mapping[str, str]) -> int:
    return slurm_launch.restarts(environment) if _is_slurm(environment) else pbs_launch.restarts(environment)


def hosts(environment: Mapping[str, str], read: Callable[[str], str]) -> List[Host]:
    if _is_slurm(environment):
        return slurm_launch.hosts(environment, read)
    return pbs_launch.hosts(environment, read)


def launch(environment: Mapping[str, str], names: Sequence[str], agent: Argv) -> List[Launch]:
    if _is_slurm(environment):
        return slurm_launch.launch(environment, names, agent)
    return pbs_launch.launch(environment, names, agent)


def _shape(job: BatchJob) -> List[str]:
    """The directives for nodes and walltime: equally many processors on each node, and as few nodes as possible.

    Torque, its schedulers and Slurm each interpret a sum of different parts in their own way. 10 processors, 4 a node,
    are 3 nodes of 4.
    """
    if job.processors > 1 and not job.processors_per_node:
        raise ClusterError(
            "no_processors_per_node",
            "Torque gives several processors only as so many on each of so many nodes.",
            "Set `processors_per_node` of the cluster in the grid file.",
        )
    nodes = rounded_up(job.processors, job.processors_per_node or 1)
    shape = "nodes=%d:ppn=%d" % (nodes, rounded_up(job.processors, nodes))
    if job.gpus:
        shape += ":gpus=%d" % job.gpus
    if job.constraint:
        shape += ":" + one_line("constraint", job.constraint)
    return ["-l " + shlex.quote(shape), "-l walltime=" + clock(job.walltime_s)]


def _options(job: BatchJob) -> List[str]:
    for what, value in (("qos", job.qos), ("reservation", job.reservation)):
        if value:
            raise RequestError(
                "unsupported",
                "Torque has no option for `%s`: its scheduler decides on it." % what,
                "Write what the cluster's scheduler takes instead into `native`, such as `-W x=QOS:high`.",
            )
    options = [
        "%s %s" % (option, quoted(what, value))
        for what, option, value in (("queue", "-q", job.queue), ("account", "-A", job.account))
        if value
    ]
    if job.memory_per_processor:
        options.append("-l pmem=%dmb" % rounded_up(job.memory_per_processor, _MIB))
    if job.exclusive:
        options.append("-l naccesspolicy=singlejob")
    return options


def _is_slurm(environment: Mapping[str, str]) -> bool:
    """Return whether Slurm runs the job, in whose environment SLURM_JOB_NODELIST is always set.

    Slurm sets PBS_* only with its plugin spank_pbs, and never PBS_NODEFILE.
    """
    return "SLURM_JOB_NODELIST" in environment and "PBS_NODEFILE" not in environment
