"""Grid Engine's records of ended jobs, as qacct prints them, read into statuses; the manual: accounting(5)."""

import re
import time
from typing import Dict, Iterator, List, Mapping, Optional

from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.batch.protocol import (
    ENDED,
    EXITED,
    KILLED,
    LOST,
    MEMORY,
    WALLTIME,
    JobSpan,
    JobStatus,
)
from koalapy_adapters.errors import Result

# sge_status(5), '"Failed" states': those after which the job has run. It was killed (17), it went over a limit that the
# qmaster watches (37), it died of a signal or with its host (100), or only the cluster's epilog failed (12 to 16).
# After every other code nothing ran, or nobody knows what did.
ENDINGS: Mapping[int, str] = {
    **dict.fromkeys((0, 12, 13, 14, 15, 16), EXITED),
    17: KILLED,
    37: WALLTIME,
    100: KILLED,
}
# Those that are the job's own: Grid Engine holds it in the error state, and its DRMAA library deletes it there at once.
_ERRORS = (26, 27, 28, 32, 33)  # its output or input, its shell, its directory, its user
_RERUN = (24, 25)  # migrating, rescheduling: this run has ended, and the job has not
_SIGNALLED = 128
_FIRST_DAY = 2 * 86400  # of 1970, in whichever zone: what never began is accounted as of then

# A log that was turned over is the newest of accounting.0, accounting.1.gz, accounting-20261121, as the cluster has it.
_QACCT = """\
qacct "$@"
status=$?
if [ $status -ne 0 ]; then
    log=${SGE_ROOT-}/${SGE_CELL:-default}/common/accounting
    old=$(ls -t "$log"[.-]* 2>/dev/null | sed 1q)
    if [ -n "$old" ] && [ -n "$(find "$old" -mtime -8 2>/dev/null)" ]; then
        gzip -cdf "$old" | qacct -f /dev/stdin "$@" 2>/dev/null && exit
    fi
fi
exit $status
"""


def qacct(user: str, tag: str) -> List[str]:
    """The command that searches the accounting for a user's jobs of this name.

    If it finds none, it searches the log before, if that is not older than a week. A job may have ended just before
    that log was rotated.
    """
    return ["sh", "-c", _QACCT, "qacct", "-o", user, "-j", tag]


def asked(result: Result) -> Result:
    """The result as if qacct itself had been called, so that errors name qacct and not the shell."""
    return result._replace(argv=result.argv[3:]) if result.argv[:2] == ["sh", "-c"] else result


def records(result: Result) -> Iterator[JobStatus]:
    """The records of `qacct -j`, in the order of their writing. Raises UnreadableError if one is incomplete."""
    for record in re.split(r"^=+$", result.stdout, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+) +(.*?) *$", record, re.MULTILINE))
        if "jobname" in fields or "failed" in fields:
            yield _status(fields, result)


def spans(result: Result) -> Iterator[JobSpan]:
    """The jobs among the records of `qacct -j` that ran. qacct prints times in the head node's own zone."""
    for record in re.split(r"^=+$", result.stdout, flags=re.MULTILINE):
        fields = dict(re.findall(r"^(\w+) +(.*?) *$", record, re.MULTILINE))
        began_s, ended_s = _instant(fields.get("start_time", "")), _instant(fields.get("end_time", ""))
        if began_s is None or ended_s is None or not fields.get("slots", "").isdigit():
            continue
        if fields.get("pe_taskid", "NONE") == "NONE":
            name, number = fields.get("jobname", ""), fields.get("jobnumber", "")
            yield JobSpan(number, name, began_s, ended_s, int(fields["slots"]))


def _instant(text: str) -> Optional[float]:
    """The seconds since 1970 of `Sat Nov 21 11:54:01 2026` or `11/21/2026 11:54:01.123`.

    Returns None for a time that never was: `-/-`, or the first days of 1970.
    """
    for form in ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S"):
        try:
            seconds = time.mktime(time.strptime(text.partition(".")[0], form))
        except (ValueError, OverflowError):
            continue
        return seconds if seconds > _FIRST_DAY else None
    return None


def newest(statuses: List[JobStatus]) -> Optional[JobStatus]:
    """The status of the job that has not ended, else of the latest one, among the statuses of one tag.

    Of several records of one job, the last one counts, which is the job's own. Records of its tasks on other hosts, if
    the cluster keeps them, are written before.
    """
    ordered = sorted(statuses, key=lambda status: (status.state != ENDED, int(status.batch_id)))
    return ordered[-1] if ordered else None


def _status(fields: Dict[str, str], result: Result) -> JobStatus:
    try:
        failed, exit_status = int(fields["failed"].split()[0]), int(fields["exit_status"].split()[0])
        found = JobStatus(fields["jobnumber"], fields["jobname"], ENDED)
        int(found.batch_id)
    except (KeyError, ValueError, IndexError) as error:
        raise unreadable(result, "printed a record without failed, exit_status, jobnumber or jobname") from error
    ending = _ending(failed, exit_status, fields)
    return found._replace(
        ending=ending,
        exit_status=exit_status if ending != LOST else None,
        reason=_reason(failed, fields),
        restarts=int(failed in _RERUN),
        stuck="error_state" if failed in _ERRORS else "",
    )


def _ending(failed: int, exit_status: int, fields: Dict[str, str]) -> str:
    ending = ENDINGS.get(failed, LOST)
    if failed == 100 and exit_status < _SIGNALLED:
        return LOST  # its shepherd or its host died: nobody saw it end
    return _limit(fields) or ending if failed in (37, 100) else ending


def _reason(failed: int, fields: Dict[str, str]) -> str:
    """The code of the failure and the manual's words for it; "" if there was none."""
    words = fields["failed"].partition(":")[2].strip()
    return "failed %d: %s" % (failed, words or "without a word") if failed else ""


def _limit(fields: Dict[str, str]) -> str:
    """The ending for the limit that the job exceeded, of those that it requested; "" for none. Memory is per slot."""
    asked_for = dict(re.findall(r"\b(h_rt|h_vmem)=([\w.:]+)", fields.get("category", "")))
    slots = int(fields.get("slots", "1"))
    if "h_vmem" in asked_for and bytes_of(fields.get("maxvmem", "0")) >= bytes_of(asked_for["h_vmem"]) * slots:
        return MEMORY
    if asked_for.get("h_rt", "").isdigit() and _seconds(fields.get("ru_wallclock", "0")) >= int(asked_for["h_rt"]):
        return WALLTIME
    return ""


def bytes_of(text: str) -> float:
    """The bytes of 100M, 1.387MB or 512: memory_specifier of sge_types(1), as qacct prints it too."""
    match = re.match(r"([\d.]+)([kKmMgGtT]?)", text)
    if not match:
        return 0
    letter = match.group(2)
    base = 1000 if letter.islower() else 1024
    return float(match.group(1)) * float(base ** " KMGT".index(letter.upper() or " "))


def _seconds(text: str) -> float:
    match = re.match(r"[\d.]+", text)
    return float(match.group(0)) if match else 0.0
