"""The turn of a job that waits for others: it comes when all of them are done, and never once one has failed.

Such a job is blocked. It enters the wait queue only when its turn has come, so its resources are acquired as late as
possible (multistage co-allocation, section 5). A failure is passed on to all that depends on it (section 7).
"""

from collections.abc import Iterator, Mapping

from koalapy.coallocation.flows.progress import count_end
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.model.sweep import Work
from koalapy.model.units import Instant

PREREQUISITE_FAILED = "prerequisite_failed"
_LONGEST_CHAIN = 8  # jobs that a reason names; more lie between the last two
_Causes = Mapping[JobId, Work]  # of each that failed for another's sake, that other


def settle(core: Core, now: Instant) -> bool:
    """Let each job take its turn, or fail, whose prerequisites have ended since the last call, and count ends in flows.

    All of it happens in the commit that ends the prerequisites. Returns whether a job entered the wait queue.
    """
    ended = core.prerequisites.ended
    causes: dict[JobId, Work] = {}
    entered = False
    for job in ended:  # it grows: what fails has dependants too
        for each in core.prerequisites.release_dependants(job.id):
            dependant = core.records.work(each)
            if dependant is None or dependant.state.final:
                continue
            if job.state is not JobState.DONE:
                causes[each] = job
                _fail(core, now, dependant, causes)
            elif not core.prerequisites.awaited(each):
                entered |= _take_turn(core, now, dependant)
        if job.part_of is not None:
            count_end(core, now, job)
    ended.clear()
    return entered


def _take_turn(core: Core, now: Instant, job: Work) -> bool:
    """Let the job arrive in the wait queue; a held one waits there only once it is released."""
    core.records.change_work(job, position=core.records.new_tail_position())
    if job.state is not JobState.BLOCKED:
        return False
    core.records.change_work(job, state=JobState.WAITING, waiting_since=now)
    core.records.note(now, job.id, "prerequisites_done")
    core.mark_dirty()
    return True


def _fail(core: Core, now: Instant, job: Work, causes: _Causes) -> None:
    chain = list(_chain(job, causes))
    root = chain[-1]
    which = [f"job {each.id} ({each.request.name})" for each in chain[: _LONGEST_CHAIN - 1]]
    if len(chain) >= _LONGEST_CHAIN:
        between = len(chain) - _LONGEST_CHAIN
        which.append(f"{f'{between} others and ' if between else ''}job {root.id} ({root.request.name})")
    why = f": {root.reason.message}" if root.reason else "."
    ended = "failed" if root.state is JobState.FAILED else "was cancelled"
    message = f"It waited for {', which waited for '.join(which)}, which {ended}{why}"
    advice = f"`koala explain {root.id}` has the details. Submit what is missing once its cause is removed."
    reason = Reason(PREREQUISITE_FAILED, "request", message, advice)
    core.records.change_work(job, state=JobState.FAILED, reason=reason, finished_at=now)
    named = [each.id for each in chain[:_LONGEST_CHAIN]]
    core.records.note(now, job.id, "work_failed", code=reason.code, message=str(reason), chain=named)


def _chain(job: Work, causes: _Causes) -> Iterator[Work]:
    """Yield the prerequisite that did not end well, and so on to the job that began it."""
    cause = causes.get(job.id)
    while cause is not None:
        yield cause
        cause = causes.get(cause.id)
