"""Batch jobs that no cancel ends, since nothing answers for them any more: koalad is told, and need not wait for them.

As when the daemon of their node was killed: what ended meanwhile nobody told the batch system. It is told to end them
all the same, ever more seldom, until it lists them no more.
"""

from typing import Any, Dict, List

from koalapy_adapters.batch.protocol import JobStatus
from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.attempt import Attempt, Core, Ending, failure
from koalapy_adapters.kcm.sweeps import launcher_end
from koalapy_adapters.messages import Stuck

PATIENCE = 60 * SECOND  # with a cancel: a busy batch system needs half of it to kill what ignores signals
CANCELS = 3  # at least, that were in vain
_ADVICE = (
    "Its administrator can remove it: by force, or by starting the batch system's daemon on its node anew."
    " koalapy goes on cancelling it, too."
)


def report(core: Core, now: int, attempt: Attempt, listed: JobStatus) -> List[Any]:
    """Once for each ending, of a job that is listed still."""
    end = attempt.ending
    if end is None or end.lingers or end.cancelling or end.cancels <= CANCELS or now - end.began_at < PATIENCE:
        return []
    end.lingers = True
    return launcher_end.report(core, now, attempt.tag, Stuck(attempt.tag, now, _error(end, listed)))


def _error(end: Ending, listed: JobStatus) -> Dict[str, Any]:
    """With the words of a cancel that failed, else of the list."""
    how = "%s, %s" % (listed.state, listed.reason) if listed.reason else listed.state
    message = "The batch system lists batch job %s still (%s), after %d cancels." % (listed.batch_id, how, end.cancels)
    error = failure("stuck", "cluster", message, _ADVICE)
    refused = end.refused or {}
    told = {name: refused[name] for name in ("command", "exit_status", "words") if refused.get(name)}
    return dict(error, **(told or {"words": listed.reason}))
