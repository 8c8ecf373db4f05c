"""The dialect of Grid Engine, 8.1 and its relatives; the manual: qsub(1), qstat(1), qacct(1), accounting(5)."""

import re
import time
from typing import Dict, Generator, List, Optional, Sequence

from koalapy_adapters.batch import (
    sge_accounting,
    sge_capacity,
    sge_drmaa,
    sge_fingerprint,
    sge_jobs,
    sge_launch,
    sge_launchers,
)
from koalapy_adapters.batch.classify import NOT_HELD, check, failure, unreadable
from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings, Chosen, Description, JobSpan, JobStatus
from koalapy_adapters.batch.sge_errors import REFUSALS, UNREACHABLE
from koalapy_adapters.batch.text import exec_line, hosts_left_out, is_tag, native_lines, one_line, rounded_up
from koalapy_adapters.errors import ClusterError, RequestError, Result

NAME = "sge"

capacity_argvs = sge_capacity.capacity_argvs
parse_capacity = sge_capacity.parse_capacity
cache_seconds = sge_capacity.cache_seconds
queue_fingerprint_argv = sge_fingerprint.queue_fingerprint_argv
parse_queue_fingerprint = sge_fingerprint.parse_queue_fingerprint
batch_id = sge_launch.batch_id
restarts = sge_launch.restarts
hosts = sge_launch.hosts
launch = sge_launch.launch
drmaa = sge_drmaa

_MIB = 1024 * 1024
# The first two lines of `qstat -help`: the product, of which there are many, its version, and the usage.
VERSION = re.compile(r"[A-Z][\w/ ]*? +(\d\S*)[^\n]*\nusage: qstat\b", re.ASCII)
# Of qacct; the latter before the first job has ended, while there is no accounting file.
_NOT_ACCOUNTED = re.compile(r"job (name|id) \S+ not found|no jobs running since startup")
_LOWEST_PRIORITY = -1023  # qsub(1), -p


def describe_argv(cluster: BatchSettings) -> Argv:
    return ["qstat", "-help"]


def parse_describe(result: Result) -> Description:
    """The version in the first line, such as `SGE 8.1.9`.

    The qstat of another batch system does not know -help, or prints only its usage. Raises ClusterError if this is not
    Grid Engine, and another BatchError if the command failed or printed no version.
    """
    match = VERSION.match(result.stdout)
    if not match and re.search(r"(invalid|unknown) option|\Ausage:", result.stderr + result.stdout, re.IGNORECASE):
        raise _not_ours(result)
    check(result, UNREACHABLE)
    if not match:
        raise unreadable(result, "did not print its version")
    return Description(match.group(1))


def script(job: BatchJob) -> str:
    """The batch script. `account` is a project (-P), which decides on access and share; `constraint` is a resource
    (-l).

    The parallel environment's allocation rule decides how the slots lie on the nodes, so `processors_per_node` changes
    nothing here. Raises RequestError or ClusterError if Grid Engine has no option for a part of the request.
    """
    directives = _shape(job) + _options(job) + native_lines(job.native) + _overriding_options(job) + _identity(job)
    lines = ["#!/bin/sh"] + ["#$ " + directive for directive in directives]
    return "\n".join(lines) + "\n" + exec_line(job.command)


