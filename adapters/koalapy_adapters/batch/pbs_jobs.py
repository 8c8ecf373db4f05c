"""Jobs of the PBS family as qstat lists them, live or from the history, read into statuses."""

import re
from typing import Dict, Iterable, Iterator, NamedTuple, Optional

from koalapy_adapters.batch import pbs_states
from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.batch.pbs_records import Record, number, records, word
from koalapy_adapters.batch.pbs_states import Family
from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    EXITED,
    HELD,
    KILLED,
    LOST,
    QUEUED,
    JobStatus,
)
from koalapy_adapters.batch.text import is_tag
from koalapy_adapters.errors import Result, UnreadableError

_UNESCAPED = {ord(read): written for read, written in zip("\b\f\n\r\t", ("\\b", "\\f", "\\n", "\\r", "\\t"))}
_ID = re.compile(r"[0-9]{1,18}(\[[0-9]*\])?(\.[\w.-]+)?\Z")


class Job(NamedTuple):
    """A job of any user. `processors` are those that it requested, and `exec_host` those that it was given.

    `array` is the number of its subjobs that wait, or None if it is no array.
    """

    status: JobStatus
    user: str
    queue: str
    processors: int
    exec_host: str
    array: Optional[int]
    begins_later: bool  # its start time is yet to come
    nodes: int = 1  # that it asked for
    alone: bool = False  # on nodes of its own

    @property
    def waiting(self) -> int:
        """The number of jobs in it that wait for processors. Held, limited and postponed jobs do not count."""
        if self.array is not None:
            return 0 if self.status.state == HELD else self.array
        wants = self.status.state == QUEUED and not self.begins_later
        return int(wants and pbs_states.waits_for_resources(self.status.reason))


def jobs(result: Result, family: Family) -> Iterator[Job]:
    """The jobs of a `qstat -f`. Raises UnreadableError if a job cannot be read, or has a state or exit status that no
    manual has.
    """
    for record in records(result, "Jobs"):
        yield _job(record, result, family)


def everybodys(result: Result, family: Family) -> Iterator[Job]:
    """The jobs of a `qstat -f`, without unreadable jobs that bear no tag: nobody else's job may hide ours.

    Raises UnreadableError if the answer or a job with a tag cannot be read.
    """
    for record in records(result, "Jobs"):
        try:
            yield _job(record, result, family)
        except UnreadableError:
            if is_tag(word(record, "Job_Name")):
                raise


def by_id(found: Iterable[Job]) -> Dict[str, JobStatus]:
    return {job.status.batch_id: job.status for job in found}


def named(found: Iterable[Job], tag: str) -> Optional[JobStatus]:
    """The status of the job of this name. Of several, it is that of the job that has not ended, else of the latest."""
    statuses = [job.status for job in found if job.status.name == tag]
    return max(statuses, key=lambda status: (status.state != ENDED, _sequence(status.batch_id)), default=None)


def _job(record: Record, result: Result, family: Family) -> Job:
    if not _ID.match(record.name):
        raise unreadable(result, "printed a job id that is none (%.100r)" % record.name)
    return Job(
        status=_status(record, result, family),
        user=_user(record),
        queue=word(record, "queue"),
        processors=_processors(record, result),
        exec_host=word(record, "exec_host"),
        array=_array(record),
        begins_later=word(record, "job_state") == "W",
        nodes=max(1, number(record, "Resource_List.nodect", result, 1)),
        alone=_alone(record),
    )


def _user(record: Record) -> str:
    """The user of a job: what precedes the last @ of its owner, since a user's own name may have one.

    PBS Pro 20 and before wrote `CORP\\bob` into JSON without an escape, where `\\b` is read as a control character.
    """
    owner, user = word(record, "Job_Owner"), word(record, "euser")
    if owner and not owner.startswith(user + "@"):
        user = owner.rpartition("@")[0] or owner
    return user.translate(_UNESCAPED)


def _sequence(batch_id: str) -> int:
    return int(re.match(r"[0-9]+", batch_id).group(0))  # type: ignore[union-attr]  # `jobs` has seen to it


