"""Grid Engine, 8.1 and its kin, by its own commands; the manual: qsub(1), qstat(1), qacct(1), accounting(5)."""

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
from koalapy_adapters.batch.protocol import Argv, BatchJob, Chosen, ClusterSettings, Description, JobSpan, JobStatus
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
VERSION = re.compile(r"(?:GE |SGE |OGE |UGE |OGS[/ ]GE |AGE )\s*(\S+)")
_LOWEST_PRIORITY = -1023  # qsub(1), -p


def describe_argv(cluster: ClusterSettings) -> Argv:
    return ["qstat", "-help"]


def parse_describe(result: Result) -> Description:
    """The first line, such as `SGE 8.1.9`. Others who have a qstat know no -help, or tell its usage alone."""
    match = VERSION.match(result.stdout)
    if not match and re.search(r"(invalid|unknown) option|\Ausage:", result.stderr + result.stdout, re.IGNORECASE):
        raise _not_ours(result)
    check(result, UNREACHABLE)
    if not match:
        raise unreadable(result, "did not say its version")
    return Description(match.group(1))


def script(job: BatchJob) -> str:
    """`account` is a project (-P), since that is what decides on access and share; `constraint` is a resource (-l).

    How the slots lie on the nodes is decided by the parallel environment's allocation rule, so `processors_per_node`
    changes nothing here. Raises RequestError or ClusterError for what Grid Engine has no words for.
    """
    directives = _shape(job) + _wishes(job) + native_lines(job.native) + _manners(job) + _identity(job)
    lines = ["#!/bin/sh"] + ["#$ " + directive for directive in directives]
    return "\n".join(lines) + "\n" + exec_line(job.command)