def launchers_environment(cluster: BatchSettings, job: BatchJob) -> Generator[Argv, Result, Optional[Chosen]]:
    return sge_launchers.choice(cluster, job, script)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The command that submits `path`; it overrides defaults of sge_request(5).

    The defaults could hide the script's directives (-b y), or let qsub wait until the job has ended (-sync y) or
    started (-now y).
    """
    return ["qsub", *sge_drmaa.OF_COMMANDS, path]


def parse_submit(result: Result) -> str:
    """The batch id that `qsub -terse` prints, below any warnings. Raises BatchError if qsub failed or printed no id."""
    check(result, REFUSALS)
    lines = result.stdout.split()
    if not lines or not lines[-1].isdigit():
        raise unreadable(result, "printed no job id")
    return lines[-1]


def status_argv(batch_ids: Sequence[str]) -> Argv:
    """The command that lists all jobs of the user, because `qstat -j` has a job's state only in the qmaster's own
    numbers.
    """
    return ["qstat", *sge_jobs.ALL, "-xml"]


def parse_status(result: Result) -> Dict[str, JobStatus]:
    """The statuses by batch id of all jobs that bear a tag, also of those not asked for. Raises BatchError if the
    command failed or its answer cannot be read.
    """
    check(result, UNREACHABLE)
    jobs = sge_jobs.jobs(sge_jobs.listing(result))
    return {job.batch_id: sge_jobs.status(job, result) for job in jobs if is_tag(job.name)}


def find_argv(cluster: BatchSettings, tag: str) -> Argv:
    return ["qstat", "-u", cluster.user, *sge_jobs.ALL, "-xml"]


def parse_find(result: Result, tag: str) -> Optional[JobStatus]:
    """The status of the listed job with this tag; None if there is none. Raises BatchError if the command failed or its
    answer cannot be read.

    XML has whole names, which the text format cuts to ten characters.
    """
    return sge_accounting.newest([status for status in parse_status(result).values() if status.name == tag])


def explain_argv(batch_ids: Sequence[str]) -> Argv:
    """The command that prints why jobs are in the error state, which a list of jobs does not show."""
    return ["qstat", "-j", ",".join(batch_ids), "-xml"]


def parse_explain(result: Result) -> Dict[str, str]:
    """The reasons by batch id of the jobs that have one. Raises BatchError if the command failed or its answer cannot
    be read.
    """
    check(result, UNREACHABLE)
    return sge_jobs.explanations(sge_jobs.document(result))


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> Optional[Argv]:
    """The search in the accounting by name, because ids begin again at 1 after 9999999 and tags do not."""
    return sge_accounting.qacct(cluster.user, tag)


def parse_history(result: Result, tag: str) -> Optional[JobStatus]:
    """The status of the job with this tag in the accounting; None if it is not there.

    A job is not there while it runs, and never if it was deleted before it ran. Raises BatchError if the command failed
    or its answer cannot be read.
    """
    result = sge_accounting.asked(result)
    if result.exit_status != 0 and _NOT_ACCOUNTED.search(result.stderr + result.stdout):
        return None
    check(result, UNREACHABLE)
    return sge_accounting.newest([status for status in sge_accounting.records(result) if status.name == tag])


def account_argvs(cluster: BatchSettings, batch_ids: Sequence[str], since_s: float) -> List[Argv]:
    """One search for all jobs of this store that began after `since_s`, in seconds since 1970.

    qacct takes only one id, but a pattern of names.
    """
    began = time.strftime("%Y%m%d%H%M.%S", time.localtime(since_s))
    return [[*sge_accounting.qacct(cluster.user, "k" + cluster.instance + "*"), "-b", began]]


def parse_account(result: Result) -> List[JobSpan]:
    result = sge_accounting.asked(result)
    if result.exit_status != 0 and _NOT_ACCOUNTED.search(result.stderr + result.stdout):
        return []
    check(result, UNREACHABLE)
    return list(sge_accounting.spans(result))


def cancel_argv(batch_ids: Sequence[str]) -> Argv:
    return ["qdel", *batch_ids]


def forget_argv(batch_ids: Sequence[str]) -> Argv:
    """The qdel command for jobs whose end no execd reports.

    ENABLE_FORCED_QDEL in sge_conf(5) decides whether users may do this.
    """
    return ["qdel", "-f", *batch_ids]


def parse_cancel(result: Result) -> None:
    """Check each line of qdel's answer: one unknown job makes qdel fail, although it deletes the others.

    Raises BatchError if qdel did not end in time, or a line reports anything but a deletion or an unknown job.
    """
    messages = [line for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    if result.exit_status is None or not all(_DELETED.search(line) for line in messages):
        raise failure(result, REFUSALS)


def hold_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["qhold", *batch_ids]


def release_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["qrls", *batch_ids]


def parse_hold(result: Result) -> None:
    check(result, (NOT_HELD, *UNREACHABLE))


def _not_ours(result: Result) -> ClusterError:
    return ClusterError(
        "batch_system_other",
        "This is not Grid Engine.",
        "Write in the grid file what it is: `batch: pbs` for OpenPBS and PBS Professional, `batch: torque` for Torque,"
        " `batch: slurm` where there is `sbatch`.",
        result,
    )


_DELETED = re.compile(
    r"has (registered|deleted|forced)|forced the deletion|already in deletion|(does|jobs do) not exist"
)


def _shape(job: BatchJob) -> List[str]:
    shape = ["-l h_rt=%d" % job.walltime_s]
    if job.parallel_environment:
        environment = _word("parallel environment", job.parallel_environment)
        shape.append("-pe %s %d" % (environment, job.processors))
    elif job.processors > 1:
        raise ClusterError(
            "no_parallel_environment",
            "Grid Engine gives more than one processor in a parallel environment only.",
            "Name one with control_slaves as `parallel_environment` of the cluster; `qconf -spl` lists them.",
        )
    return shape


def _options(job: BatchJob) -> List[str]:
    options = [
        "%s %s" % (option, _word(what, value))
        for what, option, value in (
            ("queue", "-q", job.queue),
            ("account", "-P", job.account),
            ("reservation", "-ar", job.reservation),
            ("constraint", "-l", job.constraint),
        )
        if value
    ]
    if job.memory_per_processor:
        options.append("-l h_vmem=%dM" % rounded_up(job.memory_per_processor, _MIB))
    if job.exclusive:
        options.append("-l exclusive=true")
    if job.qos:
        raise _unsupported("qos", "Leave `qos` out, or write what the cluster uses instead into `native`.")
    if job.gpus:
        raise _unsupported("gpus", "Name the cluster's resource for GPUs in `native`, such as `-l gpu=1`.")
    return options


def _overriding_options(job: BatchJob) -> List[str]:
    """The directives that follow those of the user, because the last -p counts.

    Hosts requested in `native` are a request for the same resource, which this one replaces.
    """
    options = ["-p %d" % _LOWEST_PRIORITY] if job.lowest else []
    return options + (["-l h=!(%s)" % "|".join(hosts_left_out(job))] if job.avoid else [])


def _unsupported(what: str, advice: str) -> RequestError:
    return RequestError("unsupported", "Grid Engine has no option for `%s`." % what, advice)


def _identity(job: BatchJob) -> List[str]:
    """The directives of every batch job of koalapy, after all those of the user: the last option counts.

    -V is never used, so the job gets the node's environment. -w e refuses a job that no queue can ever run. The colon
    shows that no host precedes the path.
    """
    return [
        "-N " + job.tag,
        "-S /bin/sh",
        "-r n",
        "-w e",
        '-wd "%s"' % _path(job.directory),
        "-j y",
        '-o ":%s"' % _path(job.output),
    ]


def _word(what: str, value: str) -> str:
    """The value as one word of a directive. Raises RequestError for what qsub drops, or ends the line at, even within
    quotes.
    """
    if set("\"'#\\") & set(value):
        raise RequestError(
            "bad_value",
            "Grid Engine cannot read %s %r in a batch script: it takes no quote, backslash or #." % (what, value),
            "Ask the administrators for another name of it.",
        )
    return '"%s"' % one_line(what, value) if re.search(r"\s", value) else value


def _path(path: str) -> str:
    """The path for use within quotes. Raises ClusterError if it contains a quote, a dollar sign or a #.

    Within quotes, qsub drops other quotes, replaces $HOME and the like, and ends the line at a #; it knows no escape.
    """
    if set("\"'$#") & set(path):
        raise ClusterError(
            "bad_directory",
            "Grid Engine cannot write to %s, for it has a quote, a dollar sign or a #." % path,
            "Choose another `shared` directory of the cluster in the grid file.",
        )
    return one_line("directory", path)
