"""Claiming: every component of a job goes to its cluster's batch system (DCS, section 3.5)."""

from collections.abc import Sequence

from koalapy.core.core import Core
from koalapy.model.commands import LauncherWork, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import FilesMoved, FilesStaged
from koalapy.model.identity import MAX_ATTEMPTS
from koalapy.model.job import Component, Job
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import MINUTE, Duration, Instant

WALLTIME_MARGIN = MINUTE
BARRIER_MARGIN = Duration(WALLTIME_MARGIN // 2)  # wrappers leave their barriers so much later than koalad gives up

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
    """Return the work of a Launcher; None for a job of a user."""
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
    """Return the hosts on which everything that the Launcher's sweep ran has failed."""
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
        core.records.note_attempt(now, event.attempt, component.cluster, "files_staged", **told)
