"""Promises about a job's records: transitions of the table, one final state, bounds on every retry."""

from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.identity import JobId
from koalapy.model.job import History, Job, Outcome
from koalapy.model.request import RetryOn
from koalapy.model.settings import Settings
from koalapy.model.states import JOB_TRANSITIONS, JobState

_AFTER = {
    "job_submitted": JobState.WAITING,
    "sweep_admitted": JobState.RUNNING,
    "job_claimed": JobState.CLAIMING,
    "job_released": JobState.RUNNING,
    "job_stopping": JobState.STOPPING,
    "job_requeued": JobState.WAITING,
    "job_unheld": JobState.WAITING,
    "job_held": JobState.HELD,
    "job_done": JobState.DONE,
    "job_failed": JobState.FAILED,
    "job_cancelled": JobState.CANCELLED,
}
_NEXT = {"job_held": Outcome.HOLD, "job_unheld": Outcome.GIVE_BACK}  # of a job that still gives back
_COUNTED = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED, "lost": RetryOn.LOST}


@dataclass(slots=True)
class _Story:
    """A job by its history alone."""

    state: JobState | None = None
    outcome: Outcome | None = None
    submissions: int = 0
    completions: int = 0
    ends: int = 0


class Jobs:
    """`committed` after every commit; `before` are the jobs as they were committed before it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stories: dict[JobId, _Story] = {}

    def committed(self, change: Change, before: Mapping[JobId, Job]) -> None:
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            if line.kind in _AFTER:
                self._follow(line, jobs.get(line.job) or before[line.job])
        for job in jobs.values():
            self._agrees(job, before.get(job.id))

    def _follow(self, line: History, job: Job) -> None:
        story = self._stories.setdefault(line.job, _Story())
        after = _AFTER[line.kind]
        if story.state is JobState.STOPPING and line.kind in _NEXT:
            story.outcome = _NEXT[line.kind]
            return
        if line.kind == "job_requeued":
            after = self._back(story, job)
        legal = story.state is None or after in JOB_TRANSITIONS[story.state]
        promise(legal, Promise.ENDS, "job", line.job, "goes from", story.state, "to", after)
        if after is JobState.STOPPING:
            self._stopping(story, line, job)
        if after is JobState.FAILED and story.state is JobState.STOPPING:
            self._failed(story, job)
        story.ends += after.final
        promise(story.ends <= 1, Promise.ENDS, "job", line.job, "ends a second time")
        story.state = after

    def _stopping(self, story: _Story, line: History, job: Job) -> None:
        """Check that an outcome counts as a completion failure exactly if the job's user wants it so."""
        story.outcome = Outcome(line.details["outcome"])
        wanted = _COUNTED.get(line.details.get("code", ""))
        if wanted is None or story.state is not JobState.RUNNING:
            return
        expected = Outcome.COMPLETION_FAILURE if wanted in job.request.retry_on else Outcome.FAILED
        promise(story.outcome is expected, Promise.ENDS, "job", job.id, "of", wanted, "becomes", story.outcome)

    def _back(self, story: _Story, job: Job) -> JobState:
        """A failure is counted; at its bound the job does not come back."""
        submissions, completions = self._bounds(job)
        if story.outcome is Outcome.SUBMISSION_FAILURE:
            story.submissions += 1
            left = story.submissions < submissions
        else:
            failed = story.outcome is Outcome.COMPLETION_FAILURE
            story.completions += failed
            story.submissions = 0 if failed else story.submissions
            left = story.completions <= completions
        promise(left, Promise.ENDS, "job", job.id, "is tried again after", story.submissions, story.completions)
        return JobState.HELD if story.outcome is Outcome.HOLD else JobState.WAITING

    def _failed(self, story: _Story, job: Job) -> None:
        """No sooner than at its bound."""
        submissions, completions = self._bounds(job)
        if story.outcome is Outcome.SUBMISSION_FAILURE:
            story.submissions += 1
            promise(story.submissions >= submissions, Promise.ENDS, "job", job.id, "fails after", story.submissions)
        elif story.outcome is Outcome.COMPLETION_FAILURE:
            story.completions, story.submissions = story.completions + 1, 0
            promise(story.completions > completions, Promise.ENDS, "job", job.id, "fails after", story.completions)

    def _bounds(self, job: Job) -> tuple[int, int]:
        """Return the bounds of submission and completion failures. A Launcher is replaced, and not tried again."""
        if job.pilot is not None:
            return 1, 0
        return self._settings.max_submission_failures, self._settings.max_completion_failures

    def _agrees(self, job: Job, before: Job | None) -> None:
        story = self._stories[job.id]
        promise(before is None or not before.state.final, Promise.ENDS, "job", job.id, "changes after its end")
        promise(job.state is story.state, Promise.AGREE, "job", job.id, "is", job.state, "by history", story.state)
        counts = (job.submission_failures, job.completion_failures)
        promise(counts == (story.submissions, story.completions), Promise.ENDS, "job", job.id, "counts", *counts)
        promise(job.state.active or not job.live, Promise.NOTHING_LEFT, "job", job.id, job.state, "has live attempts")
        ended = not job.state.final or job.finished_at is not None
        promise(ended, Promise.AGREE, "job", job.id, "is over, but has no instant of it")
        promise(job.state is not JobState.DONE or job.reason is None, Promise.AGREE, "job", job.id, job.reason)
        promise(job.state is not JobState.FAILED or job.reason, Promise.AGREE, "job", job.id, "has no reason")
