"""Grid Engine's jobs as qstat lists them and qacct remembers them, read into statuses."""

import re
from typing import Dict, Iterator, List, NamedTuple, Optional, Set
from xml.etree import ElementTree

from koalapy_adapters.batch.protocol import (
    ENDED,
    EXITED,
    HELD,
    KILLED,
    LOST,
    MEMORY,
    QUEUED,
    RUNNING,
    SUSPENDED,
    WALLTIME,
    JobStatus,
)
from koalapy_adapters.batch.verdicts import unreadable
from koalapy_adapters.errors import Result

# XML 1.0 does not allow them, but the name of anybody's job may bring them in.
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")

# qstat(1), "state": d(eletion), E(rror), h(old), r(unning), R(estarted), s(uspended by the user), S(uspended with its
# queue), t(ransferring), T(hreshold reached), w(aiting), q(ueued), P(reempted), N(ot yet resumed), z(ombie).
_LETTERS = frozenset("dEhrRsStTwqPNz")

# accounting(5), "failed": 37 is a limit that the qmaster enforced; 100 a job that died of a signal; all others are
# failures of the system before or around the job.
_LIMIT, _SIGNALLED = 37, 100


class Job(NamedTuple):
    """A job_list entry. `slots` are those in the queue instance under which it is listed."""

    batch_id: str
    name: str
    user: str
    state: str
    slots: int
    priority: float


def document(result: Result) -> ElementTree.Element:
    """The XML of a command. Entities are refused, and with them all that they can do."""
    text = _NO_XML.sub("?", result.stdout)
    if "<!" in text:
        raise unreadable(result, "printed XML with a document type")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise unreadable(result, "printed XML that cannot be read (%s)" % error) from error


def jobs(parent: ElementTree.Element) -> Iterator[Job]:
    """All job_list entries below this element; a job in several queue instances comes several times."""
    for entry in parent.iter("job_list"):
        yield Job(
            batch_id=entry.findtext("JB_job_number", ""),
            name=entry.findtext("JB_name", ""),
            user=entry.findtext("JB_owner", ""),
            state=entry.findtext("state", ""),
            slots=int(entry.findtext("slots", "1")),
            priority=float(entry.findtext("JAT_prio", "0")),
        )


def status(job: Job, result: Result) -> JobStatus:
    """The job as the protocol says it. Raises UnreadableError for a state that the manual does not have."""
    letters = set(job.state)
    if not letters or letters - _LETTERS:
        raise unreadable(result, "says that job %s is in a state named %r" % (job.batch_id, job.state))
    found = JobStatus(job.batch_id, job.name, _state(letters), restarts=int("R" in letters))
    if "E" in letters:
        return found._replace(stuck="error_state", reason="%s: `qstat -j %s` says why" % (job.state, job.batch_id))
    return found._replace(reason=job.state if found.state in (HELD, SUSPENDED) else "")


def holds_slots(job: Job) -> bool:
    """Whether it is running, being started or suspended, and not waiting."""
    return not set("qw") & set(job.state) and "z" not in job.state


def _state(letters: Set[str]) -> str:
    if "z" in letters:
        return ENDED
    if letters & set("qw"):
        return HELD if "h" in letters else QUEUED
    return SUSPENDED if letters & set("sSTPN") else RUNNING


def accounted_jobs(result: Result) -> Iterator[JobStatus]:
    """The records of `qacct -j`, in the order in which they were written."""
    for record in re.split(r"^=+$", result.stdout, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+) +(.*?) *$", record, re.MULTILINE))
        if fields:
            yield _accounted(fields, result)


def _accounted(fields: Dict[str, str], result: Result) -> JobStatus:
    try:
        failed = int(fields["failed"].split()[0])
        exit_status = int(fields["exit_status"].split()[0])
        found = JobStatus(fields["jobnumber"], fields["jobname"], ENDED, fields["failed"].partition(":")[2].strip())
    except (KeyError, ValueError, IndexError) as error:
        raise unreadable(result, "printed a record without failed, exit_status, jobnumber or jobname") from error
    if failed == 0:
        return found._replace(ending=EXITED, exit_status=exit_status)
    if failed in (_LIMIT, _SIGNALLED):
        return found._replace(
            ending=_limit(fields) or (WALLTIME if failed == _LIMIT else KILLED), exit_status=exit_status
        )
    return found._replace(ending=LOST)


def _limit(fields: Dict[str, str]) -> str:
    """Which of the limits that the job asked for it went over. Memory is per slot."""
    asked = dict(re.findall(r"\b(h_rt|h_vmem)=([\w.:]+)", fields.get("category", "")))
    slots = int(fields.get("slots", "1"))
    if "h_vmem" in asked and _bytes(fields.get("maxvmem", "0")) >= _bytes(asked["h_vmem"]) * slots:
        return MEMORY
    if asked.get("h_rt", "").isdigit() and _seconds(fields.get("ru_wallclock", "0")) >= int(asked["h_rt"]):
        return WALLTIME
    return ""


def _bytes(text: str) -> float:
    """sge_types(1), memory_specifier, as qacct prints it too: 100M, 1.387MB, 512."""
    match = re.match(r"([\d.]+)([kKmMgGtT]?)", text)
    if not match:
        return 0
    letter = match.group(2)
    base = 1000 if letter.islower() else 1024
    return float(match.group(1)) * float(base ** " KMGT".index(letter.upper() or " "))


def _seconds(text: str) -> float:
    match = re.match(r"[\d.]+", text)
    return float(match.group(0)) if match else 0.0


def newest(statuses: List[JobStatus]) -> Optional[JobStatus]:
    """Of several jobs of one tag, the one that still lives, else the latest; of several records of it, the last, which
    is the job's own: those of its tasks on other hosts, where the site keeps them, are written before.
    """
    ordered = sorted(statuses, key=lambda status: (status.state != ENDED, int(status.batch_id)))
    return ordered[-1] if ordered else None
