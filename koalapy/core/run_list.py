"""Index of the run list: where jobs are being claimed, and which hold only a part of what they need."""

from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.states import JobState


class RunList:
    """An index over the jobs. `dirty`, `timers_dirty`: those changed since each was last cleared, in no order.

    `split`: claiming jobs with an attempt whose batch job has started and one whose has not.
    """

    def __init__(self) -> None:
        self.claimed_on: dict[str, int] = {}  # attempts of claiming jobs, patient ones left out; none: it is not there
        self.split: dict[JobId, None] = {}
        self.dirty: dict[JobId, None] = {}  # something may follow for them
        self.timers_dirty: dict[JobId, None] = {}  # their next moments may be others
        self._claims: dict[JobId, tuple[str | None, ...]] = {}

    def changed(self, before: Job | None, after: Job | None) -> None:
        if after is None:
            if before is not None:
                self.dirty.pop(before.id, None)
                self.timers_dirty.pop(before.id, None)
            return  # all else was left when it ended
        self.mark_dirty(after.id)
        claiming = after.state is JobState.CLAIMING
        if not claiming and (before is None or before.state is not JobState.CLAIMING):
            return
        live = after.live if claiming else ()
        self._count(after.id, () if after.patient else tuple(component.cluster for component in live))
        started = [component.allocated_at is not None for component in live]
        if any(started) and not all(started):
            self.split[after.id] = None
        else:
            self.split.pop(after.id, None)

    def mark_dirty(self, job: JobId) -> None:
        """Something that it depends on has changed."""
        self.dirty[job] = self.timers_dirty[job] = None

    def _count(self, job: JobId, clusters: tuple[str | None, ...]) -> None:
        before = self._claims.pop(job, ())
        if clusters:
            self._claims[job] = clusters
        if before == clusters:
            return
        for cluster in before:
            self._add(cluster, -1)
        for cluster in clusters:
            self._add(cluster, 1)

    def _add(self, cluster: str | None, count: int) -> None:
        assert cluster is not None
        left = self.claimed_on.get(cluster, 0) + count
        if left:
            self.claimed_on[cluster] = left
        else:
            del self.claimed_on[cluster]
