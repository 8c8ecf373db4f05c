"""Jobs of a store that was restored from a backup: where they have got to since, so that nothing of them runs twice.

What koalad did after the backup it has forgotten, but the clusters have not: each tells the attempts of such jobs that
left a trace there. A job goes on with the newest of them, where it is; one that may be on a cluster that has not been
heard yet waits.
"""

from dataclasses import replace

from koalapy.coallocation.stop import account_held
from koalapy.core.core import Core
from koalapy.model.events import StoreRestored, WrapperReported
from koalapy.model.identity import FIRST_LAUNCHER, MAX_JOBS, JobId
from koalapy.model.job import Component, Counters, Job
from koalapy.model.records import Records
from koalapy.model.states import JobState
from koalapy.model.units import Instant

UNTIL_KNOWN = Instant(4_102_444_800_000_000)  # the year 2100: no measure of time, but of what is to be known first
JOBS_AHEAD = (
    100_000  # ids that one koalad may have given out since its backup: far more than a day's, and of 16 million
)

_SHOWS_RELEASE = ("released", "running")


def skip_used_ids(counters: Counters) -> Counters:
    """After a backup was restored: ids that may be in use already are left out, and jobs of before are in doubt."""
    return replace(
        counters,
        next_job=min(counters.next_job + JOBS_AHEAD, FIRST_LAUNCHER),
        doubtful_below=counters.next_job,
        next_launcher=min(counters.next_launcher + JOBS_AHEAD, MAX_JOBS),
    )


def on_store_restored(core: Core, now: Instant, event: StoreRestored) -> None:
    """Leave out ids that may be in use, and note in the story of every job of before that it is in doubt."""
    core.mark_dirty()
    core.startup_gate.open()
    core.records.count(skip_used_ids(core.records.counters))
    for job in doubtful(core.records):
        core.records.note(now, job.id, "store_restored")


def bind_waiting(core: Core, now: Instant) -> None:
    """Bind every doubtful job of the wait queue to where it was found, or exclude all clusters until that is known."""
    for job in doubtful(core.records):
        bound = _bound(core, job) if job.state.queued and job.runner is None else job
        if bound == job:
            continue
        core.mark_dirty()
        core.records.put(bound)
        for before, after in zip(job.components, bound.components, strict=True):
            if before != after:
                cluster, attempt = after.request.cluster, after.attempt + 1
                core.records.note(
                    now, job.id, "attempt_recalled", component=after.index, attempt=attempt, cluster=cluster
                )


def _bound(core: Core, job: Job) -> Job:
    kept = tuple((cluster, until) for cluster, until in job.excluded if until != UNTIL_KNOWN)
    if core.recalled.unknown:
        return replace(job, excluded=(*kept, *((cluster, UNTIL_KNOWN) for cluster in core.recalled.clusters)))
    components = tuple(_bound_component(core, job.id, each) for each in job.components)
    request = replace(job.request, components=tuple(each.request for each in components))
    return replace(job, request=request, components=components, excluded=kept)


def _bound_component(core: Core, job: JobId, component: Component) -> Component:
    """The next attempt is the newest one that was made."""
    number, cluster = core.recalled.newest(job, component.index)
    if number <= component.attempt:
        return component
    return replace(component, attempt=number - 1, request=replace(component.request, cluster=cluster))


def doubtful(records: Records) -> list[Job]:
    below = records.counters.doubtful_below
    return [job for job in records.jobs.values() if job.id < below] if below else []


def on_reported(core: Core, now: Instant, event: WrapperReported) -> None:
    """Release the whole job if the report shows a release that this store does not know: it followed the backup."""
    found = core.records.component(event.attempt)
    if found is None or found[1].cleaned_up or found[1].state.final:
        return
    job = found[0]
    shown = event.released_at is not None or event.started_at is not None or event.phase in _SHOWS_RELEASE
    if not shown or job.state is not JobState.CLAIMING or job.id >= core.records.counters.doubtful_below:
        return
    job = account_held(job, now).transition(JobState.RUNNING)
    for component in job.present:
        if not component.state.final:
            job = job.with_component(component.found_released(event.released_at or now))
    core.records.put(job)
    core.records.note(now, job.id, "job_found_released")
