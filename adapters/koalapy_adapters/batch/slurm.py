"""The dialect of Slurm, 20.11 and later; the manual: sbatch(1), squeue(1), sinfo(1), sacct(1)."""

import re
from typing import Dict, List, Optional, Sequence

from koalapy_adapters.batch import slurm_capacity, slurm_fingerprint, slurm_jobs, slurm_launch
from koalapy_adapters.batch.classify import NOT_HELD, check, unreadable
from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings, Description, JobSpan, JobStatus
from koalapy_adapters.batch.slurm_errors import REFUSALS, UNREACHABLE
from koalapy_adapters.batch.slurm_states import NICEST
from koalapy_adapters.batch.text import exec_line, hosts_left_out, native_lines, one_line, rounded_up
from koalapy_adapters.errors import ClusterError, RequestError, Result

NAME = "slurm"

capacity_argvs = slurm_capacity.capacity_argvs
parse_capacity = slurm_capacity.parse_capacity
cache_seconds = slurm_capacity.cache_seconds
queue_fingerprint_argv = slurm_fingerprint.queue_fingerprint_argv
parse_queue_fingerprint = slurm_fingerprint.parse_queue_fingerprint
JOB_LIST_QUERY = slurm_capacity.JOB_LIST_QUERY
batch_id = slurm_launch.batch_id
restarts = slurm_launch.restarts
hosts = slurm_launch.hosts
launch = slurm_launch.launch
surrounding_argv = slurm_launch.surrounding_argv
parse_surrounding = slurm_launch.parse_surrounding

_MIB = 1024 * 1024

# Some clusters do not install it, and then there is no history: the same as of a job it does not know.
_SACCT = ["sh", "-c", 'command -v sacct >/dev/null || exit 0; exec sacct "$@"', "sacct"]

_CUT_OR_JOINED = re.compile(r"[\s#'\"\\]")  # what sbatch would end a value at, or drop from it
_EXCLUDES = re.compile(r"(?:-x\s*|--exclude(?:=|\s+))(\S+)\Z")

# Every batch job of koalapy has these, after all that a user may have written: the last of two directives counts.
_ALWAYS = ["--no-requeue", "--open-mode=append", "--export=ALL"]

# Any other --export than ALL has Slurm run the user's login shell on the node first (up to 22.05 NIL too), which takes
# a quarter of a second at best, and longer than its time-out at worst. So all is passed, and this drops it again but
# for what Slurm sets itself: not even the LC_ALL=C of our own commands is to reach a program.
_CLEAN = """\
for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do
    case $name in
    SLURM* | CUDA_VISIBLE_* | GPU_DEVICE_* | ROCR_VISIBLE_* | ZE_AFFINITY_*) ;;
    HOME | LOGNAME | PATH | SHELL | TMPDIR | USER) ;;
    *) unset "$name" ;;
    esac
done
"""


def describe_argv(cluster: BatchSettings) -> Argv:
    return ["scontrol", "show", "config"]


def parse_describe(result: Result) -> Description:
    """The version and features of Slurm.

    Features: `accounting` if a database keeps the history of jobs; `memory` if memory is allocated; `others_hidden` if
    others' jobs are not shown, so that nobody knows how many wait.

    Raises ClusterError before Slurm 20.11, and another BatchError if the command failed or printed no version.
    """
    check(result, UNREACHABLE)
    settings = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", result.stdout, re.MULTILINE))
    if "SLURM_VERSION" not in settings:
        raise unreadable(result, "did not print its version")
    _new_enough(settings["SLURM_VERSION"])
    features = []
    if settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        features.append("accounting")
    if "MEMORY" in settings.get("SelectTypeParameters", "").upper():
        features.append("memory")
    if slurm_capacity.hidden(result):
        features.append("others_hidden")
    return Description(settings["SLURM_VERSION"], features)


