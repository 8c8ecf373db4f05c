"""Index of the work that waits for other work to be done."""

from collections.abc import Collection, Iterable

from koalapy.core.due import PREREQUISITES, DueSteps
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.sent import SentJob
from koalapy.model.sweep import Sweep
from koalapy.model.work import Flow, Work


class Prerequisites(Index):
    """An index of the jobs, sent jobs and sweeps whose prerequisites are not all done.

    `ended`: those that became final since the list was last cleared, and for which another one waits, or of a flow.
    `left`: by flow, the number of its jobs and sweeps whose end is not counted yet.
    """

    kinds = (Job, Sweep, Flow, SentJob)

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.ended: list[Work] = []
        self.left: dict[JobId, int] = {}
        self._dependants: dict[JobId, list[JobId]] = {}
        self._unmet: dict[JobId, int] = {}

    def survey(self, work: Iterable[Work], unreadable: Collection[JobId]) -> None:
        """Enter what waits for others of a store. `unreadable`: those that are not final and not among `work`.

        Any other prerequisite that is not among `work` was done: else the commit that ended it would have ended all
        that waits for it.
        """
        known = {each.id: each for each in work}
        for found in known.values():
            if isinstance(found, Flow):
                self.left[found.id] += sum(each in found.jobs for each in unreadable)
            elif found.request.after:
                self.enter(found.id, [each for each in found.request.after if each in known or each in unreadable])

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

    def added(self, work: Work) -> None:
        if isinstance(work, Flow):
            self.left.setdefault(work.id, 0)
        elif work.part_of is not None:
            self.left[work.part_of] = self.left.get(work.part_of, 0) + 1

    def became_final(self, work: Work) -> None:
        self.left.pop(work.id, None)
        self._unmet.pop(work.id, None)
        if work.part_of is not None or work.id in self._dependants:
            self.ended.append(work)
            self._due.wake(PREREQUISITES)
