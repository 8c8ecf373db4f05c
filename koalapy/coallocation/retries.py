"""Retries: the effect on a job when an attempt ends, and when nothing of the job is left (DCS, 3.2 and 3.5)."""

import re
from dataclasses import replace

from koalapy.attempts.attempt_end import reason_details
from koalapy.attempts.cancel import cancel
from koalapy.attempts.directories import remove_directory
from koalapy.coallocation import choices, lenders, race, refusals
from koalapy.coallocation.lowering import lower
from koalapy.coallocation.stop import code_and_message, stop_job
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import Reason
from koalapy.model.facts import Ended, Refused
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.job import SUBMIT_LIMIT, Job, KeptOutput
from koalapy.model.lease import holds_lease
from koalapy.model.request import KeepOutput, RetryOn
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.units import Instant

EXCLUSION = refusals.LONGEST_PAUSE
_DIFFERS = re.compile(r"[^\s'\"`]*/|\d+")  # parts of a shell's words that differ from node to node
_FINAL = {
    Outcome.DONE: JobState.DONE,
    Outcome.FAILED: JobState.FAILED,
    Outcome.CANCELLED: JobState.CANCELLED,
}


def on_ended(core: Core, now: Instant, event: Ended) -> None:
    """Account the time that the attempt held processors at its barrier.

    If the attempt failed, leave it out, try another cluster, or stop the job.
    """
    attempt = core.records.attempt(event.attempt)
    if attempt is None:
        return None
    job = core.records.jobs[attempt.id.job]
    if job.state.claiming and event.held_since is not None:
        held = attempt.processors * max(0, event.ended_at - event.held_since)
        core.records.change(job, held_processor_us=job.held_processor_us + held)
    if event.reason is None or race.goes_on(core, now, job, attempt, event.reason, event.refused):
        return None
    if event.refused:
        return _submission_refused(core, now, job, attempt, event.reason)
    if job.state.stopping:
        return None
    if job.state.claiming or not event.released:
        return _give_up(core, now, job, attempt, event.reason)
    if not attempt.request.optional:
        stop_job(core, now, job, outcome_of(job, event.reason), event.reason.on(attempt.cluster))


def on_refused(core: Core, now: Instant, event: Refused) -> None:
    """Treat an attempt that will never start like one that could not be submitted."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or not (job := core.records.jobs[attempt.id.job]).state.claiming:
        return
    if not race.goes_on(core, now, job, attempt, event.reason):
        _give_up(core, now, job, attempt, event.reason)


def omit(core: Core, now: Instant, attempt: Attempt, reason: Reason, **details: object) -> None:
    """Cancel an optional component's attempt; its job goes on without it. `details` go into the history."""
    cancel(core, attempt)
    if attempt.state.ended:
        core.records.change_attempt(attempt, ending=Ending.CANCELLED, reason=reason)
    else:
        core.records.change_attempt(attempt, state=AttemptState.ENDED, ending=Ending.CANCELLED, reason=reason)
    core.records.note_attempt(now, attempt.id, attempt.cluster, HistoryKind.COMPONENT_OMITTED, **details)


def outcome_of(job: Job, reason: Reason) -> Outcome:
    """Return COMPLETION_FAILURE if the job's `retry_on` lists this kind of failure, else FAILED."""
    kind = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED}.get(reason.code)
    if kind is None:
        kind = RetryOn.LOST if reason.whose == "transient" else None
    return Outcome.COMPLETION_FAILURE if kind in job.request.retry_on else Outcome.FAILED


def _submission_refused(core: Core, now: Instant, job: Job, attempt: Attempt, reason: Reason) -> None:
    """React to a refused submission. One that may pass is repeated after a pause, or goes to another cluster."""
    passes = refusals.may_pass(reason)
    lasts = passes and refusals.note(core, now, job, attempt, reason)
    if refusals.of_the_cluster(reason):
        core.information.refused(now, attempt.cluster, job.id, reason)
    if not passes or attempt.request.optional:
        return _give_up(core, now, job, attempt, reason)
    if job.state.stopping:
        return None
    bounded = job.request.retrials is not None and reason.code != SUBMIT_LIMIT and not _others(core, job, attempt)
    counts = lasts or bounded
    stated = refusals.all_of(job, reason) if counts else reason.on(attempt.cluster)
    return stop_job(core, now, job, Outcome.SUBMISSION_FAILURE if counts else Outcome.GIVE_BACK, stated)


