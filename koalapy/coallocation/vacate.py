"""Jobs that make room for one of higher priority: they go back to their positions in the wait queue, uncounted."""

from collections.abc import Iterable

from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.units import Instant


def vacate(core: Core, now: Instant, job: Job, victims: Iterable[JobId]) -> None:
    """Vacate jobs for one that is claimed in the same step, and note it in the histories of all."""
    priority = job.request.priority
    advice = "It keeps its position in the queue; nothing is counted."
    reason = Reason("vacated", "transient", f"Job {job.id}, of priority {priority}, needs its processors.", advice)
    core.records.note(now, job.id, "job_preempts", jobs=list(victims))
    core.records.change(job, preempted=True)
    for victim in victims:
        stop_job(core, now, core.records.jobs[victim], Outcome.VACATED, reason)
