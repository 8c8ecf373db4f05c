"""Slurm's jobs as squeue and sacct list them, read into statuses."""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional

from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.batch.protocol import ENDED, EXITED, HELD, KILLED, NOT_STARTED, QUEUED, JobSpan, JobStatus
from koalapy_adapters.batch.slurm_states import ENDINGS, STATES, holds, stuck
from koalapy_adapters.errors import Result

# A stable text, not --json: squeue --json exits 0 when the controller is down, ignores -j, lists ended jobs too and is
# forty times as long. The name comes last, since anybody may put a line break or a bar into it, and is cut to one more
# than a tag has, too short for a line that could be taken for a job.
_STATUS = "JobID:|,State:|,UserName:|,Partition:|,NumCPUs:|,exit_code:|,RestartCnt:|,Reason:|"
_SHAPE = "JobArrayID:|,NumNodes:|,OverSubscribe:|,ReqNodes:|,Feature:6|"  # features may have bars, so their beginning
_NAME = "Name:.16"
SQUEUE_FORMAT = "%s,%s" % (_STATUS, _NAME)
SHAPES_FORMAT = "%s,%s,%s" % (_STATUS, _SHAPE, _NAME)
SPANS_FORMAT = "JobID:|,State:|,NumCPUs:|,StartTime:|,EndTime:|,Name:.16"
SACCT_SPANS_FORMAT = "JobIDRaw,State,AllocCPUS,Start,End,JobName"
SACCT_FORMAT = "JobIDRaw,JobName,State,ExitCode"
_OF_STATUS = r"(\d+)\|([A-Z_]+)\|([^|]+)\|([^|]*)\|([\d.]+[KMG]?)\|(\d+(?::\d+)?)\|(\d+)\|([^|]*)\|"
_OF_SHAPE = r"(?:([^|]*)\|([\d.]+[KMG]?)[^|]*\|([A-Z:]*)\|([^|]*)\|(.{6})\|)"
_JOB = re.compile(_OF_STATUS + r"()()()()()(.*)\Z")
_SHAPED = re.compile(_OF_STATUS + _OF_SHAPE + r"?(.*)\Z")
# squeue prints 2048 as 2K.
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NOTHING = "(null)"

# A larger "signal" is Slurm's own, such as the 125 of a job that ran out of memory.
_LAST_SIGNAL = 64
# slurmd's code if it could not open the output file or start the script: no such signal exists.
_UNABLE = 53


class Job(NamedTuple):
    """A line of squeue. `partitions` are those in which a pending job may start.

    `array` is `12_[1-9:2%3]` for the waiting tasks of an array, else the job itself. `picky`: the job asks for certain
    nodes, by name or feature.
    """

    batch_id: str
    state: str
    user: str
    partitions: List[str]
    processors: int
    exit_code: str
    restarts: int
    reason: str
    name: str
    array: str
    nodes: int
    alone: bool
    picky: bool


def jobs(result: Result, shaped: bool = False) -> Iterator[Job]:
    """The jobs of a squeue in SQUEUE_FORMAT or, if `shaped`, in SHAPES_FORMAT.

    A line that is no job is the rest of a name with a line break, and has to follow a job. Raises UnreadableError if
    the answer begins with such a line, or ends within a line.
    """
    form = _SHAPED if shaped else _JOB
    lines = result.stdout.splitlines()
    if lines and not form.match(lines[0]):
        raise unreadable(result, "printed a line that is not a job (%.100r)" % lines[0])
    check_end(result)
    for line in lines:
        match = form.match(line)
        if match:
            yield _job(*(group or "" for group in match.groups()))


def status(job: Job, result: Result) -> JobStatus:
    """The job as a JobStatus. Raises UnreadableError for a state that Slurm's manual does not have."""
    return job_status(job.batch_id, job.name, job.state, job.reason, job.exit_code, job.restarts, result)


def waiting_tasks(job: Job, running: int) -> int:
    """The number of waiting tasks of the array that its own limit lets start while `running` of them run.

    It is 1 for a job that is no array. squeue cuts off long lists of tasks, so there may be more.
    """
    match = re.match(r"\d+_\[([^\]%]*)(?:\]?%(\d+))?", job.array)
    if not match:
        return 1
    found = sum(_tasks(part) for part in match.group(1).split(","))
    return min(found, max(0, int(match.group(2)) - running)) if match.group(2) else found


def array_of(job: Job) -> str:
    """The id that all tasks of one array have in common."""
    return job.array.partition("_")[0]


