"""What becomes of a job that stops: everything of it is ended first, then its outcome is settled."""

from dataclasses import replace

from koalapy.core.core import Core
from koalapy.model.commands import CancelAttempt, CollectOutput, ForgetAttempt, Of
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptCleanedUp, AttemptStuck
from koalapy.model.identity import AttemptId
from koalapy.model.job import Component, Debt, Job, Outcome, OutputHome
from koalapy.model.request import KeepOutput
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant


def stop_job(core: Core, now: Instant, job: Job, outcome: Outcome | None = None, reason: Reason | None = None) -> None:
    """End whatever of the job is left. The first outcome counts, but a user's cancel overrides one that is no end."""
    if job.state is not JobState.STOPPING:
        job = account_held(job, now).transition(JobState.STOPPING, outcome=outcome, reason=reason)
        of_what = {"sweep": True} if job.runner is not None else {}
        core.records.note(now, job.id, "job_stopping", outcome=str(outcome), **of_what, **_because(reason))
    elif outcome is Outcome.CANCELLED and not (job.outcome and job.outcome.ends):
        job = job.replace(outcome=outcome, reason=reason)
    for component in job.live:
        job = cancel_attempt(core, job, component)
    core.records.put(job)


def cancel_attempt(core: Core, job: Job, component: Component) -> Job:
    """Revoke and cancel one attempt, once (twice if forced); AttemptCleanedUp says when nothing of it is left.

    The job with a note of it is to be put by the caller.
    """
    component = job.components[component.index]
    assert component.cluster is not None
    if component.cleaned_up or (component.cancelling and not job.forced):
        return job
    core.records.command(
        CancelAttempt(
            cluster=component.cluster,
            attempt=job.attempt_of(component),
            batch_id=component.batch_id,
            force=job.forced,
        )
    )
    return job.change_component(component.index, cancelling=True)


def on_cleaned_up(core: Core, now: Instant, event: AttemptCleanedUp) -> None:
    """Nothing of the attempt is left on its cluster: processors may have come free."""
    core.mark_dirty()
    debt = core.records.settle(event.attempt)
    if debt is not None:
        where = {"component": event.attempt.component, "attempt": event.attempt.number, "cluster": debt.cluster}
        core.records.note(now, event.attempt.job, "debt_settled", **where, batch_id=debt.batch_id)
    if debt is not None and debt.past:
        core.records.command(ForgetAttempt(cluster=debt.cluster, attempt=debt.attempt))
    found = core.records.component(event.attempt)
    if found is None or found[1].cleaned_up:
        return
    job, component = found
    core.records.put(job.with_component(component.clean_up(now)))
    core.records.note_component(now, job, component, "component_gone")


def on_cancel_stuck(core: Core, now: Instant, event: AttemptStuck) -> None:
    """Its batch system cannot end it: what follows, see `owe_what_cannot_be_cancelled`."""
    found = core.records.component(event.attempt)
    if found is not None and not found[1].cleaned_up:
        core.records.put(found[0].change_component(found[1].index, stuck=event.reason))


def can_be_cancelled(component: Component, reachable: frozenset[str]) -> bool:
    """Whether its cluster is in reach, and its batch system not known to be at its wits' end."""
    return component.cluster in reachable and component.stuck is None


def owe_what_cannot_be_cancelled(core: Core, now: Instant, job: Job) -> Job:
    """Batch jobs that cannot be ended become debts, so that the job need not wait for their clusters.

    Not where a program may run: then the next try waits (promises 1 and 2), unless there is none, or its user said so.
    """
    nobody_waits = job.outcome is Outcome.FAILED or job.forced
    for component in job.live:
        if component.cluster is None or can_be_cancelled(component, core.information.reachable):
            continue
        if _may_run(component) and not nobody_waits:
            continue
        attempt = job.attempt_of(component)
        why = component.stuck if component.cluster in core.information.reachable else None
        batch_id = component.batch_id
        core.records.owe(Debt(attempt=attempt, cluster=component.cluster, batch_id=batch_id, since=now, stuck=why))
        core.records.note_component(now, job, component, "debt_recorded", batch_id=batch_id, **_because(why))
        job = job.with_component(component.clean_up(now))
    return core.records.put(job)


def _may_run(component: Component) -> bool:
    """Whether its program may be running: not if its end was told, but one that is only taken for lost may live on."""
    taken_for_lost = component.released_at is not None and component.unknown_since is not None
    return component.is_released or taken_for_lost


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
    core.records.note(now, job.id, "job_requeued", state=str(state), **counted, **_because(job.reason))


def _forget(core: Core, attempt: AttemptId, cluster: str | None) -> None:
    """Nobody will ask for what a past try wrote; what is owed is forgotten when it is gone."""
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
        core.records.command(CollectOutput(job=job.id, sources=sources, paths=(), directory="", of=Of.WRITTEN))
    core.records.put(job)
    core.records.note(now, job.id, f"job_{state}", **_because(job.reason))


def account_held(job: Job, now: Instant, only: Component | None = None) -> Job:
    """Add what its components, or only this one, held at their barriers until now, in processor-microseconds.

    Each is accounted once: when it is released or ends, or when its job stops.
    """
    if job.state is not JobState.CLAIMING:
        return job
    held = sum(
        component.processors * max(0, now - component.at_barrier_at)
        for component in ([only] if only else job.components)
        if component.state is ComponentState.AT_BARRIER and component.at_barrier_at is not None
    )
    return job.replace(held=job.held + held) if held else job


def _because(reason: Reason | None) -> dict[str, str]:
    return {"code": reason.code, "message": str(reason)} if reason else {}
