"""Claiming: every component of a job goes to its cluster's batch system (DCS, section 3.5)."""

from collections.abc import Sequence

from koalapy.coallocation.stopping import cancel_attempt, stop_job
from koalapy.core.core import Core
from koalapy.model.commands import LauncherWork, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptSubmitted, FilesMoved, FilesStaged, SubmissionFailed
from koalapy.model.identity import MAX_ATTEMPTS
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import MINUTE, Duration, Instant

WALLTIME_MARGIN = MINUTE
BARRIER_MARGIN = Duration(WALLTIME_MARGIN // 2)  # wrappers leave their barriers so much later than koalad gives up
EXCLUSION = Duration(10 * MINUTE)

NOT_PLACED = Reason("left_out", "transient", "It is optional and did not fit.", "")


def claim(core: Core, now: Instant, job: Job, allocation: Sequence[str | None], patient: bool) -> None:
    """Submit every placed component. Optional ones without a cluster are left out of this try."""
    if any(component.attempt + 1 >= MAX_ATTEMPTS for component in job.components):
        reason = Reason("too_many_attempts", "ours", f"A component was tried {MAX_ATTEMPTS} times.", "Submit it anew.")
        core.records.put(job.transition(JobState.FAILED, reason=reason, finished_at=now))
        return core.records.note(now, job.id, "job_failed", code=reason.code, message=str(reason))
    components = tuple(
        _fresh(component, cluster) for component, cluster in zip(job.components, allocation, strict=True)
    )
    job = job.transition(
        JobState.CLAIMING, claimed_at=now, components=components, reason=None, outcome=None, patient=patient
    )
    core.records.put(job)
    placed = {str(component.index): component.cluster for component in components if component.cluster}
    core.records.note(now, job.id, "job_claimed", clusters=placed)
    for component in job.live:
        core.records.command(_submission(core, job, component))
    return None


def _fresh(component: Component, cluster: str | None) -> Component:
    if cluster is None:
        return Component(
            index=component.index,
            request=component.request,
            attempt=component.attempt,
            state=ComponentState.CANCELLED,
            reason=NOT_PLACED,
        )
    return Component(
        index=component.index,
        request=component.request,
        attempt=component.attempt + 1,
        state=ComponentState.SUBMITTING,
        cluster=cluster,
        cleaned_up=False,
    )


def _submission(core: Core, job: Job, component: Component) -> SubmitAttempt:
    """Asked of the batch system: the program's walltime, the time at the barrier, and a margin (DESIGN, promise 2)."""
    assert component.cluster is not None
    return SubmitAttempt(
        cluster=component.cluster,
        attempt=job.attempt_of(component),
        components=len(job.components),
        request=component.request,
        walltime=Duration(component.request.walltime + core.settings.barrier_timeout + WALLTIME_MARGIN),
        barrier_timeout=Duration(core.settings.barrier_timeout + BARRIER_MARGIN),
        stage_in=job.request.stage_in,
        directory=job.request.directory,
        files=job.request.files,
        lowest=job.pilot is not None,
        avoid=_avoided(core, job, component.cluster),
        launcher=_work(core, job, component),
    )


def _work(core: Core, job: Job, component: Component) -> LauncherWork | None:
    """What a Launcher runs; None for a job that is none."""
    if job.pilot is None:
        return None
    request = core.records.jobs[job.pilot.sweep].request
    assert request.parameters is not None
    template = request.components[0]
    return LauncherWork(
        sweep=job.pilot.sweep,
        space=request.parameters,
        slots=component.processors // max(1, template.processors),
        limit=template.walltime,
        grace=core.settings.scavenging.grace,
    )


def _avoided(core: Core, job: Job, cluster: str) -> tuple[str, ...]:
    """Hosts on which everything that the Launcher's sweep ran has failed."""
    runner = core.records.jobs[job.pilot.sweep].runner if job.pilot is not None else None
    return tuple(host for name, host in runner.left_out if name == cluster) if runner is not None else ()


def on_files_moved(core: Core, now: Instant, event: FilesMoved | FilesStaged) -> None:
    """The claim's time counts from here: a large file that comes on is no cluster that does not answer."""
    found = core.records.component(event.attempt)
    if found is None or found[0].state is not JobState.CLAIMING:
        return
    job, component = found
    if component.state is not ComponentState.SUBMITTING:
        return
    core.records.put(job.replace(claimed_at=now))
    if isinstance(event, FilesStaged):
        told = {"files": event.files, "size": event.size, "version": event.version}
        core.records.note_component(now, job, component, "files_staged", **told)


def on_submitted(core: Core, now: Instant, event: AttemptSubmitted) -> None:
    """Its batch job is in the queue."""
    found = core.records.component(event.attempt)
    if found is None or found[1].cleaned_up:
        return
    job, component = found
    changes: dict[str, object] = {"batch_id": event.batch_id}
    if component.state is ComponentState.SUBMITTING:
        changes |= {"state": ComponentState.QUEUED, "queued_at": now}
    core.records.put(job.change_component(component.index, **changes))
    core.records.note_component(now, job, component, "component_submitted", batch_id=event.batch_id)


def on_submission_failed(core: Core, now: Instant, event: SubmissionFailed) -> None:
    """The attempt is over; what that means for its job is decided here (DCS, section 3.2)."""
    core.mark_dirty()
    found = core.records.component(event.attempt)
    if found is None or found[1].cleaned_up or found[1].cancelling:
        return  # one that is being ended is gone when its cluster says so
    job, component = found
    component = component.replace(state=ComponentState.FAILED, reason=event.reason, ended_at=now).clean_up(now)
    job = core.records.put(job.with_component(component))
    core.records.note_component(now, job, component, "submission_failed", **reason_details(event.reason))
    give_up(core, now, job, job.components[component.index], event.reason)


def reason_details(reason: Reason) -> dict[str, object]:
    """A reason as history keeps it."""
    return {"code": reason.code, "message": str(reason), "words": reason.words}


def give_up(core: Core, now: Instant, job: Job, component: Component, reason: Reason) -> None:
    """A component cannot be claimed where it was sent: leave it out, try elsewhere, try again, or fail the job.

    Where only that cluster is at fault it is left out for this job (DESIGN, promise 3); an unordered component then
    tries its next choice uncounted, which is bounded by the number of clusters.
    """
    if job.state is JobState.STOPPING:
        return None
    if component.request.optional:
        job = cancel_attempt(core, job, component)
        core.records.put(job.change_component(component.index, state=ComponentState.CANCELLED, reason=reason))
        return core.records.note_component(now, job, component, "component_left_out", **reason_details(reason))
    named = component.request.cluster is not None
    refused_there = reason.whose == "cluster" or (reason.whose == "request" and bool(reason.command))
    said = reason.on(component.cluster or "")
    if not refused_there:
        outcome = Outcome.FAILED if reason.whose == "request" else Outcome.SUBMISSION_FAILURE
        return stop_job(core, now, job, outcome, said)
    if named and reason.whose == "request":
        return stop_job(core, now, job, Outcome.FAILED, said)
    job = core.records.put(_exclude(job, component, now))
    core.records.note_component(now, job, component, "cluster_left_out", until_at=now + EXCLUSION)
    others = [name for name in core.information.could_take(component.request) if name not in dict(job.excluded)]
    if not named and others:
        return stop_job(core, now, job, Outcome.GIVE_BACK, said)
    outcome = Outcome.FAILED if reason.whose == "request" else Outcome.SUBMISSION_FAILURE
    return stop_job(core, now, job, outcome, said)


def _exclude(job: Job, component: Component, now: Instant) -> Job:
    kept = {cluster: until for cluster, until in job.excluded if until > now}
    return job.replace(excluded=(*(kept | {component.cluster or "": Instant(now + EXCLUSION)}).items(),))
