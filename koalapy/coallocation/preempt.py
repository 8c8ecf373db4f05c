"""Jobs that make room for one of higher priority: they go back to their positions, uncounted, or are suspended."""

from collections.abc import Sequence

from koalapy.coallocation.stop import stop_job
from koalapy.coallocation.suspend import suspend
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.units import Instant


def preempt(core: Core, now: Instant, job: Job, vacated: Sequence[JobId], suspended: Sequence[JobId] = ()) -> None:
    """Vacate and suspend jobs for one that is claimed in the same step, and note it in the histories of all."""
    priority = job.request.priority
    advice = "It keeps its position in the queue; nothing is counted."
    reason = Reason("vacated", "transient", f"Job {job.id}, of priority {priority}, needs its processors.", advice)
    paused: dict[str, object] = {"suspended": list(suspended)} if suspended else {}
    core.records.note(now, job.id, HistoryKind.JOB_PREEMPTS, jobs=list(vacated), **paused)
    core.records.change(job, preempted=True)
    for victim in suspended:
        suspend(core, now, job, victim)
    for victim in vacated:
        stop_job(core, now, core.records.jobs[victim], Outcome.VACATED, reason)