def accounted_jobs(result: Result) -> Iterator[JobStatus]:
    """The jobs of a `sacct -n -X -P` in SACCT_FORMAT, whose states may read `CANCELLED by 1000`.

    Raises UnreadableError if a line is not a job, or its state is not known.
    """
    for line in result.stdout.splitlines():
        fields = line.split("|")
        if len(fields) != 4:
            raise unreadable(result, "printed a line that is not a job")
        number, name, state, exit_code = fields
        yield job_status(number, name, (state.split() or [""])[0], "", exit_code, 0, result)
    check_end(result)


def spans(result: Result) -> Iterator[JobSpan]:
    """The jobs that ran and ended, of a squeue in SPANS_FORMAT or a sacct in SACCT_SPANS_FORMAT, with
    SLURM_TIME_FORMAT=%s.

    A name with a line break makes lines that are no jobs, as in `jobs`. Raises UnreadableError if the answer ends
    within a line.
    """
    check_end(result)
    for line in result.stdout.splitlines():
        match = re.match(r"(\d+)\|([A-Z_]+)[^|]*\|([\d.]+[KMG]?)\|(\d+)\|(\d+)\|(.*)\Z", line)
        if match and STATES.get(match.group(2)) == ENDED:
            number, _, processors, began, ended, name = match.groups()
            yield JobSpan(number, name.strip(), int(began), int(ended), _number(processors))


def job_status(
    batch_id: str, name: str, word: str, reason: str, exit_code: str, restarts: int, result: Result
) -> JobStatus:
    """A JobStatus from Slurm's own words. `exit_code` is CODE:SIGNAL, or in squeue the number that wait(2) gives.

    Raises UnreadableError for a state that Slurm's manual does not have.
    """
    if word not in STATES:
        raise unreadable(result, "has job %s in a state named %r" % (batch_id, word))
    state = STATES[word]
    reason = "" if reason == "None" else reason
    if state == ENDED:
        # A job that was cancelled while it waited still bears the reason why it waited.
        cause = reason if reason and word != "CANCELLED" else word
        return _ended(JobStatus(batch_id, name, ENDED, cause, restarts=restarts), word, exit_code)
    if state == QUEUED and holds(reason):
        state = HELD
    return JobStatus(
        batch_id, name, state, reason, stuck(reason, word) if state in (QUEUED, HELD) else "", restarts=restarts
    )


def _job(*fields: str) -> Job:
    number, state, user, partitions, processors, code, restarts, reason, *shape, name = fields
    array, nodes, shared, named, feature = shape
    return Job(
        batch_id=number,
        state=state,
        user=user,
        partitions=partitions.split(","),
        processors=_number(processors),
        exit_code=code,
        restarts=int(restarts),
        reason=reason,
        name=name.strip(),
        array=array or number,
        nodes=_number(nodes),
        alone=shared == "NO",
        picky=named not in ("", _NOTHING) or feature.strip() not in ("", _NOTHING),
    )


def _tasks(part: str) -> int:
    """The number of tasks in `7`, `1-9` or `0-20:4`."""
    match = re.match(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
    if not match:
        return 0
    first, last, step = (int(group or 0) for group in match.groups())
    return 1 + max(0, last - first) // max(1, step)


def _number(text: str) -> int:
    """The number of `1536`, `2K` or `1.50K`; 1 for any other text, as for a job whose nodes are not counted yet."""
    match = re.match(r"([\d.]+)([KMG]?)\Z", text)
    return int(float(match.group(1)) * _UNITS[match.group(2)]) if match else 1


def _ended(status: JobStatus, word: str, exit_code: str) -> JobStatus:
    code, signal = _code_and_signal(exit_code)
    if word == "FAILED" and signal == _UNABLE:
        return status._replace(ending=NOT_STARTED)
    ending = ENDINGS.get(word) or (KILLED if signal else EXITED)
    if 0 < signal <= _LAST_SIGNAL:
        return status._replace(ending=ending, exit_status=128 + signal)
    return status._replace(ending=ending, exit_status=code if code or ending == EXITED else None)


def _code_and_signal(exit_code: str) -> List[int]:
    if ":" in exit_code:
        return [int(number) for number in exit_code.split(":")]
    status = int(exit_code)
    return [status >> 8 & 0xFF, status & 0x7F]


def check_end(result: Result) -> None:
    """Check that the answer ends with a whole line: half a name is another job's. Raises UnreadableError if it does
    not.
    """
    if result.stdout and not result.stdout.endswith("\n"):
        raise unreadable(result, "stopped in the middle of a line")


def by_id(statuses: Iterator[JobStatus]) -> Dict[str, JobStatus]:
    return {status.batch_id: status for status in statuses}


def newest(statuses: Iterator[JobStatus]) -> Optional[JobStatus]:
    """The status of the job that has not ended, else of the latest one, among the statuses of one tag."""
    return max(statuses, key=lambda status: (status.state != ENDED, int(status.batch_id)), default=None)
