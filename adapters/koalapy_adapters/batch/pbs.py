"""The dialect of OpenPBS and PBS Professional; the manual: qsub(1B), qstat(1B), pbs_resources(7B).

Torque has a dialect of its own, `torque`.
"""

import re
import shlex
from typing import Dict, List, Optional, Sequence

from koalapy_adapters.batch import pbs_capacity, pbs_fingerprint, pbs_jobs, pbs_launch
from koalapy_adapters.batch.classify import NOT_HELD, check, failure, unreadable
from koalapy_adapters.batch.pbs_errors import HOOKED, NOT_OURS, REFUSALS, REFUSED_BY_SITE, UNREACHABLE
from koalapy_adapters.batch.pbs_records import asked, records, word
from koalapy_adapters.batch.pbs_states import OPENPBS
from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings, Description, JobStatus
from koalapy_adapters.batch.text import exec_line, hosts_left_out, native_lines, one_line, rounded_up
from koalapy_adapters.errors import RequestError, Result

NAME = "pbs"

queue_fingerprint_argv = pbs_fingerprint.queue_fingerprint_argv
parse_queue_fingerprint = pbs_fingerprint.parse_queue_fingerprint
capacity_argvs = pbs_capacity.capacity_argvs
parse_capacity = pbs_capacity.parse_capacity
batch_id = pbs_launch.batch_id
restarts = pbs_launch.restarts
hosts = pbs_launch.hosts
launch = pbs_launch.launch
why_stopped = pbs_launch.why_stopped

_MIB = 1024 * 1024
LOWEST_PRIORITY = -1024  # qsub(1B), -p

# Every batch job is not rerunnable, and bears its tag. Its output is written by the job itself, since PBS would deliver
# it at the end only.
ALWAYS = ["-r", "n", "-j", "oe"]
# PBS copies nothing to /dev/null on the job's own node. To that of another host it tries scp and rcp
# several times, and keeps the job and its processors for 16 s or longer. (-R oe removes the output of a job that ended
# with 0, and of no other one.)
_OUTPUT = "localhost:/dev/null"

# Needed only without a batch id, after a submit with an unknown outcome. Without any id, qstat would list the cluster's
# whole history, which is too much.
_BY_TAG = 'ids=$(qselect -x -N "$1" -u "$2") || exit; [ -z "$ids" ] || exec qstat -x -f -F json $ids'

_GONE = re.compile(r"unknown job id|job has finished", re.IGNORECASE)
_ENDING = re.compile(r"unknown job id|job has finished|delete already in progress|invalid for state", re.IGNORECASE)
_NO_HISTORY = re.compile(r"not configured to maintain job history", re.IGNORECASE)


def describe_argv(cluster: BatchSettings) -> Argv:
    return ["qstat", "-B", "-f", "-F", "json"]


def parse_describe(result: Result) -> Description:
    """The version of PBS, and the feature `accounting` if the server keeps the history of jobs.

    Raises BatchError if the command failed or printed no version.
    """
    check(result, (NOT_OURS, *UNREACHABLE))
    servers = records(result, "Server")
    version = next((word(server, "pbs_version") for server in servers), "")
    if not version:
        raise unreadable(result, "did not print its version")
    kept = any(word(server, "job_history_enable") == "True" for server in servers)
    return Description(version, ["accounting"] if kept else [])


def script(job: BatchJob) -> str:
    """The batch script. `gpus` is the number on each node.

    `constraint` is what each chunk must have, such as `model=haswell`. A `reservation` is named by its queue, such as
    R17. Raises RequestError if PBS has no option for a part of the request.
    """
    everywhere(job, "PBS")
    directives = ["-S /bin/sh", "-m n", *_shape(job), *_options(job), *native_lines(job.native)]
    return whole_script(job, directives + (["-p %d" % LOWEST_PRIORITY] if job.lowest else []), _OUTPUT)


