"""The queue's state, rebuilt from scripts, processes and history after its file and the copy were lost."""

from typing import Dict, List

from koalapy_adapters.errors import RequestError
from koalapy_adapters.host import descendants
from koalapy_adapters.localqueue import jobs, script
from koalapy_adapters.localqueue.scheduling import mark, marked, remove_script
from koalapy_adapters.localqueue.spool import Spool, boot, now

_PASSED_OVER = 100000  # ids that may have been assigned since the newest known one
_LOST = "the files of the local queue were damaged, and nothing shows whether this job ran"


def state_of(spool: Spool) -> jobs.State:
    """The state, under the lock; that of a new queue if there is nothing of an older one. Raises OSError.

    If the state was lost, jobs that have processes continue. A job with a script but no process is lost: it may have
    run, and must not run twice. New ids are far above the known ones.
    """
    state = spool.read()
    if state is not None:
        return state
    damaged = spool.set_aside()
    found: Dict[int, jobs.Job] = {number: _recovered(spool, number) for number in spool.scripts()}
    last = max([spool.last_archived(), *found])
    gap = _PASSED_OVER if damaged or found else 0
    return jobs.State(spool.cores(), boot(), last + gap + 1, found)


def _recovered(spool: Spool, number: int) -> jobs.Job:
    wishes = script.directives("")
    try:
        wishes = script.directives(spool.read_script(number))
    except RequestError:
        pass  # the script is damaged: the job is lost in any case
    job = jobs.Job(
        id=number,
        name=wishes["name"],
        directory=wishes["directory"],
        output=wishes["output"],
        processors=wishes["processors"],
        walltime_s=wishes["walltime"],
        submitted_at=now(),
        lowest=bool(wishes["lowest"]),
    )
    pids = marked(mark(spool, job))
    if pids:
        keeper = _keeper_of(pids)  # without one, the repair ends what is left of the job
        start = descendants.start_of(keeper) or 0
        return job._replace(state=jobs.RUNNING, keeper=keeper, keeper_start=start, started_at=now())
    remove_script(spool, job)
    return jobs.ended(job, now(), "lost", reason=_LOST)


def _keeper_of(pids: List[int]) -> int:
    """The process of the local queue that is the parent of one of these; 0 if there is none."""
    for pid in pids:
        parent = descendants.parent_of(pid)
        if parent not in pids and descendants.runs(parent, b"local-queue"):
            return parent
    return 0