def _status(record: Record, result: Result, family: Family) -> JobStatus:
    letter = word(record, "job_state")
    if letter not in family.states:
        raise unreadable(result, "has job %s in a state named %r" % (record.name, letter))
    state = family.states[letter]
    restarts = max(0, number(record, "run_count", result, 1) - 1)
    status = JobStatus(record.name, word(record, "Job_Name"), state, restarts=restarts)
    if state == ENDED:
        return _ended(status, record, result, family)
    comment = word(record, "comment").strip()
    if state not in (QUEUED, HELD):
        return status
    holds = word(record, "Hold_Types").replace("n", "")
    reason = comment or ("Hold_Types = " + holds if holds else "")
    return status._replace(reason=reason, stuck=pbs_states.stuck(state, comment, holds, "depend" in record.fields))


def _ended(status: JobStatus, record: Record, result: Result, family: Family) -> JobStatus:
    """The status of an ended job. A job without an exit status never ran, or is Slurm's, whose Torque commands do not
    print it.
    """
    status = status._replace(reason=word(record, "comment").strip())
    substate = number(record, "substate", result)
    deleted = substate == pbs_states.DELETED
    name = "Exit_status" if "Exit_status" in record.fields else "exit_status"
    if name not in record.fields:
        return status._replace(ending=CANCELLED if deleted else LOST)
    code = number(record, name, result)
    if code < 0:
        return _failed(status, code, result, family)
    signal = pbs_states.signal_of(code)
    exit_status: Optional[int] = code if signal is None else 128 + signal
    if word(record, "array") == "True" and substate == pbs_states.FAILED:
        exit_status = None  # an array's status is 0 even if a subjob failed
    ending = EXITED if signal is None else KILLED
    return status._replace(ending=CANCELLED if deleted else ending, exit_status=exit_status)


def _failed(status: JobStatus, code: int, result: Result, family: Family) -> JobStatus:
    if code not in family.failures:
        raise unreadable(result, "has job %s ended with %d" % (status.batch_id, code))
    failure = family.failures[code]
    remark = " (%s)" % status.reason if status.reason else ""  # PBS's comment: that it ran where, and failed
    return status._replace(ending=failure.ending, reason=failure.reason + remark)


def _processors(record: Record, result: Result) -> int:
    """The processors of a job, given or else requested.

    Torque has no ncpus, but numbers each processor of the given nodes: `node1/0-3+node2/0`.
    """
    if "Resource_List.ncpus" in record.fields:
        return number(record, "Resource_List.ncpus", result)
    there = sum(given(part) for part in word(record, "exec_host").split("+") if part)
    return there or sum(_asked(part) for part in word(record, "Resource_List.nodes").split("+") if part)


def _alone(record: Record) -> bool:
    """Return whether the job asks for nodes of its own.

    It does by `place=scatter:exclhost` in OpenPBS, and by `naccesspolicy=singlejob` in Torque.
    """
    return "excl" in word(record, "Resource_List.place") or word(record, "Resource_List.naccesspolicy") == "singlejob"


def _asked(part: str) -> int:
    """The processors of one part of Torque's `nodes`: 8 for `2:ppn=4:haswell`, 1 for `node7`."""
    count, _, properties = part.partition(":")
    each = re.search(r"(?:^|:)ppn=([0-9]{1,9})", properties)
    return (int(count) if re.match(r"[0-9]{1,9}\Z", count) else 1) * (int(each.group(1)) if each else 1)


def given(part: str) -> int:
    """The processors of one part of `exec_host`: 1 for `node1/0`, 5 for `node1/0-3,6`, 2 for OpenPBS's `node1/0*2`."""
    indices, _, times = part.partition("/")[2].partition("*")
    count = 0
    for first, last in re.findall(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", indices):
        count += max(0, int(last or first) - int(first)) + 1
    return count * (int(times) if re.match(r"[0-9]{1,9}\Z", times) else 1)


def _array(record: Record) -> Optional[int]:
    """The number of subjobs that wait, as far as the array's own limit lets them run; None if the job is no array.

    PBS prints `Queued:3 Running:1 Exiting:0 Expired:2`.
    """
    counts = dict(re.findall(r"(Queued|Running):([0-9]{1,9})", word(record, "array_state_count")))
    if "Queued" not in counts:
        return None
    limit = word(record, "max_run_subjobs")
    left = int(limit) - int(counts.get("Running", 0)) if re.match(r"[0-9]{1,9}\Z", limit) else int(counts["Queued"])
    return max(0, min(int(counts["Queued"]), left))