def whole_script(job: BatchJob, directives: Sequence[str], output: str, begin: str = "") -> str:
    """The batch script of the PBS family. Of two directives for the same option, the last one counts.

    PBS delivers the job's output to `output`. `begin` is shell code that runs before the script changes to the job's
    directory. PBS starts jobs in $HOME, and in
    the user's own shell if no directive names one. Raises RequestError if a value contains a control character.
    """
    promised = ["-N " + job.tag, "-r n", "-j oe", "-o " + output]
    lines = ["#!/bin/sh"] + ["#PBS " + directive for directive in [*directives, *promised]]
    directory = shlex.quote(one_line("directory", job.directory))
    moves = "cd %s || exit\nexec >>%s 2>&1\n" % (directory, shlex.quote(job.output))
    return "\n".join(lines) + "\n" + _WORDS + begin + moves + exec_line(job.command)


# The job's own output, into which PBS's daemon writes why it ends the job before it signals it to stop.
_WORDS = "%s=$(readlink /proc/$$/fd/1)\nexport %s\n" % (pbs_launch.WORDS, pbs_launch.WORDS)


def submit_argv(job: BatchJob, path: str) -> Argv:
    """The qsub command. Its options override directives.

    Without -f, qsub leaves a process behind that serves the next qsub. -C sets the prefix of directives, which the
    user's PBS_DPREFIX may have changed.
    """
    return ["qsub", "-f", "-C", "#PBS", "-N", job.tag, *ALWAYS, "-o", _OUTPUT, path]


def parse_submit(result: Result) -> str:
    """The batch id, such as `56.pbs-head`, below any messages of the cluster's hooks.

    With `-W block=true` in `native`, the exit status is that of the job itself. Raises BatchError if qsub failed or
    printed no id.
    """
    found = submitted_id(result)
    if result.exit_status == HOOKED:
        check(result, [REFUSED_BY_SITE._replace(words="")])
    if not found or result.exit_status is None or result.stderr.strip():
        check(result, REFUSALS)
    if not found:
        raise unreadable(result, "printed no job id")
    return found


def submitted_id(result: Result) -> str:
    """The id on the last line that qsub printed; "" if that line is no id."""
    last = (result.stdout.strip().splitlines() or [""])[-1].strip()
    return last if re.match(r"\d+(\.[\w.-]+)?\Z", last) else ""


def status_argv(batch_ids: Sequence[str]) -> Argv:
    """The qstat command. It has no -x, with which qstat lists nothing at all on a server that keeps no history."""
    return ["qstat", "-f", "-F", "json", *batch_ids]


def parse_status(result: Result) -> Dict[str, JobStatus]:
    """The statuses by batch id. If some of several jobs are unknown or finished, qstat prints the others and fails.

    Raises BatchError if the command failed or its answer cannot be read. Unknown and finished jobs are no failure.
    """
    return pbs_jobs.by_id(pbs_jobs.jobs(_listing(result), OPENPBS))


def find_argv(cluster: BatchSettings, tag: str) -> Argv:
    return ["qstat", "-f", "-F", "json"]


def parse_find(result: Result, tag: str) -> Optional[JobStatus]:
    return pbs_jobs.named(pbs_jobs.everybodys(_listing(result), OPENPBS), tag)


def history_argv(cluster: BatchSettings, tag: str, batch_id: str) -> Optional[Argv]:
    if batch_id:
        return ["qstat", "-x", "-f", "-F", "json", batch_id]
    return ["sh", "-c", _BY_TAG, "qselect", tag, cluster.user]


def parse_history(result: Result, tag: str) -> Optional[JobStatus]:
    """The status of the job with this tag in the server's history; None if it is not there.

    By default a server keeps no history, and qstat then exits with 0. The result is None there too. Raises BatchError
    if the command failed or its answer cannot be read.
    """
    if _NO_HISTORY.search(result.stderr):
        return None
    by_tag = result.argv[:1] == ["sh"]
    if by_tag:
        result = asked(result, "qstat")
        check(result, UNREACHABLE)
    if by_tag and not result.stdout.strip():
        return None
    return parse_find(result, tag)


def cancel_argv(batch_ids: Sequence[str]) -> Argv:
    return ["qdel", *batch_ids]


def forget_argv(batch_ids: Sequence[str]) -> Argv:
    """The qdel command for jobs whose node does not answer. PBS drops such a job without knowing whether any of its
    processes still run.
    """
    return ["qdel", "-W", "force", *batch_ids]


