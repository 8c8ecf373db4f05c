"""The cause of an attempt's end that its wrapper cannot know: its report waits for the batch system's answer.

A program that exits with 143 may have been stopped by the batch system, whose signal the wrapper did not see before it
left; and a wrapper that was signalled does not know why. Such an end is reported to koalad only once the batch system
has its own record of it, or has none for long. A KCM that begins anew meanwhile finds the exit record, and asks again.
"""

from typing import Any, List

from koalapy_adapters.batch.protocol import CANCELLED, ENDED, KILLED, LOST, MEMORY, PREEMPTED, JobStatus, Stopped
from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.kcm.state.actions import SECOND, Look, Looked
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.kcm.state.timers import Backoff
from koalapy_adapters.kcm.sweeps import launcher_end
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper import failure_texts

PATIENCE = 15 * SECOND  # with a batch system that has not noticed yet that the job is over
_STOPPED = (CANCELLED, PREEMPTED)
_SIGNALLED = failure_texts.SIGNALLED["code"]


def is_open(core: Core, attempt: Attempt, report: Report) -> bool:
    """Return whether the batch system may know better than this report who ended the attempt.

    koalad knows what it ends itself. A Launcher is replaced whoever ended it. koalapy's own queue knows no more.
    """
    if report.phase != "ended" or report.released_at is None or is_launcher(attempt.tag):
        return False
    if core.own or attempt.cancelled or attempt.ending is not None:
        return False
    signalled = report.ending == "killed" and (report.error or {}).get("code") == _SIGNALLED
    return signalled or (report.ending in ("exited", "killed") and report.exit_status in failure_texts.STOPPED)


def ask(now: int, attempt: Attempt) -> None:
    """Let the batch system be asked how the job ended, before the end is reported to koalad."""
    attempt.cause_until, attempt.cause_backoff = now + PATIENCE, Backoff(SECOND // 2, 5 * SECOND)
    attempt.cause_at = attempt.cause_backoff.after(now)


def tick(core: Core, now: int, attempt: Attempt) -> List[Any]:
    if attempt.cause_until is not None and attempt.cause_until <= now:
        return settle(core, now, attempt)
    if attempt.cause_at is None or attempt.cause_at > now:
        return []
    attempt.cause_at = None
    if attempt.looking:
        return []
    attempt.looking = True
    return [Look(attempt.tag, attempt.batch_id)]


def looked(core: Core, now: int, attempt: Attempt, outcome: Looked) -> List[Any]:
    """Complete the report if the batch system knows that the job is over, else ask again."""
    status = outcome.listed or outcome.accounted
    if outcome.error is not None or status is None or status.state != ENDED:
        attempt.cause_at = attempt.cause_backoff.after(now)
        return []
    assert attempt.report is not None
    attempt.note(status)
    attempt.report = _completed(attempt.report, status)
    return settle(core, now, attempt)


def settle(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """Report the end as it is known by now, if it waits for the batch system's word."""
    if attempt.cause_until is None:
        return []
    attempt.cause_until = attempt.cause_at = None
    return launcher_end.report(core, now, attempt.tag, attempt.report)


def _completed(report: Report, status: JobStatus) -> Report:
    """The report with the batch system's reason, if that one stopped the job.

    A batch system that only knows the wrapper's exit status, which is the program's own, knows no more. Neither does
    one that lost the job and gives no reason, as Slurm's commands for Torque do of every job.
    """
    if status.ending in _STOPPED or (status.ending == LOST and status.reason):
        return report._replace(ending="killed", error=failure_texts.stopped(Stopped(status.ending, status.reason)))
    if status.ending == MEMORY:
        return report._replace(ending="failed", error=failure_texts.stopped(Stopped(status.ending, status.reason)))
    if status.ending == KILLED and status.exit_status not in (None, report.exit_status):
        return report._replace(ending="killed")
    return report
