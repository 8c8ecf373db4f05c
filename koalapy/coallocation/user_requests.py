"""Reactions to requests of users: submit, cancel, hold and unhold."""

from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, HoldRequested, JobSubmitted, ReleaseRequested
from koalapy.model.job import Job, Outcome
from koalapy.model.states import JobState
from koalapy.model.sweep import Runner
from koalapy.model.units import Instant


def on_job_submitted(core: Core, now: Instant, event: JobSubmitted) -> None:
    """Add a new job, unless its owner has used the key before or all ids are used up."""
    if event.key and core.records.has_key(event.owner, event.key):
        return
    identity = core.records.new_job_id()
    if identity is None:
        return
    space = event.request.parameters
    job = Job(
        id=identity,
        owner=event.owner,
        request=event.request,
        state=JobState.WAITING,
        position=core.records.new_tail_position(),
        submitted_at=now,
        waiting_since=now,
        key=event.key,
        runner=Runner(count=space.count) if space is not None else None,
    )
    core.records.add(job)
    core.records.note(
        now, job.id, "job_submitted", owner=job.owner, type="sweep" if job.runner else str(job.request.type)
    )
    core.mark_dirty()


def on_cancel_requested(core: Core, now: Instant, event: CancelRequested) -> None:
    """Stop a job of the run list; cancel any other job at once."""
    job = core.records.jobs.get(event.job)
    if job is None or job.state.final:
        return None
    if not job.state.active:
        core.mark_dirty()
        core.records.change(job, state=JobState.CANCELLED, finished_at=now, reason=event.reason or _CANCELLED)
        return core.records.note(now, job.id, "job_cancelled")
    core.records.change(job, forced=job.forced or event.force)
    core.records.note(now, job.id, "cancel_requested", force=event.force)
    core.mark_dirty()
    return stop_job(core, now, job, Outcome.CANCELLED, event.reason or _CANCELLED)


def on_hold_requested(core: Core, now: Instant, event: HoldRequested) -> None:
    """Hold a queued job; a claiming job gives back first, and a running sweep its nodes.

    A running job is not held.
    """
    job = core.records.jobs.get(event.job)
    if job is not None and job.state.queued:
        core.records.change(job, state=JobState.HELD)
        core.records.note(now, job.id, "job_held")
    elif job is not None and _may_stop(job):
        stop_job(core, now, job, Outcome.HOLD)
    elif job is not None and job.outcome is Outcome.GIVE_BACK:
        core.records.change(job, outcome=Outcome.HOLD)
        core.records.note(now, job.id, "job_held")
    if job is not None:
        core.mark_dirty()


def _may_stop(job: Job) -> bool:
    """Return whether a job of the run list can be stopped to be held: a claiming job, or a running sweep."""
    if job.pilot is not None:
        return False  # only its sweep can be held
    runs = job.runner is not None and job.state is JobState.RUNNING and not job.collecting
    return job.state is JobState.CLAIMING or runs


def on_release_requested(core: Core, now: Instant, event: ReleaseRequested) -> None:
    """Unhold the job. One that still gives back, to be held, waits again after that."""
    job = core.records.jobs.get(event.job)
    if job is None or not (job.state is JobState.HELD or job.outcome is Outcome.HOLD):
        return
    if job.state is JobState.HELD:
        core.records.change(job, state=JobState.WAITING, waiting_since=now)
    else:
        core.records.change(job, outcome=Outcome.GIVE_BACK)
    core.records.note(now, job.id, "job_unheld")
    core.mark_dirty()


_CANCELLED = Reason("cancelled", "request", "It was cancelled by its user.", "")