def _give_up(core: Core, now: Instant, job: Job, attempt: Attempt, reason: Reason) -> None:
    """Give up the claim of a component on its cluster: leave it out, try elsewhere, try again, or fail the job.

    If only that cluster is at fault, it is excluded for this job for ten minutes. A component that names no cluster is
    then placed on another one, uncounted; the number of clusters bounds these tries. If `setup` fails once more with
    the same words, it is wrong itself and the job fails.
    """
    if job.state.stopping:
        return None
    if attempt.request.optional:
        return omit(core, now, attempt, reason, **reason_details(reason))
    if lenders.leave_out(core, now, job, attempt, reason):
        return stop_job(core, now, job, Outcome.GIVE_BACK, reason.on(attempt.cluster))
    if reason.code == "setup_failed":
        words = _DIFFERS.sub("", reason.words)
        if words == job.setup_words and not _setup_succeeded(job, attempt):
            message = f"{reason.message} It failed in the same way before."
            return stop_job(core, now, job, Outcome.FAILED, replace(reason, message=message).on(attempt.cluster))
        core.records.change(job, setup_words=words)
    named = attempt.request.cluster is not None
    refused_there = reason.whose == "cluster" or (reason.whose == "request" and bool(reason.command))
    stated = reason.on(attempt.cluster)
    if not refused_there:
        outcome = Outcome.FAILED if reason.whose == "request" else Outcome.SUBMISSION_FAILURE
        return stop_job(core, now, job, outcome, stated)
    if job.choices:
        return stop_job(core, now, job, Outcome.SUBMISSION_FAILURE, stated)
    if named and reason.whose == "request":
        return stop_job(core, now, job, Outcome.FAILED, stated)
    refusals.exclude(core, now, job, attempt, EXCLUSION)
    if _others(core, job, attempt):
        return stop_job(core, now, job, Outcome.GIVE_BACK, stated)
    outcome = Outcome.FAILED if reason.whose == "request" else Outcome.SUBMISSION_FAILURE
    return stop_job(core, now, job, outcome, stated)


def _setup_succeeded(job: Job, attempt: Attempt) -> bool:
    """Return whether the attempt's `setup` has succeeded: in an earlier try, or for another component of this one."""
    prepared = [each.request.setup for each in job.present if each.at_barrier_at is not None]
    return job.released_before or attempt.request.setup in prepared


def _others(core: Core, job: Job, attempt: Attempt) -> list[str]:
    """Return the clusters where the component could go instead; none if it names its cluster."""
    if attempt.request.cluster is not None:
        return []
    return [name for name in core.information.could_take(attempt.request) if name not in dict(job.excluded)]


def apply_outcome(core: Core, now: Instant, job: Job) -> None:
    """Put a job of which nothing is left back into the wait queue, or end it (DCS, sections 3.2 and 3.5).

    A submission failure is counted, and at the maximum the job is removed. A completion failure is counted, sets the
    submission count back to zero, and the job is resubmitted while its count does not exceed the maximum. A job that
    has a choice left tries that one at once, and nothing is counted.
    """
    outcome = job.outcome
    assert outcome is not None
    if outcome.ends:
        return _finish(core, now, job, _FINAL[outcome])
    max_submissions, max_completions = _max_failures(core, job)
    if job.choices and outcome in (Outcome.NEXT_CHOICE, Outcome.SUBMISSION_FAILURE):
        choices.refuse(core, now, job, job.reason or choices.BUSY)
        if outcome is Outcome.NEXT_CHOICE:
            return _back(core, now, job, job.position, JobState.WAITING, keeps_choices=True)
        core.records.change(job, reason=choices.no_choice(job))
    if outcome is Outcome.SUBMISSION_FAILURE:
        core.records.change(job, submission_failures=job.submission_failures + 1)
        retried = job.submission_failures < max_submissions
        if retried:
            lower(core, now, job, "failure")
        return _again(core, now, job) if retried else _finish(core, now, job, JobState.FAILED)
    if outcome is Outcome.COMPLETION_FAILURE:
        core.records.change(job, completion_failures=job.completion_failures + 1, submission_failures=0)
        retried = job.completion_failures <= max_completions
        return _again(core, now, job) if retried else _finish(core, now, job, JobState.FAILED)
    return _back(core, now, job, job.position, JobState.HELD if outcome is Outcome.HOLD else JobState.WAITING)


