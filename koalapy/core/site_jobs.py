"""Indices of the jobs that neighbouring sites run for this one, and of those that this one runs for them."""

from collections.abc import Collection

from koalapy.core.due import NEIGHBOURS, DueSteps
from koalapy.model.identity import JobId, is_site, site_of
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.sent import Sent, SentJob
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.model.work import Flow


class SentJobs(Index):
    """An index of the sent jobs.

    `waiting`: those whose turn has come, and that were not sent. `away`: by site, those that were sent, and have not
    ended.
    """

    kinds = (SentJob,)

    def __init__(self) -> None:
        self.waiting: dict[JobId, None] = {}
        self.away: dict[str, dict[JobId, None]] = {}

    def added(self, job: SentJob) -> None:
        self._enter(job)

    def changed(self, job: SentJob, before: JobState, names: Collection[str]) -> None:
        if "state" in names:
            self._enter(job)

    def _enter(self, job: SentJob) -> None:
        self.waiting.pop(job.id, None)
        away = self.away.setdefault(job.site, {})
        away.pop(job.id, None)
        if job.state is JobState.WAITING:
            self.waiting[job.id] = None
        elif job.state.active:
            away[job.id] = None


class ReceivedJobs(Index):
    """An index of the jobs and flows that neighbours have sent.

    `jobs`: by (site, instance of its store, id there). `reported`: what was reported last of each since koalad's start,
    and when. `dirty`: those that have changed since. `ended`: those that have ended since.
    """

    kinds = (Job, Flow)

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.jobs: dict[tuple[str, str, JobId], Job | Flow] = {}
        self.reported: dict[JobId, tuple[Sent, Instant]] = {}
        self.dirty: dict[JobId, None] = {}
        self.ended: list[Job | Flow] = []

    def of(self, site: str) -> list[Job | Flow]:
        """Return those that a site has sent."""
        return [job for (sender, _, _), job in self.jobs.items() if sender == site]

    def added(self, job: Job | Flow) -> None:
        if (key := received_key(job)) is not None:
            self.jobs[key] = job
            self._mark_dirty(job.id)

    def follows(self, job: Job | Flow) -> bool:
        return received_key(job) is not None

    def changed(self, job: Job | Flow, before: JobState, names: Collection[str]) -> None:
        if "state" in names or isinstance(job, Flow):
            self._mark_dirty(job.id)

    def became_final(self, job: Job | Flow) -> None:
        if (key := received_key(job)) is not None:
            del self.jobs[key]
            self.dirty.pop(job.id, None)
            self.reported.pop(job.id, None)
            self.ended.append(job)
            self._due.wake(NEIGHBOURS)

    def _mark_dirty(self, job: JobId) -> None:
        self.dirty[job] = None
        self._due.wake(NEIGHBOURS)


def received_key(job: Job | Flow) -> tuple[str, str, JobId] | None:
    """Return the site that has sent the job, the instance of its store, and the job's id there; None for any other."""
    if not is_site(job.owner) or not job.key:
        return None
    instance, _, number = job.key.rpartition(":")
    return site_of(job.owner), instance, JobId(int(number))


def key_of_received(instance: str, job: JobId) -> str:
    """Return the key under which a received job is submitted: none is submitted twice."""
    return f"{instance}:{job}"
