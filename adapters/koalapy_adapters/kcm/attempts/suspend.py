"""Suspend and resume an attempt by its batch system, for a job of higher priority.

koalad's last wish is carried out, and tried again until the batch system has done it or the attempt ends. The batch
system keeps it; after a restart of this KCM koalad sends its wishes anew.
"""

from typing import Any, List

from koalapy_adapters.kcm.state.actions import JobSuspended, SuspendJob
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.messages.koalad import SetSuspended


def asked(core: Core, now: int, attempt: Attempt, request: SetSuspended) -> List[Any]:
    """Note koalad's wish, and carry it out unless an earlier one is on its way."""
    attempt.suspend_requested = request.suspended
    return [] if attempt.suspending else _try(attempt)


def done(core: Core, now: int, attempt: Attempt, outcome: JobSuspended) -> List[Any]:
    """React to the batch system's answer. The next measurement shows what has become of the job."""
    attempt.suspending = False
    core.poll_schedule.soon(now)
    if attempt.suspend_requested is not outcome.suspended:
        return _try(attempt)
    if outcome.error is None:
        attempt.suspend_requested = None
    else:
        attempt.suspend_at = attempt.suspend_backoff.after(now)
    return []


def tick(now: int, attempt: Attempt) -> List[Any]:
    """Return the actions that are due."""
    if attempt.suspend_at is None or attempt.suspend_at > now:
        return []
    return _try(attempt)


def _try(attempt: Attempt) -> List[Any]:
    attempt.suspend_at = None
    ended = attempt.ended or attempt.cleaned_up or attempt.ending is not None
    if ended or not attempt.batch_id or attempt.suspend_requested is None:
        attempt.suspend_requested = None
        return []
    attempt.suspending = True
    return [SuspendJob(attempt.tag, attempt.batch_id, attempt.suspend_requested)]
