"""Jobs of a store that was restored from a backup: where they have got to since, so that nothing of them runs twice.

What koalad did after the backup it has forgotten, but the clusters have not: each tells the attempts of such jobs that
left a trace there. A job goes on with the newest of them, where it is; one that may be on a cluster that has not been
heard yet waits.
"""

from dataclasses import replace

from koalapy.coallocation.stop import account_held
from koalapy.core.core import Core
from koalapy.model.events import StoreRestored, WrapperReported
from koalapy.model.identity import FIRST_LAUNCHER, MAX_JOBS
from koalapy.model.job import Counters, Job
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
    if not core.records.counters.doubtful_below:
        return
    for job in doubtful(core.records):
        if job.state.queued and job.runner is None:
            _bind(core, now, job)


def _bind(core: Core, now: Instant, job: Job) -> None:
    kept = tuple((cluster, until) for cluster, until in job.excluded if until != UNTIL_KNOWN)
    if core.recalled.unknown:
        excluded = (*kept, *((cluster, UNTIL_KNOWN) for cluster in core.recalled.clusters))
        if excluded != job.excluded:
            core.mark_dirty()
            core.records.change(job, excluded=excluded)
        return
    found = [core.recalled.newest(job.id, index) for index in range(len(job.request.components))]
    newer = {index: (number, cluster) for index, (number, cluster) in enumerate(found) if number > job.number_of(index)}
    if not newer and kept == job.excluded:
        return
    core.mark_dirty()
    components, numbers = list(job.request.components), [job.number_of(index) for index in range(len(found))]
    for index, (number, cluster) in newer.items():  # the next attempt is the newest one that was made
        components[index], numbers[index] = replace(components[index], cluster=cluster), number - 1
        core.records.note(now, job.id, "attempt_recalled", component=index, attempt=number, cluster=cluster)
    request = replace(job.request, components=tuple(components))
    core.records.change(job, request=request, numbers=tuple(numbers), excluded=kept)


def doubtful(records: Records) -> list[Job]:
    below = records.counters.doubtful_below
    return [job for job in records.jobs.values() if job.id < below] if below else []


def on_reported(core: Core, now: Instant, event: WrapperReported) -> None:
    """Release the whole job if the report shows a release that this store does not know: it followed the backup."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state.ended:
        return
    job = core.records.jobs[attempt.id.job]
    shown = event.released_at is not None or event.started_at is not None or event.phase in _SHOWS_RELEASE
    if not shown or job.state is not JobState.CLAIMING or job.id >= core.records.counters.doubtful_below:
        return
    account_held(core, now, job)
    for each in job.present:
        if not each.state.ended:
            core.records.find_released(each, event.released_at or now)
    core.records.change(job, state=JobState.RUNNING)
    core.records.note(now, job.id, "job_found_released")
