"""Cancel an attempt: make it void, stop its wrapper, cancel its batch job, until nothing of it is left.

CleanedUp is sent when the queue lists no such job, and no late job of it can run the program. One of these must hold:
the KCM has the start lock; the exit record exists; the batch system reports the end; or there was no sign of the
attempt for as long as an orphan lives. If the batch system has lost a job or started it twice, it does not know whether
the start with the start lock has ended: its node may be cut off. It does not know either whether a job's other nodes
are empty when the first one has ended. Unless a wrapper reported that, their agents get the time to notice its silence.
"""

from typing import Any, Dict, List, Optional

from koalapy_adapters.batch.protocol import CANCELLED, ENDED, LOST, NOT_STARTED, PREEMPTED, WALLTIME, JobStatus
from koalapy_adapters.kcm.attempts import cause, submit_replies
from koalapy_adapters.kcm.state.actions import (
    SECOND,
    CancelJob,
    CheckJobs,
    EndSubmit,
    Inspect,
    JobCancelled,
    JobsChecked,
    Look,
    Looked,
    Send,
    SendToWrapper,
    StartLockTaken,
    TakeStartLock,
)
from koalapy_adapters.kcm.state.attempt import Attempt, Core, Ending, Stage, failure
from koalapy_adapters.kcm.state.cleanup import forget
from koalapy_adapters.kcm.sweeps import launcher_end
from koalapy_adapters.messages.kcm import CleanedUp, Done, Refused, Stuck
from koalapy_adapters.messages.koalad import Cancel, Clean
from koalapy_adapters.messages.relay import Stop
from koalapy_adapters.wrapper.liveness import until_ended

_DECIDED = (CANCELLED, PREEMPTED, WALLTIME)  # endings of which the server does not need the node
NOT_UNKNOWN = failure("known_tag", "request", "koalad itself has submitted this attempt.", "Cancel its job.")
CANCELS = 3  # in vain, after which every other one asks the batch system to forget a job that surely has ended
FORCED_AFTER = 5 * SECOND  # by the user's wish: for a plain cancel, which may hang until its time-out
STUCK_CANCELS = 3  # in vain, after which the attempt is reported as stuck
STUCK_AFTER = 60 * SECOND  # of cancels: a busy batch system needs half of it to kill what ignores signals
MARGIN = 3 * SECOND  # beyond the program's grace, until the batch system's cancel
_STUCK_ADVICE = (
    "Its administrator can remove it: by force, or by starting the batch system's daemon on its node anew."
    " koalapy goes on cancelling it, too."
)


def asked(core: Core, now: int, attempt: Attempt, request: Cancel) -> List[Any]:
    """koalad orders the attempt to be ended and cleaned up. Its own submit in flight is ended first."""
    actions: List[Any] = [Send(Done(request.id)), *cause.settle(core, now, attempt)]
    attempt.cancelled = True
    attempt.batch_id = attempt.batch_id or request.batch_id
    forced = request.force and not (attempt.stop and attempt.stop.force)
    if attempt.stop is None or forced:
        attempt.stop = Stop(request.force)
    if attempt.cleaned_up:
        return actions + launcher_end.report(core, now, attempt.tag, CleanedUp(attempt.tag, now))
    if attempt.ending is not None:
        return actions + (_hurry(attempt, now) if forced else [])
    if attempt.busy:
        return actions + ([EndSubmit(attempt.tag)] if attempt.stage is Stage.SUBMITTING else [])
    return actions + begin(core, now, attempt)


def clean(core: Core, now: int, attempt: Attempt, request: Clean) -> List[Any]:
    """koalad, which does not know the attempt, orders it to be ended, and its directory removed."""
    if attempt.request is not None:
        return [Send(Refused(request.id, NOT_UNKNOWN))]
    attempt.clean_ids.append(request.id)
    attempt.batch_id = attempt.batch_id or request.batch_id
    attempt.stop = attempt.stop or Stop()
    if attempt.cleaned_up:
        return _forget_cleaned(attempt)
    return [] if attempt.ending is not None else begin(core, now, attempt)