def script(job: BatchJob) -> str:
    """The batch script. `gpus` is the number on each node (--gres).

    Raises RequestError if a value contains a control character, or `native` names another cluster, whose jobs this
    cluster's commands do not show.
    """
    _check_no_other_cluster(job.native)
    directives = _shape(job) + _options(job) + native_lines(job.native) + _overriding_options(job) + _identity(job)
    lines = ["#!/bin/sh"] + ["#SBATCH " + directive for directive in directives]
    return "\n".join(lines) + "\n" + _CLEAN + exec_line(job.command)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The sbatch command. Variables such as SBATCH_REQUEUE, which a cluster's own sbatch may set, override directives,
    but not these options.
    """
    return ["sbatch", "--parsable", "--job-name=" + job.tag, *_ALWAYS, path]


def parse_submit(result: Result) -> str:
    """The batch id. `sbatch --parsable` prints ID, or ID;CLUSTER; a cluster's own sbatch may not pass the option on.

    Raises BatchError if sbatch failed or printed no id.
    """
    check(result, REFUSALS)
    match = re.match(
        r"(?:Submitted batch job )?(\d+)(;\S+)?$",
        result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "",
    )
    if not match:
        raise unreadable(result, "printed no job id")
    return match.group(1)


def status_argv(batch_ids: Sequence[str]) -> Argv:
    return ["squeue", "--local", "-h", "-a", "-t", "all", "-j", ",".join(batch_ids), "-O", slurm_jobs.SQUEUE_FORMAT]


def parse_status(result: Result) -> Dict[str, JobStatus]:
    """The statuses by batch id. Ended jobs are listed for MinJobAge.

    Asked about one job that it has forgotten, squeue fails; asked about two, it omits them. Raises BatchError if the
    command failed or its answer cannot be read.
    """
    if result.exit_status != 0 and "invalid job id" in result.stderr.lower():
        return {}
    check(result, UNREACHABLE)
    return slurm_jobs.by_id(slurm_jobs.status(job, result) for job in slurm_jobs.jobs(result))


def find_argv(cluster: BatchSettings, tag: str) -> Argv:
    return ["squeue", "--local", "-h", "-a", "-t", "all", "-u", cluster.user, "-n", tag, "-O", slurm_jobs.SQUEUE_FORMAT]


def parse_find(result: Result, tag: str) -> Optional[JobStatus]:
    check(result, UNREACHABLE)
    jobs = [job for job in slurm_jobs.jobs(result) if job.name == tag]
    return slurm_jobs.newest(slurm_jobs.status(job, result) for job in jobs)


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> Optional[Argv]:
    """The query of the accounting database. Find and status show what the controller still remembers of ended jobs."""
    fields = "--format=" + slurm_jobs.SACCT_FORMAT
    return [*_SACCT, "-n", "-X", "-P", "--user=" + cluster.user, "--name=" + tag, "--starttime=now-30days", fields]


def parse_history(result: Result, tag: str) -> Optional[JobStatus]:
    """The status of the job with this tag in the accounting; None if it is not there.

    The result is also None without a database or sacct. Raises BatchError if the command failed or its answer cannot be
    read.
    """
    result = result._replace(argv=result.argv[3:])
    if "accounting storage is disabled" in result.stderr:
        return None
    check(result, UNREACHABLE)
    return slurm_jobs.newest(job for job in slurm_jobs.accounted_jobs(result) if job.name == tag)


def account_argvs(cluster: BatchSettings, batch_ids: Sequence[str], since_s: float) -> List[Argv]:
    """The queries for ended jobs: the controller knows a job for MinJobAge after its end, the database for longer."""
    ids, seconds = ",".join(batch_ids), ["env", "SLURM_TIME_FORMAT=%s"]
    squeue = ["squeue", "--local", "-h", "-a", "-t", "all", "-j", ids, "-O", slurm_jobs.SPANS_FORMAT]
    sacct = [*_SACCT, "-n", "-X", "-P", "-j", ids, "--format=" + slurm_jobs.SACCT_SPANS_FORMAT]
    return [[*seconds, *squeue], [*seconds, *sacct]]


def parse_account(result: Result) -> List[JobSpan]:
    if result.exit_status != 0 and re.search(r"invalid job id|accounting storage is disabled", result.stderr, re.I):
        return []
    check(result, UNREACHABLE)
    return list(slurm_jobs.spans(result))


def cancel_argv(batch_ids: Sequence[str]) -> Argv:
    return ["scancel", *batch_ids]


def parse_cancel(result: Result) -> None:
    """Check the answer of scancel. It prints nothing about unknown and ended jobs, on which some versions fail.

    Raises BatchError if it failed for any other reason.
    """
    if not re.search(r"invalid job id|already completing or completed", result.stderr, re.IGNORECASE):
        check(result, UNREACHABLE)


def hold_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["scontrol", "hold", ",".join(batch_ids)]


def release_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["scontrol", "release", ",".join(batch_ids)]


def parse_hold(result: Result) -> None:
    check(result, (NOT_HELD, *UNREACHABLE))


def _new_enough(version: str) -> None:
    """Check the version. Raises ClusterError before 20.11, whose srun was the first to know --overlap."""
    if [int(number) for number in re.findall(r"\d+", version)[:2]] < [20, 11]:
        raise ClusterError(
            "batch_system_too_old",
            "This is Slurm %s; koalapy needs 20.11 or later." % version,
            "Use another cluster, or ask the administrators when it brings its Slurm up to date.",
        )


def _shape(job: BatchJob) -> List[str]:
    """The options for tasks, nodes and walltime: one task a processor, so that Slurm itself spreads the tasks.

    One processor a task is the default; --cpus-per-task would also hold for every srun of the job. Slurm allocates
    --ntasks-per-node processors on every node, also on the last one: 9 processors, 4 a node, as 3 on each of 3 nodes
    waste none.
    """
    shape = ["--ntasks=%d" % job.processors]
    if job.processors_per_node:
        nodes = rounded_up(job.processors, job.processors_per_node)
        shape += ["--nodes=%d" % nodes, "--ntasks-per-node=%d" % rounded_up(job.processors, nodes)]
    return [*shape, "--time=%d" % rounded_up(job.walltime_s, 60)]


def _options(job: BatchJob) -> List[str]:
    options = [
        "--%s=%s" % (option, _quoted(what, value) if _CUT_OR_JOINED.search(value) else one_line(what, value))
        for what, option, value in (
            ("queue", "partition", job.queue),
            ("account", "account", job.account),
            ("qos", "qos", job.qos),
            ("reservation", "reservation", job.reservation),
            ("constraint", "constraint", job.constraint),
        )
        if value
    ]
    if job.memory_per_processor:
        options.append("--mem-per-cpu=%dM" % rounded_up(job.memory_per_processor, _MIB))
    if job.gpus:
        options.append("--gres=gpu:%d" % job.gpus)
    if job.exclusive:
        options.append("--exclusive")
    return options


def _overriding_options(job: BatchJob) -> List[str]:
    """The options that follow those of the user. sbatch takes only the last --exclude, so this one repeats the user's
    hosts.
    """
    options = ["--nice=%d" % NICEST] if job.lowest else []
    if job.avoid:
        found = [_EXCLUDES.match(option.strip()) for option in job.native]
        options.append("--exclude=" + ",".join([match.group(1) for match in found if match] + hosts_left_out(job)))
    return options


def _check_no_other_cluster(native: Sequence[str]) -> None:
    """Check that no option names another cluster. Raises RequestError if one does.

    sbatch accepts any beginning of an option that no other option has: --cl, --clusters=a, -Ma.
    """
    for option in native:
        if re.match(r"-M|--cl(u(s(t(e(r(s)?)?)?)?)?)?(=|\s|$)", option.strip()):
            raise RequestError(
                "other_cluster",
                "The option %r sends the job to another cluster of a federation." % option,
                "Take it out of `native`; a cluster of its own in the grid file, with the same `connect` or its own"
                " head node, is where koalapy can follow a job.",
            )


def _identity(job: BatchJob) -> List[str]:
    """The options that every batch job of koalapy has.

    sbatch expands %j and the like in the name of the output file, but not in that of the directory.
    """
    return [
        "--job-name=" + job.tag,
        *_ALWAYS,
        "--chdir=" + _quoted("directory", job.directory),
        "--output=" + _quoted("directory", job.output).replace("%", "%%"),
    ]


def _quoted(what: str, value: str) -> str:
    """The value in quotes, because sbatch reads a directive as a shell reads its words, comments included."""
    return '"%s"' % one_line(what, value).replace("\\", "\\\\").replace('"', '\\"')
