"""Index of the jobs that are suspended for others."""

from collections.abc import Collection

from koalapy.core.due import SUSPENDED, DueSteps
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.states import JobState


class SuspendedJobs(Index):
    """An index of the jobs that are suspended for others. `jobs`: their ids, in the order of suspension."""

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.jobs: dict[JobId, None] = {}

    def added(self, job: Job) -> None:
        if job.suspended_for is not None:
            self.jobs[job.id] = None
            self._due.wake(SUSPENDED)

    def changed(self, job: Job, before: JobState, names: Collection[str]) -> None:
        if "suspended_for" in names:
            self.jobs.pop(job.id, None)
            self.added(job)

    def dropped(self, job: Job) -> None:
        self.jobs.pop(job.id, None)
