"""Retries: what follows for a job when an attempt ends, and when nothing of it is left (DCS, 3.2 and 3.5)."""

from dataclasses import replace

from koalapy.attempts.attempt_end import reason_details
from koalapy.attempts.cancel import cancel
from koalapy.coallocation.stop import code_and_message, stop_job
from koalapy.core.core import Core
from koalapy.model.commands import CollectOutput, ForgetAttempt, OutputKind
from koalapy.model.errors import Reason
from koalapy.model.facts import Ended, Refused
from koalapy.model.identity import AttemptId
from koalapy.model.job import Component, Job, Outcome, OutputHome
from koalapy.model.request import KeepOutput, RetryOn
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import MINUTE, Duration, Instant

EXCLUSION = Duration(10 * MINUTE)


def on_ended(core: Core, now: Instant, event: Ended) -> None:
    """Account what the attempt held at its barrier. If it failed, leave it out, try elsewhere, or stop the job."""
    found = core.records.component(event.attempt)
    if found is None:
        return None
    job, component = found
    if job.state is JobState.CLAIMING and event.held_since is not None:
        held = component.processors * max(0, event.ended_at - event.held_since)
        job = core.records.put(job.replace(held=job.held + held))
    if event.reason is None or job.state is JobState.STOPPING:
        return None
    if job.state is JobState.CLAIMING or not event.released:
        return _give_up(core, now, job, component, event.reason)
    if not component.request.optional:
        stop_job(core, now, job, _outcome(job, event.reason), event.reason.on(component.cluster or ""))


def on_refused(core: Core, now: Instant, event: Refused) -> None:
    """Treat an attempt that will never start like one that could not be submitted."""
    found = core.records.component(event.attempt)
    if found is not None and found[0].state is JobState.CLAIMING:
        _give_up(core, now, *found, event.reason)


def leave_out(core: Core, now: Instant, attempt: AttemptId, reason: Reason, **details: object) -> None:
    """Cancel an optional component's attempt; its job goes on without it."""
    cancel(core, attempt)
    component = core.records.attempt(attempt)
    assert component is not None
    core.records.put_attempt(attempt, component.replace(state=ComponentState.CANCELLED, reason=reason))
    core.records.note_attempt(now, attempt, component.cluster, "component_left_out", **details)


def _outcome(job: Job, reason: Reason) -> Outcome:
    """Return a completion failure for what the job's `retry_on` lists; all else is the program's answer and final."""
    kind = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED}.get(reason.code)
    if kind is None:
        kind = RetryOn.LOST if reason.whose == "transient" else None
    return Outcome.COMPLETION_FAILURE if kind in job.request.retry_on else Outcome.FAILED


def _give_up(core: Core, now: Instant, job: Job, component: Component, reason: Reason) -> None:
    """A component cannot be claimed where it was sent: leave it out, try elsewhere, try again, or fail the job.

    Where only that cluster is at fault it is left out for this job (DESIGN, promise 3); an unordered component then
    tries its next choice uncounted, which is bounded by the number of clusters.
    """
    if job.state is JobState.STOPPING:
        return None
    if component.request.optional:
        return leave_out(core, now, job.attempt_of(component), reason, **reason_details(reason))
    named = component.request.cluster is not None
    refused_there = reason.whose == "cluster" or (reason.whose == "request" and bool(reason.command))
    said = reason.on(component.cluster or "")
    if not refused_there:
        outcome = Outcome.FAILED if reason.whose == "request" else Outcome.SUBMISSION_FAILURE
        return stop_job(core, now, job, outcome, said)
    if named and reason.whose == "request":
        return stop_job(core, now, job, Outcome.FAILED, said)
    job = core.records.put(_exclude(job, component, now))
    core.records.note_attempt(
        now, job.attempt_of(component), component.cluster, "cluster_excluded", until_at=now + EXCLUSION
    )
    others = [name for name in core.information.could_take(component.request) if name not in dict(job.excluded)]
    if not named and others:
        return stop_job(core, now, job, Outcome.GIVE_BACK, said)
    outcome = Outcome.FAILED if reason.whose == "request" else Outcome.SUBMISSION_FAILURE
    return stop_job(core, now, job, outcome, said)


def _exclude(job: Job, component: Component, now: Instant) -> Job:
    kept = {cluster: until for cluster, until in job.excluded if until > now}
    return job.replace(excluded=(*(kept | {component.cluster or "": Instant(now + EXCLUSION)}).items(),))


def apply_outcome(core: Core, now: Instant, job: Job, max_submissions: int, max_completions: int) -> None:
    """Nothing of the job is left: back into the wait queue, or over (DCS, sections 3.2 and 3.5).

    A submission failure is counted, and at the maximum the job is removed. A completion failure is counted, sets the
    submission count back to zero, and the job is resubmitted while its count does not exceed the maximum.
    """
    outcome = job.outcome
    if outcome is Outcome.SUBMISSION_FAILURE:
        failures = job.submission_failures + 1
        job = job.replace(submission_failures=failures)
        return _again(core, now, job) if failures < max_submissions else _over(core, now, job, JobState.FAILED)
    if outcome is Outcome.COMPLETION_FAILURE:
        failures = job.completion_failures + 1
        job = job.replace(completion_failures=failures, submission_failures=0)
        return _again(core, now, job) if failures <= max_completions else _over(core, now, job, JobState.FAILED)
    if outcome in (Outcome.GIVE_BACK, Outcome.HOLD):
        return _back(core, now, job, job.position, JobState.HELD if outcome is Outcome.HOLD else JobState.WAITING)
    return _over(core, now, job, JobState(str(outcome)))


def _again(core: Core, now: Instant, job: Job) -> None:
    _back(core, now, job, core.records.new_tail_position(), JobState.WAITING)


def _back(core: Core, now: Instant, job: Job, position: int, state: JobState) -> None:
    for component in job.components:
        _forget(core, job.attempt_of(component), component.cluster)
    job = job.transition(
        state,
        position=position,
        overtaken=0 if position != job.position else job.overtaken,
        waiting_since=now,
        claimed_at=None,
        started_at=None,
        outcome=None,
        collecting=False,
        components=tuple(_waiting(component) for component in job.components),
    )
    core.records.put(job)
    counted = {"submission_failures": job.submission_failures, "completion_failures": job.completion_failures}
    core.records.note(now, job.id, "job_requeued", state=str(state), **counted, **code_and_message(job.reason))


def _forget(core: Core, attempt: AttemptId, cluster: str | None) -> None:
    """Remove the directory of a past try's attempt, after its pending cancel if there is one."""
    debt = core.records.debts.get(attempt)
    if debt is not None:
        core.records.owe(replace(debt, past=True))
    elif cluster is not None:
        core.records.command(ForgetAttempt(cluster=cluster, attempt=attempt))


def _waiting(component: Component) -> Component:
    return Component(index=component.index, request=component.request, attempt=component.attempt)


def _over(core: Core, now: Instant, job: Job, state: JobState) -> None:
    job = job.transition(state, finished_at=now)
    sources = tuple((each.cluster, job.attempt_of(each)) for each in job.components if each.cluster and each.attempt)
    keeps = job.request.keep_output is KeepOutput.HOME and bool(sources)
    if keeps:
        job = job.replace(output_home=OutputHome.COMING)
        kind = OutputKind.STANDARD_STREAMS
        core.records.command(CollectOutput(job=job.id, sources=sources, paths=(), directory="", kind=kind))
    core.records.put(job)
    core.records.note(now, job.id, f"job_{state}", **code_and_message(job.reason))