def begin(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """Start to end the attempt; none of its submit's actions may run any more.

    A batch job whose wrapper has left its record ends by itself: cancelled at once, it would look to its owner and the
    accounting as if it had not ended well.
    """
    end = attempt.ending = Ending(now, attempt.looking)
    attempt.retry_at = None
    end.cancel_at, end.check_at = (now + MARGIN, now) if attempt.surely_ended else (now, None)
    actions: List[Any] = [TakeStartLock(attempt.tag)]
    if attempt.connected and attempt.stop is not None and not attempt.surely_ended:
        actions.append(SendToWrapper(attempt.tag, attempt.stop))
        end.cancel_at = now if attempt.stop.force else now + _grace(core, attempt) + MARGIN
    if attempt.stop is not None and attempt.stop.force:
        end.force_at = _force_at(attempt, now)
    return actions


def start_lock_taken(core: Core, now: int, attempt: Attempt, outcome: StartLockTaken) -> List[Any]:
    end = attempt.ending
    assert end is not None
    if outcome.error is not None:
        end.void_at = end.void_backoff.after(now)
    else:
        end.void = outcome.won
    if not end.listed and end.check_at is None and not end.asking:
        end.check_at = now  # it was put off until now
    return _conclude(core, now, attempt)


def cancelled(core: Core, now: int, attempt: Attempt, outcome: JobCancelled) -> List[Any]:
    """The cancel command ended. Its output matters less than the queue's present state."""
    end = attempt.ending
    if end is None:
        return []
    end.cancelling, end.refused = max(0, end.cancelling - 1), outcome.error
    if end.listed:
        end.check_at = now
        if not end.cancelling:
            end.cancel_at = end.cancel_backoff.after(now)
    return []


def looked(core: Core, now: int, attempt: Attempt, outcome: Looked) -> List[Any]:
    end = attempt.ending
    assert end is not None
    end.asking = False
    if outcome.error is not None:
        end.check_at = end.check_backoff.after(now)
        return []
    return _update_listing(core, now, attempt, outcome.listed, outcome.accounted)


def checked(core: Core, now: int, outcome: JobsChecked) -> List[Any]:
    """The queue's view of all that are being ended and whose ids are known."""
    core.checks.finish(now, outcome.cost)
    actions: List[Any] = []
    asked_for = frozenset(outcome.batch_ids)
    for attempt in list(core.attempts.values()):
        end = attempt.ending
        if end is None or not end.asking or attempt.batch_id not in asked_for:
            continue
        end.asking = False
        if outcome.error is not None:
            end.check_at = end.check_backoff.after(now)
        else:
            actions += _update_listing(core, now, attempt, outcome.statuses.get(attempt.batch_id), None)
    return actions


def wake(core: Core, now: int, attempt: Attempt) -> None:
    """A batch job ended, perhaps this one's."""
    end = attempt.ending
    if end is not None and end.check_at is not None and not end.asking:
        end.check_at = None
        core.checks.want(now, attempt.tag)


def inspected(now: int, attempt: Attempt, claim: str) -> None:
    """Take the start lock again if the attempt's own store has removed its directory meanwhile.

    Then nothing of it runs, and once it is void nothing can begin.
    """
    end = attempt.ending
    if end is not None and attempt.clean_ids and end.void is False and not claim:
        end.void, end.void_at = None, now


def wrapper_silent(attempt: Attempt, now: int) -> None:
    """The wrapper ended, or its connection did: its batch job may be gone by now."""
    end = attempt.ending
    if end is None:
        return
    end.check_at = now
    if not attempt.surely_ended and end.cancel_at is not None:
        end.cancel_at = now


def tick(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """Return the actions that are due for one attempt; see also `check`."""
    end = attempt.ending
    if end is None:
        return []
    actions: List[Any] = []
    if end.void_at is not None and end.void_at <= now:
        end.void_at = None
        actions.append(TakeStartLock(attempt.tag))
    if end.cancel_at is not None and end.cancel_at <= now:
        end.cancel_at = None
        actions += _cancel(now, attempt, end)
    if end.force_at is not None and end.force_at <= now:
        end.force_at = None
        actions += _force(attempt, end)
    if not end.asking and end.check_at is not None and end.check_at <= now:
        end.check_at = None
        if _must_look(attempt, end):
            return actions + _look(attempt, end)
        core.checks.want(now, attempt.tag)
    return actions


def check(core: Core, now: int) -> List[Any]:
    """One call for all whose ids are known: the number of calls must not grow with the number of jobs. See Checks."""
    due = core.checks.due()
    if due is None or now < due:
        return []
    actions: List[Any] = []
    batch_ids = []
    for tag in core.checks.take():
        attempt = core.attempts.get(tag)
        end = attempt.ending if attempt is not None else None
        if attempt is None or end is None or end.asking:
            continue
        if _must_look(attempt, end):
            actions += _look(attempt, end)
            continue
        end.asking = True
        batch_ids.append(attempt.batch_id)
    if not batch_ids:
        return actions
    core.checks.begin()
    return [*actions, CheckJobs(batch_ids)]


def _look(attempt: Attempt, end: Ending) -> List[Any]:
    end.asking = True
    return [Look(attempt.tag, attempt.batch_id), Inspect([attempt.tag])]


def _must_look(attempt: Attempt, end: Ending) -> bool:
    """By tag, and in the accounting, where the id does not find all."""
    return attempt.doubtful or not attempt.batch_id or not end.listed


def _cancel(now: int, attempt: Attempt, end: Ending) -> List[Any]:
    if not attempt.batch_id:
        end.check_at = now
        return []
    end.cancelling += 1
    end.cancels += 1
    unwaited = attempt.surely_ended or (attempt.stop is not None and attempt.stop.force)
    in_vain = unwaited and end.cancels > CANCELS and end.cancels % 2 == 0
    return [CancelJob(attempt.tag, attempt.batch_id, forced=in_vain)]


def _force(attempt: Attempt, end: Ending) -> List[Any]:
    """Let the batch system forget a job that it lists still, although a plain cancel of it may hang."""
    if not attempt.batch_id or not end.listed:
        return []
    end.cancelling += 1
    end.cancels += 1
    return [CancelJob(attempt.tag, attempt.batch_id, forced=True)]


def _force_at(attempt: Attempt, now: int) -> int:
    """The instant at which a user's wish for a forced cancel is granted: at once if the node gives no sign of life."""
    return now if attempt.silent_since is not None else now + FORCED_AFTER


def _hurry(attempt: Attempt, now: int) -> List[Any]:
    end = attempt.ending
    if end is not None:
        end.force_at = _force_at(attempt, now)
        if end.cancel_at is not None:
            end.cancel_at = now
    return [SendToWrapper(attempt.tag, attempt.stop)] if attempt.connected else []


def _update_listing(
    core: Core, now: int, attempt: Attempt, listed: Optional[JobStatus], accounted: Optional[JobStatus]
) -> List[Any]:
    end = attempt.ending
    assert end is not None
    found = [status for status in (listed, accounted) if status is not None]
    for status in found:
        attempt.note(status)
    end.statuses = found or end.statuses
    end.check_at = end.check_backoff.after(now)
    end.listed = listed is not None and listed.state != ENDED
    if listed is not None and end.listed:
        attempt.sign_at = now
        never_cancelled = end.cancel_at is None and not end.cancelling
        if never_cancelled or listed.batch_id != attempt.batch_id:  # just found, or a second job after a doubt
            attempt.batch_id, end.cancel_at = listed.batch_id, now
        return _report_stuck(core, now, attempt, listed) if attempt.cancelled else []
    end.cancel_at = end.force_at = None  # what is not listed needs no other cancel, unless it is seen there again
    end.ended = any(_ended(attempt, status) for status in end.statuses)
    if end.void is None and end.void_at is None:
        end.check_at = None  # the claim is about to be known, and shows more than another look: see `revoked`
    return _conclude(core, now, attempt)


def _conclude(core: Core, now: int, attempt: Attempt) -> List[Any]:
    end = attempt.ending
    assert end is not None
    if end.listed or not _harmless(core, now, attempt, end):
        return []
    attempt.ending, attempt.cleaned_up, attempt.cleaned_up_at = None, True, now
    actions = submit_replies.given_up(attempt)
    actions += launcher_end.report(core, now, attempt.tag, CleanedUp(attempt.tag, now)) if attempt.cancelled else []
    return actions + _forget_cleaned(attempt)


def _forget_cleaned(attempt: Attempt) -> List[Any]:
    ids, attempt.clean_ids = attempt.clean_ids, []
    return forget(attempt, ids) if ids else []


def _harmless(core: Core, now: int, attempt: Attempt, end: Ending) -> bool:
    """Return whether an attempt that the queue does not list can do nothing any more."""
    if end.void:
        return True
    several = attempt.doubtful or not attempt.undoubted
    if end.void is None and (several or end.void_at is None):
        return False  # until the claim is known, a batch job that comes late could win it
    if attempt.surely_ended:
        return True
    silent = now - attempt.sign_at
    nowhere_else = not attempt.elsewhere or silent >= until_ended(core.limits.orphan_timeout, _grace(core, attempt))
    if end.ended and nowhere_else:
        return True
    return not attempt.connected and silent >= core.limits.orphan_timeout + core.limits.grace


def _ended(attempt: Attempt, status: JobStatus) -> bool:
    """Return whether the batch system knows that nothing runs.

    A node that is cut off runs on, whatever its server decides.

    It knows nothing of what it lost. It may report that a job was to end, by a cancel or preemption, at its walltime or
    a restart, without having reached the node: used if the connection of the wrapper that won the claim was closed from
    there, so that it is gone.
    """
    if status.state != ENDED:
        return False
    if status.ending in _DECIDED or attempt.restarted:
        return attempt.closed and not attempt.connected
    return status.ending not in (LOST, NOT_STARTED)


def _grace(core: Core, attempt: Attempt) -> int:
    program = attempt.request.program if attempt.request is not None else {}
    return int(program.get("grace", core.limits.grace / SECOND) * SECOND)


def _report_stuck(core: Core, now: int, attempt: Attempt, listed: JobStatus) -> List[Any]:
    """Report once that the batch system still lists a job after repeated cancels, as after the end of a node's daemon.

    koalad need not wait for it. The batch system is asked to end it all the same, ever more seldom, until it lists it
    no more.
    """
    end = attempt.ending
    if end is None or end.stuck or end.cancelling or end.cancels <= STUCK_CANCELS or now - end.began_at < STUCK_AFTER:
        return []
    end.stuck = True
    return launcher_end.report(core, now, attempt.tag, Stuck(attempt.tag, now, _stuck_error(end, listed)))


def _stuck_error(end: Ending, listed: JobStatus) -> Dict[str, Any]:
    """The failure, with the words of a cancel that failed, else of the list."""
    how = "%s, %s" % (listed.state, listed.reason) if listed.reason else listed.state
    message = "The batch system lists batch job %s still (%s), after %d cancels." % (listed.batch_id, how, end.cancels)
    error = failure("stuck", "cluster", message, _STUCK_ADVICE)
    refused = end.refused or {}
    quoted = {name: refused[name] for name in ("command", "exit_status", "words") if refused.get(name)}
    return dict(error, **(quoted or {"words": listed.reason}))
