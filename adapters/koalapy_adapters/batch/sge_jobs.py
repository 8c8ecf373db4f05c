"""Grid Engine's jobs as qstat lists them, read into statuses; the manual: qstat(1), sge_status(5)."""

import re
from typing import Dict, Iterator, Mapping, NamedTuple, Set
from xml.etree import ElementTree

from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.batch.protocol import ENDED, HELD, QUEUED, RUNNING, SUSPENDED, JobStatus
from koalapy_adapters.errors import Result

# XML 1.0 does not allow them, but the name of anybody's job may bring them in.
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")

# sge_qstat(5): a user may have made it a default to list some jobs only (-s r). That arrays be listed task by task
# (-g d) is not to be asked for: somebody's may have a hundred thousand.
ALL = ("-s", "a")

# qstat(1), "state": d(eletion), E(rror), h(old), r(unning), R(estarted), s(uspended by the user), S(uspended with its
# queue), t(ransferring), T(hreshold reached), w(aiting), q(ueued), P(reempted), N(ot yet resumed), z(ombie).
_LETTERS = frozenset("dEhrRsStTwqPNz")

# What stops a job that has begun: its time goes on, and it holds its slots.
_STOPPED: Mapping[str, str] = {
    "s": "suspended by its owner or the cluster",
    "S": "suspended with its queue, by another queue or the cluster",
    "T": "suspended since its host is overloaded",
    "P": "preempted",
    "N": "not resumed yet",
}


class Job(NamedTuple):
    """An entry of job_list. `slots` are those in the queue instance under which it is listed."""

    batch_id: str
    name: str
    user: str
    state: str
    slots: int
    priority: float
    tasks: int = 1  # those of an array that wait


def document(result: Result) -> ElementTree.Element:
    """The root of the XML that a command printed. A document type is refused, and with it all attacks by entities.

    Raises UnreadableError for a document type, and for XML that cannot be read.
    """
    text = _NO_XML.sub("?", result.stdout)
    if "<!" in text:
        raise unreadable(result, "printed XML with a document type")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise unreadable(result, "printed XML that cannot be read (%s)" % error) from error


def listing(result: Result) -> ElementTree.Element:
    """The root of the XML of a `qstat` that lists jobs.

    Raises UnreadableError for another document, which must not be taken for an empty list.
    """
    root = document(result)
    if root.tag != "job_info" or root.find("queue_info") is None:
        raise unreadable(result, "printed no list of jobs")
    return root


def jobs(parent: ElementTree.Element) -> Iterator[Job]:
    """All job_list entries below this element. A job in several queue instances comes several times."""
    for entry in parent.iter("job_list"):
        yield Job(
            batch_id=entry.findtext("JB_job_number", ""),
            name=entry.findtext("JB_name", ""),
            user=entry.findtext("JB_owner", ""),
            state=entry.findtext("state", ""),
            slots=int(entry.findtext("slots", "1")),
            priority=float(entry.findtext("JAT_prio", "0")),
            tasks=_tasks(entry.findtext("tasks", "")),
        )


def status(job: Job, result: Result) -> JobStatus:
    """The job as a JobStatus. Raises UnreadableError for a state that the manual does not have."""
    letters = set(job.state)
    if not letters or letters - _LETTERS:
        raise unreadable(result, "has job %s in a state named %r" % (job.batch_id, job.state))
    found = JobStatus(job.batch_id, job.name, _state(letters), restarts=int("R" in letters))
    if "E" in letters:
        return found._replace(stuck="error_state", reason="%s: `qstat -j %s` shows why" % (job.state, job.batch_id))
    return found._replace(reason=_reason(job.state, found.state))


def explanations(root: ElementTree.Element) -> Dict[str, str]:
    """Why jobs are in the error state, by batch id: the messages of `qstat -j IDS -xml`, without their time stamps.

    If a job no longer exists, Grid Engine prints another kind of document, with nothing about the other jobs.
    """
    found: Dict[str, str] = {}
    for job in root.iter():  # of each job: `element` within `djob_info`, or that alone
        if job.find("JB_job_number") is None:
            continue
        messages = [text for text in (each.text or "" for each in job.iter("QIM_message")) if text]
        if messages:
            found[job.findtext("JB_job_number", "")] = "; ".join(_plain(message) for message in messages)
    return found


def _plain(message: str) -> str:
    """The message after its time stamp and the word error: `11/21/2026 02:42:36 [2000:1498]: error: can't chdir …`, or
    `error reason 1: can't chdir …`.
    """
    begin = r"^([\d/]+ [\d:]+ (\[\d+:\d+\]: )?)?(error reason +\d+: +)?(error: )?"
    return re.sub(begin, "", message.strip()).rstrip(".")


def holds_slots(job: Job) -> bool:
    """Return whether the job is running, being started or suspended, and not waiting."""
    return not set("qw") & set(job.state) and "z" not in job.state


def _tasks(text: str) -> int:
    """The number of tasks in `3`, `1-100:1` or `2,5-9:2`; 1 for a job that is no array, which has no such text."""
    found = 0
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text):
        found += 1 + max(0, int(last or first) - int(first)) // max(1, int(step or 1))
    return max(1, found)


def _reason(word: str, state: str) -> str:
    if state == SUSPENDED:
        return "%s: %s" % (word, next(_STOPPED[letter] for letter in word if letter in _STOPPED))
    if "d" in word:
        return "%s: it is to be deleted, and its host has not confirmed that" % word
    return word if state == HELD else ""


def _state(letters: Set[str]) -> str:
    if "z" in letters:
        return ENDED
    if letters & set("qw"):
        return HELD if "h" in letters else QUEUED
    return SUSPENDED if letters & set(_STOPPED) else RUNNING
