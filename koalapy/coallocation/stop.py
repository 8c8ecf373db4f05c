"""Stopping a job: everything of it is cancelled first; what cannot be cancelled now need not be waited for."""

from koalapy.attempts.cancel import can_be_cancelled, cancel
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.job import Component, Debt, Job, Outcome
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant


def stop_job(core: Core, now: Instant, job: Job, outcome: Outcome | None = None, reason: Reason | None = None) -> None:
    """Cancel all that is left of the job.

    The first outcome counts, but a user's cancel overrides one that is no end.
    """
    if job.state is not JobState.STOPPING:
        job = account_held(job, now).transition(JobState.STOPPING, outcome=outcome, reason=reason)
        of_what = {"sweep": True} if job.runner is not None else {}
        core.records.note(now, job.id, "job_stopping", outcome=str(outcome), **of_what, **code_and_message(reason))
    elif outcome is Outcome.CANCELLED and not (job.outcome and job.outcome.ends):
        job = job.replace(outcome=outcome, reason=reason)
    core.records.put(job)
    for component in job.live:
        cancel(core, job.attempt_of(component), job.forced)


def owe_what_cannot_be_cancelled(core: Core, now: Instant, job: Job) -> Job:
    """Record batch jobs that cannot be ended as debts, so that the job need not wait for their clusters.

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
        core.records.note_attempt(
            now, attempt, component.cluster, "debt_recorded", batch_id=batch_id, **code_and_message(why)
        )
        job = job.with_component(component.clean_up(now))
    return core.records.put(job)


def _may_run(component: Component) -> bool:
    """Return whether its program may be running: one that is only taken for lost may live on."""
    taken_for_lost = component.released_at is not None and component.unknown_since is not None
    return component.is_released or taken_for_lost


def account_held(job: Job, now: Instant) -> Job:
    """Add what its components held at their barriers until now, in processor-microseconds.

    Each is accounted once: when it is released or ends, or when its job stops.
    """
    if job.state is not JobState.CLAIMING:
        return job
    held = sum(
        component.processors * max(0, now - component.at_barrier_at)
        for component in job.components
        if component.state is ComponentState.AT_BARRIER and component.at_barrier_at is not None
    )
    return job.replace(held=job.held + held) if held else job


def code_and_message(reason: Reason | None) -> dict[str, str]:
    """Return a job's reason as history keeps it; empty without one."""
    return {"code": reason.code, "message": str(reason)} if reason else {}
