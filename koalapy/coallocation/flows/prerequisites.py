"""The turn of a job that waits for others, or for its `begin`.

It comes when all the others are done and the time has come, and never once one of the others has failed.

Such a job is blocked. It enters the wait queue only when its turn has come, so its resources are acquired as late as
possible (multistage co-allocation, section 5). A failure is passed on to all that depends on it (section 7).
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from koalapy.broker.wait_deadlines import enters_queue_at
from koalapy.coallocation.flows.ends import count_end
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.model.work import Work

PREREQUISITE_FAILED = "prerequisite_failed"
_LONGEST_CHAIN = 8  # jobs that a reason names; more lie between the last two


class _Cause(NamedTuple):
    """Why a job fails: `work` did not end well. `root`: where that began. `length`: of the chain from `work` to it."""

    work: Work
    root: Work
    length: int


_Causes = Mapping[JobId, _Cause]  # of each job that failed for another's sake


def step(core: Core, now: Instant) -> None:
    """Let each job take its turn, or fail, whose prerequisites have ended since the last call, and count ends in flows.

    All of it happens in the commit that ends the prerequisites.
    """
    ended = core.prerequisites.ended
    causes: dict[JobId, _Cause] = {}
    for job in ended:  # it grows: what fails has dependants too
        for each in core.prerequisites.release_dependants(job.id):
            dependant = core.records.work(each)
            if dependant is None or dependant.state.final:
                continue
            if job.state is not JobState.DONE:
                above = causes.get(job.id)
                causes[each] = _Cause(job, above.root, above.length + 1) if above else _Cause(job, job, 1)
                _fail(core, now, dependant, causes)
            elif may_begin(core, now, dependant):
                enter_queue(core, now, dependant)
        if job.part_of is not None:
            count_end(core, now, job)
    ended.clear()


def may_begin(core: Core, now: Instant, work: Work) -> bool:
    """Return whether nothing is left for which the work is blocked."""
    until = enters_queue_at(work)
    return not core.prerequisites.awaited(work.id) and (until is None or now >= until)


def enter_queue(core: Core, now: Instant, job: Work) -> None:
    """Let the job arrive in the wait queue; a held one waits there only once it is released."""
    core.records.change_work(job, position=core.records.new_tail_position())
    if job.state is JobState.BLOCKED:
        core.records.change_work(job, state=JobState.WAITING, waiting_since=now)
        core.records.note(now, job.id, HistoryKind.MAY_BEGIN)
        core.mark_dirty()


def _fail(core: Core, now: Instant, job: Work, causes: _Causes) -> None:
    _, root, length = causes[job.id]
    chain = list(islice(_chain(job, causes), _LONGEST_CHAIN))
    which = [f"job {each.id} ({each.request.name})" for each in chain[: _LONGEST_CHAIN - 1]]
    if length >= _LONGEST_CHAIN:
        between = length - _LONGEST_CHAIN
        which.append(f"{f'{between} others and ' if between else ''}job {root.id} ({root.request.name})")
    why = f": {root.reason.message}" if root.reason else "."
    ended = "failed" if root.state is JobState.FAILED else "was cancelled"
    message = f"It waited for {', which waited for '.join(which)}, which {ended}{why}"
    advice = f"`koala explain {root.id}` has the details. Submit what is missing once its cause is removed."
    reason = Reason(PREREQUISITE_FAILED, "request", message, advice)
    core.records.change_work(job, state=JobState.FAILED, reason=reason, finished_at=now)
    core.records.note(
        now, job.id, HistoryKind.WORK_FAILED, code=reason.code, message=str(reason), chain=[each.id for each in chain]
    )


def _chain(job: Work, causes: _Causes) -> Iterator[Work]:
    """Yield the prerequisite that did not end well, and so on to the job that began it."""
    cause = causes.get(job.id)
    while cause is not None:
        yield cause.work
        cause = causes.get(cause.work.id)
