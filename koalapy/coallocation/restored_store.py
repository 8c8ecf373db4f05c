"""Jobs of a restored store: their progress since the backup is found out, so that no program runs twice.

The store does not contain what koalad did after the backup. Each cluster therefore reports the attempts of such jobs
that have left a trace there. A job goes on with the newest of these attempts, on its cluster. It waits until every
cluster has reported.
"""

from dataclasses import replace

from koalapy.broker.groups import is_spread, of_choice
from koalapy.coallocation import race
from koalapy.coallocation.stop import account_barrier_time
from koalapy.core.core import Core
from koalapy.core.due import DOUBTFUL
from koalapy.model.events import StoreRestored, WrapperReported
from koalapy.model.history import HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, LAUNCHERS_END, MAX_COMPONENTS
from koalapy.model.job import Choice, Counters, Job
from koalapy.model.records import Records
from koalapy.model.request import Request
from koalapy.model.states import JobState, WrapperPhase
from koalapy.model.units import Instant
from koalapy.model.work import Work

UNTIL_KNOWN = Instant(4_102_444_800_000_000)  # the year 2100 marks an exclusion until all clusters have reported
JOBS_AHEAD = (
    100_000  # ids that koalad may have given out since the backup: far more than it does in a day, of 16 million
)

_SHOWS_RELEASE = (WrapperPhase.RELEASED, WrapperPhase.RUNNING)


def skip_used_ids(counters: Counters) -> Counters:
    """Return the counters after a restore: they skip ids that may be in use, and mark all earlier jobs as doubtful."""
    return replace(
        counters,
        next_job=min(counters.next_job + JOBS_AHEAD, FIRST_LAUNCHER),
        doubtful_below=counters.next_job,
        next_launcher=min(counters.next_launcher + JOBS_AHEAD, LAUNCHERS_END),
    )


def on_store_restored(core: Core, now: Instant, event: StoreRestored) -> None:
    """Skip ids that may be in use, and note the restore in the history of every doubtful job and sweep."""
    core.mark_dirty()
    core.due.wake(DOUBTFUL)
    core.startup_gate.open()
    core.records.count(skip_used_ids(core.records.counters))
    for each in doubtful(core.records):
        core.records.note(now, each.id, HistoryKind.STORE_RESTORED)


def step(core: Core, now: Instant) -> bool:
    """Bind each doubtful job of the wait queue to the clusters that remember it.

    All clusters are excluded for these jobs until every cluster has reported. It is due in each batch from the restore
    on.
    """
    for each in doubtful(core.records):
        if isinstance(each, Job) and each.state.queued:
            _bind(core, now, each)
    return core.records.counters.doubtful_below > 0


def _bind(core: Core, now: Instant, job: Job) -> None:
    kept = tuple((cluster, until) for cluster, until in job.excluded if until != UNTIL_KNOWN)
    if core.recalled.unknown:
        excluded = (*kept, *((cluster, UNTIL_KNOWN) for cluster in core.recalled.clusters))
        if excluded != job.excluded:
            core.mark_dirty()
            core.records.change(job, excluded=excluded, choices=(), choice=0)
        return
    request = _divided(core, job)
    found = [core.recalled.newest(job.id, index) for index in range(len(request.components))]
    newer = {index: (number, cluster) for index, (number, cluster) in enumerate(found) if number > job.number_of(index)}
    if not newer and kept == job.excluded:
        return
    core.mark_dirty()
    components, numbers = list(request.components), [job.number_of(index) for index in range(len(found))]
    numbers += job.numbers[len(found) :]
    for index, (number, cluster) in newer.items():  # the next attempt is the newest one that was made
        components[index], numbers[index] = replace(components[index], cluster=cluster), number - 1
        core.records.note(now, job.id, HistoryKind.ATTEMPT_RECALLED, component=index, attempt=number, cluster=cluster)
    written = job.written if request is job.request else job.request
    request = replace(request, components=tuple(components))
    core.records.change(
        job, request=request, written=written, numbers=tuple(numbers), excluded=kept, choices=(), choice=0
    )


def _divided(core: Core, job: Job) -> Request:
    """Return the request with a component for each cluster of the group on which it was tried after the backup.

    The clusters do not report how many of its processors the job has on each, so equal shares are recorded. Any other
    job's request is returned as it is.
    """
    if not is_spread(job.request):
        return job.request
    (component,) = job.request.components
    parts, most = 1, min(component.processors, MAX_COMPONENTS)
    while parts < most and core.recalled.newest(job.id, parts)[0] > job.number_of(parts):
        parts += 1
    shares = [component.processors // parts + (place < component.processors % parts) for place in range(parts)]
    return of_choice(job.request, Choice(tuple([("", each) for each in shares])))


def doubtful(records: Records) -> list[Work]:
    below = records.counters.doubtful_below
    return [each for each in records.all_work() if each.id < below] if below else []


def on_reported(core: Core, now: Instant, event: WrapperReported) -> None:
    """Release the whole job if the report shows a release that this store does not know: it followed the backup."""
    if event.attempt.job >= core.records.counters.doubtful_below:
        return
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state.ended or attempt.launcher is not None:
        return
    job = core.records.jobs[attempt.id.job]
    shown = event.released_at is not None or event.started_at is not None or event.phase in _SHOWS_RELEASE
    if not shown:
        return
    if attempt.candidate:
        race.take_lead(core, now, job, attempt)
        if job.state is JobState.RUNNING:
            core.records.find_released(attempt, event.released_at or now)
    if job.state is not JobState.CLAIMING:
        return
    account_barrier_time(core, now, job)
    for each in job.present:
        if not each.state.ended:
            core.records.find_released(each, event.released_at or now)
    core.records.change(job, state=JobState.RUNNING)
    core.records.note(now, job.id, HistoryKind.JOB_FOUND_RELEASED)