def _max_failures(core: Core, job: Job) -> tuple[int, int]:
    """Return the most submission and completion failures of a user's job."""
    settings, retrials = core.settings, job.request.retrials
    submissions = settings.max_submission_failures if retrials is None else retrials + 1
    return submissions, settings.max_completion_failures


def end_choices(core: Core, now: Instant, job: Job) -> None:
    """Count a submission failure of a waiting job, of whose choices none is left that fits."""
    reason, tail = choices.no_choice(job), core.records.new_tail_position()
    failures = job.submission_failures + 1
    core.records.note(now, job.id, HistoryKind.CHOICES_ENDED, submission_failures=failures, **code_and_message(reason))
    core.records.change(job, submission_failures=failures, reason=reason)
    if failures >= _max_failures(core, job)[0]:
        core.records.change(job, state=JobState.FAILED, finished_at=now)
        return core.records.note(now, job.id, HistoryKind.WORK_FAILED, **code_and_message(reason))
    lower(core, now, job, "failure")
    core.records.change(job, position=tail, overtaken=0, waiting_since=now, choices=(), choice=0)
    return None


def _again(core: Core, now: Instant, job: Job) -> None:
    _back(core, now, job, core.records.new_tail_position(), JobState.WAITING)


def _back(core: Core, now: Instant, job: Job, position: int, state: JobState, keeps_choices: bool = False) -> None:
    """Put the job back. Unless it goes on with its next choice, new ones are made when it is placed again."""
    _remove_directories(core, job)
    released = any(each is not None and each.released_at is not None for each in job.attempts)
    core.records.end_try(
        job,
        state=state,
        position=position,
        overtaken=0 if position != job.position else job.overtaken,
        waiting_since=now,
        claimed_at=None,
        started_at=None,
        outcome=None,
        collecting=False,
        request=job.written or job.request,
        written=None,
        released_before=released or job.released_before,
        suspended_for=None,
        suspensions=0,
        barrier_wait=None,
        given_back=(),
        **({} if keeps_choices else {"choices": (), "choice": 0}),
    )
    counted = {"submission_failures": job.submission_failures, "completion_failures": job.completion_failures}
    core.records.note(
        now, job.id, HistoryKind.WORK_REQUEUED, state=str(state), **counted, **code_and_message(job.reason)
    )


def _remove_directories(core: Core, job: Job) -> None:
    for attempt in job.attempts:
        if attempt is not None and not attempt.is_pending_cancel:  # that of a pending cancel is removed later
            remove_directory(core, attempt)


def _finish(core: Core, now: Instant, job: Job, state: JobState) -> None:
    if holds_lease(job.request):
        _remove_directories(core, job)
        if any(each is not None and each.is_pending_cancel for each in job.attempts):
            core.records.end_try(job)  # so that its directory is removed with the end of the attempt
    core.records.change(job, state=state, finished_at=now)
    sources = tuple([(each.cluster, each.id) for each in job.attempts if each is not None])
    if job.request.keep_output is KeepOutput.HOME and sources:
        core.records.change(job, kept_output=KeptOutput.PENDING)
        kind = OutputKind.STANDARD_STREAMS
        core.records.command(CollectOutput(job=job.id, sources=sources, paths=(), directory="", kind=kind))
    core.records.note(now, job.id, HistoryKind(f"work_{state}"), **code_and_message(job.reason))