def parse_cancel(result: Result) -> None:
    """Check each line of qdel's answer: one unknown job makes qdel fail, although it deletes the others.

    Raises BatchError if qdel failed for any other reason than unknown, ended or ending jobs.
    """
    messages = [line for line in (result.stdout + "\n" + result.stderr).splitlines() if line.strip()]
    if result.exit_status == 0:
        return
    if result.exit_status is None or not messages or not all(_ENDING.search(line) for line in messages):
        raise failure(result, UNREACHABLE)


def hold_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["qhold", *batch_ids]


def release_argv(batch_ids: Sequence[str]) -> Optional[Argv]:
    return ["qrls", *batch_ids]


def parse_hold(result: Result) -> None:
    check(result, (NOT_HELD, *UNREACHABLE))


def _listing(result: Result) -> Result:
    """The result of a qstat that may have failed only because of unknown or finished jobs. Only then may it have
    printed nothing.
    """
    messages = [line for line in result.stderr.splitlines() if line.strip()]
    if result.exit_status is None or not messages or not all(_GONE.search(line) for line in messages):
        check(result, UNREACHABLE)
    if result.stdout.strip():
        return result
    if result.exit_status == 0:
        raise unreadable(result, "printed nothing")
    return result._replace(stdout="{}")


def _shape(job: BatchJob) -> List[str]:
    """The directives for chunks, their placement and the walltime: one chunk a node, or one chunk a processor on any
    nodes.

    With mpiprocs, PBS_NODEFILE names a node once for each of its processors.
    """
    return [
        "-l " + shlex.quote("select=" + "+".join(_chunk(job, count, size) for count, size in _chunks(job))),
        "-l place=" + ("scatter" if job.processors_per_node else "free") + (":exclhost" if job.exclusive else ""),
        "-l walltime=" + clock(job.walltime_s),
    ]


def _chunks(job: BatchJob) -> List[List[int]]:
    """Pairs [number of chunks, processors of each]: 9 processors, 4 a node, give [2, 4] and [1, 1]."""
    if not job.processors_per_node:
        return [[job.processors, 1]]
    full, rest = divmod(job.processors, job.processors_per_node)
    return [[count, size] for count, size in ([full, job.processors_per_node], [int(rest > 0), rest]) if count]


def _chunk(job: BatchJob, count: int, size: int) -> str:
    chunk = "%d:ncpus=%d:mpiprocs=%d" % (count, size, size)
    if job.memory_per_processor:
        chunk += ":mem=%dmb" % rounded_up(job.memory_per_processor * size, _MIB)
    if job.gpus:
        if not job.processors_per_node and job.processors > 1:
            raise RequestError(
                "unsupported",
                "PBS cannot give GPUs on each node without knowing how many processors a node is to give.",
                "Set `processors_per_node` in the job or grid file.",
            )
        chunk += ":ngpus=%d" % job.gpus
    return chunk + (":" + one_line("constraint", job.constraint) if job.constraint else "")


def _options(job: BatchJob) -> List[str]:
    if job.qos:
        raise RequestError(
            "unsupported",
            "PBS has no option for `qos`.",
            "Write what the cluster uses instead into `native`, or leave it out.",
        )
    options = [
        ("reservation" if job.reservation else "queue", "-q", job.reservation or job.queue),
        ("account", "-A", job.account),
    ]
    return ["%s %s" % (option, quoted(what, value)) for what, option, value in options if value]


def everywhere(job: BatchJob, family: str) -> None:
    """Check that the job has no hosts to avoid. Raises RequestError if it has.

    A job of this family can name what its nodes must have, but not what they must not have.
    """
    if job.avoid:
        raise RequestError(
            "unsupported",
            "%s has no option to leave out %s." % (family, " and ".join(hosts_left_out(job))),
            "Have the node taken offline (`pbsnodes -o`), or name in `constraint` what only other nodes have.",
        )


def quoted(what: str, value: str) -> str:
    """The value as one word of a directive, which qsub divides as a shell does. Raises RequestError: see one_line."""
    return shlex.quote(one_line(what, value))


def clock(seconds: int) -> str:
    """A duration as HH:MM:SS, which all of the family read alike."""
    return "%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
