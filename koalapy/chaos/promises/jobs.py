"""Promises about the records of jobs and sweeps: transitions of the table, one final state, bounds on every retry."""

from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.header import Outcome
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import RetryOn
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.work import KIND_OF, Flow, Work

_AFTER: dict[str, JobState] = {
    HistoryKind.WORK_SUBMITTED: JobState.WAITING,
    HistoryKind.MAY_BEGIN: JobState.WAITING,
    HistoryKind.SWEEP_ADMITTED: JobState.RUNNING,
    HistoryKind.JOB_CLAIMED: JobState.CLAIMING,
    HistoryKind.JOB_RELEASED: JobState.RUNNING,
    HistoryKind.WORK_STOPPING: JobState.STOPPING,
    HistoryKind.JOB_ENDED_FIRST: JobState.RUNNING,
    HistoryKind.WORK_REQUEUED: JobState.WAITING,
    HistoryKind.WORK_UNHELD: JobState.WAITING,
    HistoryKind.WORK_HELD: JobState.HELD,
    HistoryKind.WORK_DONE: JobState.DONE,
    HistoryKind.WORK_FAILED: JobState.FAILED,
    HistoryKind.WORK_CANCELLED: JobState.CANCELLED,
}
# What is next for a sweep that still returns its nodes.
_NEXT: dict[str, Outcome] = {HistoryKind.WORK_HELD: Outcome.HOLD, HistoryKind.WORK_UNHELD: Outcome.GIVE_BACK}
_COUNTED = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED, "lost": RetryOn.LOST, "cluster_left": RetryOn.LOST}


@dataclass(slots=True)
class _JobHistory:
    """The state and counts of a job or sweep, derived from its history alone."""

    state: JobState | None = None
    outcome: Outcome | None = None
    submissions: int = 0
    completions: int = 0
    ends: int = 0


class Jobs:
    """The checker of jobs and sweeps. `committed` is called after every commit; `before` are those before it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._histories: dict[JobId, _JobHistory] = {}

    def committed(self, change: Change, before: Mapping[JobId, Work]) -> None:
        changed = {work.id: work for work in change.work}
        for line in change.history:
            if line.kind == HistoryKind.CHOICES_ENDED:
                self._histories[line.job].submissions += 1
            if line.kind in _AFTER:
                self._follow(line, changed.get(line.job) or before[line.job])
        for work in changed.values():
            self._check_record(work, before.get(work.id))

    def _follow(self, line: History, work: Work) -> None:
        history = self._histories.setdefault(line.job, _JobHistory())
        after = _AFTER[line.kind]
        if isinstance(work, Flow) and history.state is None:
            after = JobState.RUNNING
        elif line.details.keys() & {"after", "begins_at"} or line.details.get("state") == "blocked":
            after = JobState.BLOCKED
        if history.state is JobState.STOPPING and line.kind in _NEXT:
            history.outcome = _NEXT[line.kind]
            return
        if line.kind == HistoryKind.WORK_REQUEUED:
            after = self._requeued(history, work)
        table = KIND_OF[type(work)].transitions
        legal = history.state is None or after in table[history.state]
        promise(legal, Promise.ENDS, "job", line.job, "changes from", history.state, "to", after)
        if after is JobState.STOPPING:
            self._stopping(history, line, work)
        if after is JobState.FAILED and history.state is JobState.STOPPING:
            self._failed(history, work)
        history.ends += after.final
        promise(history.ends <= 1, Promise.ENDS, "job", line.job, "ends a second time")
        history.state = after

    def _stopping(self, history: _JobHistory, line: History, job: Work) -> None:
        """Check that an outcome counts as a completion failure exactly if the job's user wants it so."""
        history.outcome = Outcome(line.details["outcome"])
        wanted = _COUNTED.get(line.details.get("code", ""))
        if wanted is None or history.state is not JobState.RUNNING:
            return
        expected = Outcome.COMPLETION_FAILURE if wanted in job.request.retry_on else Outcome.FAILED
        promise(history.outcome is expected, Promise.ENDS, "job", job.id, "of", wanted, "becomes", history.outcome)

    def _requeued(self, history: _JobHistory, job: Work) -> JobState:
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

    def _failed(self, history: _JobHistory, job: Work) -> None:
        """Check that a job that fails has reached its bound."""
        submissions, completions = self._settings.max_submission_failures, self._settings.max_completion_failures
        if history.outcome is Outcome.SUBMISSION_FAILURE:
            history.submissions += 1
            promise(history.submissions >= submissions, Promise.ENDS, "job", job.id, "fails after", history.submissions)
        elif history.outcome is Outcome.COMPLETION_FAILURE:
            history.completions, history.submissions = history.completions + 1, 0
            promise(history.completions > completions, Promise.ENDS, "job", job.id, "fails after", history.completions)

    def _check_record(self, work: Work, before: Work | None) -> None:
        history, identity, state = self._histories[work.id], work.id, work.state
        promise(before is None or not before.state.final, Promise.ENDS, "job", identity, "changes after its end")
        promise(state is history.state, Promise.AGREE, "job", identity, "is", state, "by history", history.state)
        if isinstance(work, Job):
            counts = (work.submission_failures, work.completion_failures)
            found = (history.submissions, history.completions)
            promise(counts == found, Promise.ENDS, "job", identity, "counts", *counts)
            promise(state.active or not work.live, Promise.OUTLIVED, "job", identity, state, "has live attempts")
        ended = not state.final or work.finished_at is not None
        promise(ended, Promise.AGREE, "job", identity, "is final, but has no instant of its end")
        promise(state is not JobState.DONE or work.reason is None, Promise.AGREE, "job", identity, work.reason)
        promise(state is not JobState.FAILED or work.reason, Promise.AGREE, "job", identity, "has no reason")
