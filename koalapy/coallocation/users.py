"""What users ask of jobs: to be submitted, cancelled, held and released."""

from collections.abc import Callable

from koalapy.coallocation.stopping import stop
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, HoldRequested, JobSubmitted, ReleaseRequested
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.records import Records
from koalapy.model.states import JobState
from koalapy.model.sweep import Runner
from koalapy.model.units import Instant

Asked = JobSubmitted | CancelRequested | HoldRequested | ReleaseRequested


def hear(records: Records, now: Instant, event: Asked) -> bool:
    """Do it, where the job's state allows; whether the scheduling pass must look again."""
    return _REACTIONS[type(event)](records, now, event)


def _submit(records: Records, now: Instant, event: JobSubmitted) -> bool:
    """Once, for each key of its owner's, and while there are ids."""
    if event.key and records.has_key(event.owner, event.key):
        return False
    identity = records.new_job_id()
    if identity is None:
        return False
    space = event.request.parameters
    components = event.request.components if space is None else ()
    job = Job(
        id=identity,
        owner=event.owner,
        request=event.request,
        state=JobState.WAITING,
        place=records.tail(),
        submitted_at=now,
        waiting_since=now,
        components=tuple(Component(index=i, request=each) for i, each in enumerate(components)),
        key=event.key,
        runner=Runner(count=space.count) if space is not None else None,
    )
    records.put(job)
    records.note(now, job.id, "job_submitted", owner=job.owner, type="sweep" if job.runner else str(job.request.type))
    return True


def _cancel(records: Records, now: Instant, event: CancelRequested) -> bool:
    job = records.jobs.get(event.job)
    if job is None or job.state.final:
        return False
    if not job.state.active:
        records.put(job.to(JobState.CANCELLED, finished_at=now, reason=_CANCELLED))
        records.note(now, job.id, "job_cancelled")
        return True
    job = records.put(job.but(forced=job.forced or event.force))
    records.note(now, job.id, "cancel_requested", force=event.force)
    stop(records, now, job, Outcome.CANCELLED, _CANCELLED)
    return True


def _hold(records: Records, now: Instant, event: HoldRequested) -> bool:
    """A job that claims gives back and is held; one that runs is left alone, but for a sweep, whose nodes go."""
    job = records.jobs.get(event.job)
    if job is not None and job.state.queued:
        records.put(job.to(JobState.HELD))
        records.note(now, job.id, "job_held")
    elif job is not None and _may_stop(job):
        stop(records, now, job, Outcome.HOLD)
    elif job is not None and job.outcome is Outcome.GIVE_BACK:
        records.put(job.but(outcome=Outcome.HOLD))
        records.note(now, job.id, "job_held")
    return job is not None


def _may_stop(job: Job) -> bool:
    """Whether it can be held though it has processors."""
    if job.glide is not None:
        return False  # its sweep can
    runs = job.runner is not None and job.state is JobState.RUNNING and not job.collecting
    return job.state is JobState.CLAIMING or runs


def _release(records: Records, now: Instant, event: ReleaseRequested) -> bool:
    """One that is still giving back, to be held, waits again once it has."""
    job = records.jobs.get(event.job)
    if job is None or not (job.state is JobState.HELD or job.outcome is Outcome.HOLD):
        return False
    held = job.state is JobState.HELD
    records.put(job.to(JobState.WAITING, waiting_since=now) if held else job.but(outcome=Outcome.GIVE_BACK))
    records.note(now, job.id, "job_unheld")
    return True


_CANCELLED = Reason("cancelled", "request", "It was cancelled by its user.", "")
_REACTIONS: dict[type, Callable[..., bool]] = {
    JobSubmitted: _submit,
    CancelRequested: _cancel,
    HoldRequested: _hold,
    ReleaseRequested: _release,
}
EVENTS = tuple(_REACTIONS)
