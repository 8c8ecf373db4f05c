"""An attempt's way into the batch system: done once however often it is asked for, looked for after any doubt."""

from typing import Any, List

from koalapy_adapters.kcm.attempts import cancel, submit_replies
from koalapy_adapters.kcm.state.actions import (
    DirectoryStatus,
    Inspect,
    JobSubmitted,
    Look,
    Looked,
    Prepare,
    Prepared,
    StartLockTaken,
    SubmitJob,
    TakeStartLock,
)
from koalapy_adapters.kcm.state.attempt import UNANSWERED, Attempt, Core, Stage
from koalapy_adapters.kcm.sweeps import feed
from koalapy_adapters.messages.koalad import Submit

LOCK_TRIES = 3


def asked(core: Core, now: int, attempt: Attempt, request: Submit, doubt: bool) -> List[Any]:
    """koalad orders the attempt to be submitted. `doubt`: it may be there already."""
    attempt.asked.append(request.id)
    if attempt.request is None:
        attempt.request = request
    if attempt.stage in UNANSWERED:
        return []
    if attempt.cancelled or attempt.stage is Stage.OUT:
        return submit_replies.refuse(attempt) if attempt.ending is None else []
    if attempt.stage is Stage.IN or attempt.batch_id:
        return submit_replies.accept(core, now, attempt, attempt.batch_id)
    attempt.doubtful, attempt.undoubted = doubt, not doubt
    return _look(attempt, Stage.LOOKING) if doubt else _prepare(core, now, attempt)


def looked(core: Core, now: int, attempt: Attempt, outcome: Looked) -> List[Any]:
    """React to what queue and accounting show of an attempt in doubt."""
    attempt.busy = False
    if attempt.cancelled:
        return cancel.begin(core, now, attempt)
    if outcome.error is not None:
        attempt.retry_at = attempt.retry.after(now)
        return []
    found = outcome.listed or outcome.accounted
    if found is not None:
        return submit_replies.accept(core, now, attempt, found.batch_id)
    if attempt.stage is Stage.SEARCHING:
        return _withdraw(attempt)
    attempt.stage = Stage.CHECKING_LOCK
    return _act(attempt, Inspect([attempt.tag], submitting=True))


def inspected(core: Core, now: int, attempt: Attempt, inspection: DirectoryStatus) -> List[Any]:
    """React to the directory of an attempt in doubt that no queue lists: a trace of it means that it was submitted."""
    attempt.busy = False
    if attempt.cancelled:
        return cancel.begin(core, now, attempt)
    if inspection.start_lock == "void":
        attempt.error = submit_replies.VOID
        return cancel.begin(core, now, attempt)
    if inspection.start_lock or inspection.record:
        return submit_replies.accept(core, now, attempt, str((inspection.record or {}).get("batch_id", "")))
    return _prepare(core, now, attempt)


def waits_for_inspection(attempt: Attempt) -> bool:
    return attempt.busy and attempt.stage is Stage.CHECKING_LOCK


def inspection_failed(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """The directory could not be looked into."""
    attempt.busy = False
    if attempt.cancelled:
        return cancel.begin(core, now, attempt)
    attempt.retry_at = attempt.retry.after(now)
    return []


def prepared(core: Core, now: int, attempt: Attempt, outcome: Prepared) -> List[Any]:
    attempt.busy = False
    if attempt.cancelled:
        return cancel.begin(core, now, attempt)
    if outcome.error is not None:
        attempt.error = outcome.error
        return _withdraw(attempt) if attempt.doubtful else submit_replies.refuse(attempt)
    attempt.stage = Stage.SUBMITTING
    return _act(attempt, SubmitJob(attempt.tag))


def submitted(core: Core, now: int, attempt: Attempt, outcome: JobSubmitted) -> List[Any]:
    """The submit command ended. Any output but a clear refusal leaves a doubt."""
    attempt.busy = False
    attempt.batch_id = outcome.batch_id or attempt.batch_id
    attempt.doubtful = attempt.doubtful or outcome.doubt
    if attempt.cancelled:
        return cancel.begin(core, now, attempt)
    if outcome.error is None:
        return submit_replies.accept(core, now, attempt, outcome.batch_id)
    attempt.error = outcome.error
    return _look(attempt, Stage.SEARCHING) if outcome.doubt else _withdraw(attempt)


def start_lock_taken(core: Core, now: int, attempt: Attempt, outcome: StartLockTaken) -> List[Any]:
    """The claim of a failed submit: won, it cannot run any more; lost, it runs."""
    attempt.busy = False
    if attempt.cancelled:
        return cancel.begin(core, now, attempt)
    if outcome.error is not None:
        return _take_lock_again(attempt, now)
    if not outcome.won:
        return _look(attempt, Stage.LOOKING)
    return cancel.begin(core, now, attempt) if attempt.doubtful else submit_replies.refuse(attempt)


def tick(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """Try again what failed for a reason that may pass."""
    if attempt.retry_at is None or now < attempt.retry_at:
        return []
    attempt.retry_at = None
    if attempt.stage is Stage.WITHDRAWING:
        return _act(attempt, TakeStartLock(attempt.tag))
    if attempt.stage is Stage.CHECKING_LOCK:
        return _act(attempt, Inspect([attempt.tag], submitting=True))
    return _look(attempt, attempt.stage)


def _prepare(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """It is in no queue, and nobody has claimed it."""
    request = attempt.request
    assert request is not None
    attempt.stage = Stage.PREPARING
    prepare = Prepare(attempt.tag, request.batch, request.program, request.staged, request.id)
    return _act(attempt, prepare) + feed.fresh(core, now, attempt)


def _look(attempt: Attempt, stage: Stage) -> List[Any]:
    attempt.stage = stage
    return _act(attempt, Look(attempt.tag, attempt.batch_id, submitting=True))


def _withdraw(attempt: Attempt) -> List[Any]:
    attempt.stage, attempt.tries = Stage.WITHDRAWING, 0
    return _act(attempt, TakeStartLock(attempt.tag))


def _take_lock_again(attempt: Attempt, now: int) -> List[Any]:
    """The batch system refused it clearly, so that an answer need not wait for a broken directory for ever."""
    attempt.tries += 1
    if attempt.tries >= LOCK_TRIES and not attempt.doubtful:
        return submit_replies.refuse(attempt)
    attempt.retry_at = attempt.retry.after(now)
    return []


def _act(attempt: Attempt, action: Any) -> List[Any]:
    attempt.busy = True
    return [action]
