"""Slurm's jobs as squeue and sacct list them, read into statuses."""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import ENDED, EXITED, HELD, KILLED, NOT_STARTED, QUEUED, JobStatus
from koalapy_adapters.batch.slurm_words import ENDINGS, STATES, holds, stuck
from koalapy_adapters.batch.verdicts import unreadable
from koalapy_adapters.errors import Result

# A stable text, not --json: squeue --json exits 0 when the controller is down, ignores -j, lists ended jobs too and is
# forty times as long. The name comes last, since anybody may put a line break or a bar into it, and is cut to one more
# than a tag has, too short for a line that could be taken for a job.
SQUEUE_FORMAT = "JobID:|,State:|,UserName:|,Partition:|,NumCPUs:|,exit_code:|,RestartCnt:|,Reason:|,Name:.16"
SACCT_FORMAT = "JobIDRaw,JobName,State,ExitCode"
_JOB = re.compile(r"(\d+)\|([A-Z_]+)\|([^|]+)\|([^|]*)\|(\d+)\|(\d+(?::\d+)?)\|(\d+)\|([^|]*)\|(.*)\Z")

# A larger "signal" is Slurm's own, such as the 125 of a job that ran out of memory.
_LAST_SIGNAL = 64
# slurmd's way to say that it could not open the output file or start the script: no such signal exists.
_UNABLE = 53


class Job(NamedTuple):
    """A line of squeue. `partitions` are those that a pending job may start in."""

    batch_id: str
    state: str
    user: str
    partitions: List[str]
    processors: int
    exit_code: str
    restarts: int
    reason: str
    name: str


def jobs(result: Result) -> Iterator[Job]:
    """The jobs of a squeue in SQUEUE_FORMAT. What is no job is the rest of a name with a line break, but it has to
    follow one: what begins otherwise is another document, and no list of no jobs.
    """
    lines = result.stdout.splitlines()
    if lines and not _JOB.match(lines[0]):
        raise unreadable(result, "printed a line that is no job (%.100r)" % lines[0])
    check_end(result)
    for line in lines:
        match = _JOB.match(line)
        if match:
            number, state, user, partitions, processors, exit_code, restarts, reason, name = match.groups()
            yield Job(
                number,
                state,
                user,
                partitions.split(","),
                int(processors),
                exit_code,
                int(restarts),
                reason,
                name.strip(),
            )


def status(job: Job, result: Result) -> JobStatus:
    """The job as the protocol says it. Raises UnreadableError for a state that Slurm's manual did not have."""
    return job_status(job.batch_id, job.name, job.state, job.reason, job.exit_code, job.restarts, result)


def accounted_jobs(result: Result) -> Iterator[JobStatus]:
    """The jobs of a `sacct -n -X -P` in SACCT_FORMAT, whose states may read `CANCELLED by 1000`."""
    for line in result.stdout.splitlines():
        fields = line.split("|")
        if len(fields) != 4:
            raise unreadable(result, "printed a line that is no job")
        number, name, state, exit_code = fields
        yield job_status(number, name, (state.split() or [""])[0], "", exit_code, 0, result)
    check_end(result)


def job_status(
    batch_id: str, name: str, word: str, reason: str, exit_code: str, restarts: int, result: Result
) -> JobStatus:
    """From Slurm's own words. `exit_code` is CODE:SIGNAL, or in squeue the number that wait(2) gives."""
    if word not in STATES:
        raise unreadable(result, "says that job %s is in a state named %r" % (batch_id, word))
    state = STATES[word]
    reason = "" if reason == "None" else reason
    if state == ENDED:
        # A job that was cancelled while it waited still bears the reason why it waited.
        cause = reason if reason and word != "CANCELLED" else word
        return _ended(JobStatus(batch_id, name, ENDED, cause, restarts=restarts), word, exit_code)
    if state == QUEUED and holds(reason):
        state = HELD
    return JobStatus(batch_id, name, state, reason, stuck(reason) if state in (QUEUED, HELD) else "", restarts=restarts)


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
    """Raise for an answer that does not end where a line does: half a name is somebody else's."""
    if result.stdout and not result.stdout.endswith("\n"):
        raise unreadable(result, "stopped in the middle of a line")


def by_id(statuses: Iterator[JobStatus]) -> Dict[str, JobStatus]:
    return {status.batch_id: status for status in statuses}


def newest(statuses: Iterator[JobStatus]) -> Optional[JobStatus]:
    """Of several jobs of one tag, the one that still lives, else the latest."""
    return max(statuses, key=lambda status: (status.state != ENDED, int(status.batch_id)), default=None)
