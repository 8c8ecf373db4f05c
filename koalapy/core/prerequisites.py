"""Index of the jobs that wait for others to be done."""

from collections.abc import Collection, Iterable, Mapping

from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job


class Prerequisites(Index):
    """An index of the jobs whose prerequisites are not all done.

    `ended`: jobs that became final since the list was last cleared, and for which another job waits, or of a flow.
    `left`: by flow, the number of its jobs whose end is not counted yet.
    """

    def __init__(self) -> None:
        self.ended: list[Job] = []
        self.left: dict[JobId, int] = {}
        self._dependants: dict[JobId, list[JobId]] = {}
        self._unmet: dict[JobId, int] = {}

    def survey(self, jobs: Mapping[JobId, Job], unreadable: Collection[JobId]) -> None:
        """Enter the jobs of a store that wait for others. `unreadable`: those that are not final and not among `jobs`.

        Any other prerequisite that is not among `jobs` was done: else the commit that ended it would have ended all
        that waits for it.
        """
        for job in jobs.values():
            if job.request.after:
                self.enter(job.id, [each for each in job.request.after if each in jobs or each in unreadable])
            if job.flow is not None:
                self.left[job.id] += sum(each in job.flow.jobs_of(job.id) for each in unreadable)

    def enter(self, job: JobId, unmet: Iterable[JobId]) -> None:
        """Note that the job waits for these, which are not final."""
        count = 0
        for each in unmet:
            self._dependants.setdefault(each, []).append(job)
            count += 1
        if count:
            self._unmet[job] = count

    def awaited(self, job: JobId) -> bool:
        """Return whether the job waits for another."""
        return job in self._unmet

    def release_dependants(self, prerequisite: JobId) -> list[JobId]:
        """Return the jobs that waited for this one, each once, and note that they do not wait for it any more."""
        dependants = self._dependants.pop(prerequisite, [])
        for each in dependants:
            unmet = self._unmet.pop(each, 0) - 1
            if unmet > 0:
                self._unmet[each] = unmet
        return dependants

    def added(self, job: Job) -> None:
        if job.flow is not None:
            self.left.setdefault(job.id, 0)
        if job.part_of is not None:
            self.left[job.part_of] = self.left.get(job.part_of, 0) + 1

    def became_final(self, job: Job) -> None:
        self._unmet.pop(job.id, None)
        self.left.pop(job.id, None)
        if job.part_of is not None or job.id in self._dependants:
            self.ended.append(job)