def launchers_environment(cluster: ClusterSettings, job: BatchJob) -> Generator[Argv, Result, Optional[Chosen]]:
    return sge_launchers.choice(cluster, job, script)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The command that submits `path`; it overrides defaults of sge_request(5).

    Those would hide the script's directives (-b y), or have qsub wait until the job has ended (-sync y) or started
    (-now y).
    """
    return ["qsub", *sge_drmaa.OF_COMMANDS, path]


def parse_submit(result: Result) -> str:
    """`qsub -terse` prints the id, below warnings if there are any."""
    check(result, REFUSALS)
    lines = result.stdout.split()
    if not lines or not lines[-1].isdigit():
        raise unreadable(result, "printed no job id")
    return lines[-1]


def status_argv(batch_ids: Sequence[str]) -> Argv:
    """All jobs of the user, since `qstat -j` tells a job's state in the qmaster's own numbers only."""
    return ["qstat", *sge_jobs.ALL, "-xml"]


def parse_status(result: Result) -> Dict[str, JobStatus]:
    """Of every job that bears a tag, asked for or not."""
    check(result, UNREACHABLE)
    jobs = sge_jobs.jobs(sge_jobs.listing(result))
    return {job.batch_id: sge_jobs.status(job, result) for job in jobs if is_tag(job.name)}


def find_argv(cluster: ClusterSettings, tag: str) -> Argv:
    return ["qstat", "-u", cluster.user, *sge_jobs.ALL, "-xml"]


def parse_find(result: Result, tag: str) -> Optional[JobStatus]:
    """XML has the names whole; the text format cuts them to ten characters."""
    return sge_accounting.newest([status for status in parse_status(result).values() if status.name == tag])


def explain_argv(batch_ids: Sequence[str]) -> Argv:
    """Why jobs are in the error state, which a list of jobs does not say."""
    return ["qstat", "-j", ",".join(batch_ids), "-xml"]


def parse_explain(result: Result) -> Dict[str, str]:
    """The reason, by batch id, of those that have one."""
    check(result, UNREACHABLE)
    return sge_jobs.explanations(sge_jobs.document(result))


def history_argv(cluster: ClusterSettings, tag: str, batch_id: str) -> Optional[Argv]:
    """By name, because ids begin again at 1 after 9999999 and tags do not."""
    return sge_accounting.qacct(cluster.user, tag)


def parse_history(result: Result, tag: str) -> Optional[JobStatus]:
    """None while the job runs, and for ever if it was deleted before it ran."""
    result = sge_accounting.asked(result)
    if result.exit_status != 0 and re.search(r"job (name|id) \S+ not found", result.stderr + result.stdout):
        return None
    check(result, UNREACHABLE)
    return sge_accounting.newest([status for status in sge_accounting.records(result) if status.name == tag])


def account_argvs(cluster: ClusterSettings, batch_ids: Sequence[str], since_s: float) -> List[Argv]:
    """All jobs of this store that began since then, in one search: qacct takes one id, but a pattern of names."""
    began = time.strftime("%Y%m%d%H%M.%S", time.localtime(since_s))
    return [[*sge_accounting.qacct(cluster.user, "k" + cluster.instance + "*"), "-b", began]]


def parse_account(result: Result) -> List[JobSpan]:
    result = sge_accounting.asked(result)
    if result.exit_status != 0 and re.search(r"job (name|id) \S+ not found", result.stderr + result.stdout):
        return []
    check(result, UNREACHABLE)
    return list(sge_accounting.spans(result))


def cancel_argv(batch_ids: Sequence[str]) -> Argv:
    return ["qdel", *batch_ids]


def forget_argv(batch_ids: Sequence[str]) -> Argv:
    """For jobs of whose end no execd tells. sge_conf(5), ENABLE_FORCED_QDEL: whether the cluster lets users do that."""
    return ["qdel", "-f", *batch_ids]


def parse_cancel(result: Result) -> None:
    """One unknown job makes qdel fail, though it deletes the others; so each line is judged."""
    said = [line for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    if result.exit_status is None or not all(_DELETED.search(line) for line in said):
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
        environment = one_line("parallel environment", job.parallel_environment)
        shape.append("-pe %s %d" % (environment, job.processors))
    elif job.processors > 1:
        raise ClusterError(
            "no_parallel_environment",
            "Grid Engine gives more than one processor in a parallel environment only.",
            "Name one with control_slaves as `parallel_environment` of the cluster; `qconf -spl` lists them.",
        )
    return shape


def _wishes(job: BatchJob) -> List[str]:
    wishes = [
        "%s %s" % (option, one_line(what, value))
        for what, option, value in (
            ("queue", "-q", job.queue),
            ("account", "-P", job.account),
            ("reservation", "-ar", job.reservation),
            ("constraint", "-l", job.constraint),
        )
        if value
    ]
    if job.memory_per_processor:
        wishes.append("-l h_vmem=%dM" % rounded_up(job.memory_per_processor, _MIB))
    if job.exclusive:
        wishes.append("-l exclusive=true")
    if job.qos:
        raise _wordless("qos", "Leave `qos` out, or say what the cluster uses instead in `native`.")
    if job.gpus:
        raise _wordless("gpus", "Say what the cluster calls its GPUs in `native`, such as `-l gpu=1`.")
    return wishes


def _manners(job: BatchJob) -> List[str]:
    """After what the user wrote, for the last -p counts. Hosts that are asked for in `native` are a request of the same
    resource, which this one replaces.
    """
    manners = ["-p %d" % _LOWEST_PRIORITY] if job.lowest else []
    return manners + (["-l h=!(%s)" % "|".join(hosts_left_out(job))] if job.avoid else [])


def _wordless(what: str, advice: str) -> RequestError:
    return RequestError("unsupported", "Grid Engine has no option for `%s`." % what, advice)


def _identity(job: BatchJob) -> List[str]:
    """What DESIGN promises of every batch job, after all that a user may have written: the last option counts.

    Never -V: the job gets the node's environment. -w e refuses what no queue can ever run. The colon says that no host
    is named before the path.
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


def _path(path: str) -> str:
    """Within quotes qsub drops other quotes, and it replaces $HOME and the like; it knows no escape."""
    if set("\"'$") & set(path):
        raise ClusterError(
            "bad_directory",
            "Grid Engine cannot write to %s, for it has a quote or a dollar sign." % path,
            "Choose another `shared` directory of the cluster in the grid file.",
        )
    return one_line("directory", path)
