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
    "prerequisites_done": JobState.WAITING,
    "sweep_admitted": JobState.RUNNING,
    "job_claimed": JobState.CLAIMING,
    "job_released": JobState.RUNNING,
    "job_stopping": JobState.STOPPING,
    "job_ended_first": JobState.RUNNING,
    "job_requeued": JobState.WAITING,
    "job_unheld": JobState.WAITING,
    "job_held": JobState.HELD,
    "job_done": JobState.DONE,
    "job_failed": JobState.FAILED,
    "job_cancelled": JobState.CANCELLED,
}
_NEXT = {"job_held": Outcome.HOLD, "job_unheld": Outcome.GIVE_BACK}  # of a sweep that still returns its nodes
_COUNTED = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED, "lost": RetryOn.LOST, "cluster_left": RetryOn.LOST}


@dataclass(slots=True)
class _JobHistory:
    """The state and counts of a job, derived from its history alone."""

    state: JobState | None = None
    outcome: Outcome | None = None
    submissions: int = 0
    completions: int = 0
    ends: int = 0


class Jobs:
    """The checker of job records. `committed` is called after every commit; `before` are the jobs before it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._histories: dict[JobId, _JobHistory] = {}

    def committed(self, change: Change, before: Mapping[JobId, Job]) -> None:
        jobs = {job.id: job for job in change.jobs}
        for line in change.history:
            if line.kind == "choices_ended":
                self._histories[line.job].submissions += 1
            if line.kind in _AFTER:
                self._follow(line, jobs.get(line.job) or before[line.job])
        for job in jobs.values():
            self._check_record(job, before.get(job.id))

    def _follow(self, line: History, job: Job) -> None:
        history = self._histories.setdefault(line.job, _JobHistory())
        after = _AFTER[line.kind]
        if job.flow is not None:
            return  # see Flows
        if "after" in line.details or line.details.get("state") == "blocked":
            after = JobState.BLOCKED
        if history.state is JobState.STOPPING and line.kind in _NEXT:
            history.outcome = _NEXT[line.kind]
            return
        if line.kind == "job_requeued":
            after = self._requeued(history, job)
        legal = history.state is None or after in JOB_TRANSITIONS[history.state]
        promise(legal, Promise.ENDS, "job", line.job, "changes from", history.state, "to", after)
        if after is JobState.STOPPING:
            self._stopping(history, line, job)
        if after is JobState.FAILED and history.state is JobState.STOPPING:
            self._failed(history, job)
        history.ends += after.final
        promise(history.ends <= 1, Promise.ENDS, "job", line.job, "ends a second time")
        history.state = after

    def _stopping(self, history: _JobHistory, line: History, job: Job) -> None:
        """Check that an outcome counts as a completion failure exactly if the job's user wants it so."""
        history.outcome = Outcome(line.details["outcome"])
        wanted = _COUNTED.get(line.details.get("code", ""))
        if wanted is None or history.state is not JobState.RUNNING:
            return
        expected = Outcome.COMPLETION_FAILURE if wanted in job.request.retry_on else Outcome.FAILED
        promise(history.outcome is expected, Promise.ENDS, "job", job.id, "of", wanted, "becomes", history.outcome)

    def _requeued(self, history: _JobHistory, job: Job) -> JobState:
        """Count a failure; check that the job is not requeued beyond its bound."""
        submissions, completions = self._settings.max_submission_failures, self._settings.max_completion_failures
        if history.outcome is Outcome.SUBMISSION_FAILURE:
            history.submissions += 1
            left = history.submissions < submissions
        else:
            failed = history.outcome is Outcome.COMPLETION_FAILURE
            history.completions += failed
            history.submissions = 0 if failed else history.submissions
            left = history.completions <= completions
        promise(left, Promise.ENDS, "job", job.id, "is tried again after", history.submissions, history.completions)
        return JobState.HELD if history.outcome is Outcome.HOLD else JobState.WAITING

    def _failed(self, history: _JobHistory, job: Job) -> None:
        """Check that a job that fails has reached its bound."""
        submissions, completions = self._settings.max_submission_failures, self._settings.max_completion_failures
        if history.outcome is Outcome.SUBMISSION_FAILURE:
            history.submissions += 1
            promise(history.submissions >= submissions, Promise.ENDS, "job", job.id, "fails after", history.submissions)
        elif history.outcome is Outcome.COMPLETION_FAILURE:
            history.completions, history.submissions = history.completions + 1, 0
            promise(history.completions > completions, Promise.ENDS, "job", job.id, "fails after", history.completions)

    def _check_record(self, job: Job, before: Job | None) -> None:
        if job.flow is not None:
            return
        history = self._histories[job.id]
        promise(before is None or not before.state.final, Promise.ENDS, "job", job.id, "changes after its end")
        promise(job.state is history.state, Promise.AGREE, "job", job.id, "is", job.state, "by history", history.state)
        counts = (job.submission_failures, job.completion_failures)
        promise(counts == (history.submissions, history.completions), Promise.ENDS, "job", job.id, "counts", *counts)
        promise(job.state.active or not job.live, Promise.NOTHING_LEFT, "job", job.id, job.state, "has live attempts")
        ended = not job.state.final or job.finished_at is not None
        promise(ended, Promise.AGREE, "job", job.id, "is final, but has no instant of its end")
        promise(job.state is not JobState.DONE or job.reason is None, Promise.AGREE, "job", job.id, job.reason)
        promise(job.state is not JobState.FAILED or job.reason, Promise.AGREE, "job", job.id, "has no reason")
