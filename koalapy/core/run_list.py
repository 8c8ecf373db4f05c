"""Index of the run list: where jobs are being claimed, and which hold only a part of what they need."""

from collections.abc import Collection

from koalapy.model.attempt import Attempt
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
        self.missing: dict[JobId, None] = {}  # of this try an attempt is missing, or was
        self._claims: dict[JobId, tuple[str, ...]] = {}

    def added(self, job: Job) -> None:
        self.mark_dirty(job.id)
        if any(attempt.unknown_since is not None for attempt in job.live):
            self.missing[job.id] = None
        if job.state is JobState.CLAIMING:
            self._survey(job)

    def changed(self, job: Job, before: JobState, names: Collection[str]) -> None:
        self.mark_dirty(job.id)
        if "state" in names and JobState.CLAIMING in (before, job.state):
            self._survey(job)
        if not job.attempts:
            self.missing.pop(job.id, None)

    def attempt_changed(self, job: Job, attempt: Attempt, names: Collection[str]) -> None:
        self.mark_dirty(job.id)
        if attempt.unknown_since is not None:
            self.missing[job.id] = None
        if job.state is JobState.CLAIMING and ("allocated_at" in names or attempt.cleaned_up):
            self._survey(job)

    def dropped(self, job: Job) -> None:
        self.missing.pop(job.id, None)
        self.dirty.pop(job.id, None)
        self.timers_dirty.pop(job.id, None)  # all else was left when it ended

    def _survey(self, job: Job) -> None:
        """Count where it claims, and see whether it holds only a part of what it needs."""
        live = job.live if job.state is JobState.CLAIMING else ()
        self._count(job.id, () if job.patient else tuple([attempt.cluster for attempt in live]))
        started = [attempt.allocated_at is not None for attempt in live]
        if True in started and False in started:
            self.split[job.id] = None
        else:
            self.split.pop(job.id, None)

    def mark_dirty(self, job: JobId) -> None:
        """Something that it depends on has changed."""
        self.dirty[job] = self.timers_dirty[job] = None

    def _count(self, job: JobId, clusters: tuple[str, ...]) -> None:
        before = self._claims.pop(job, ())
        if clusters:
            self._claims[job] = clusters
        if before == clusters:
            return
        for cluster in before:
            self._add(cluster, -1)
        for cluster in clusters:
            self._add(cluster, 1)

    def _add(self, cluster: str, count: int) -> None:
        left = self.claimed_on.get(cluster, 0) + count
        if left:
            self.claimed_on[cluster] = left
        else:
            del self.claimed_on[cluster]
