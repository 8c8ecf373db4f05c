"""What koalad knows of why a job is where it is: asked of the engine between two batches, and changing nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from koalapy.broker.broker import place
from koalapy.broker.fit import Lack
from koalapy.broker.patience import excluded
from koalapy.coallocation.stopping import account_held
from koalapy.coallocation.whereabouts import doubtful
from koalapy.engine import Engine
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason, RequestError
from koalapy.model.identity import FIRST_LAUNCHER, MAX_JOBS, JobId
from koalapy.model.job import Component, Counters, Job
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import SECOND, Duration, Instant, format_duration
from koalapy.policies.placement import PlacementPolicy
from koalapy.scheduler.queue import in_order


@dataclass(frozen=True, slots=True)
class Explanation:
    """`clusters`: those of the grid; `troubles`: why some of them cannot be used.

    Of a job that waits: `lacks`, what each cluster lacks for each component; `fits`, whether it would be placed now,
    were it alone in the queue; `ahead`, how many jobs come before it, and `first`, which one is in front.

    Of a job that claims: `gives_back_at`, when it gives up if it was not released; `holding`, its processors that wait
    at barriers; `held`, for how many processor-microseconds they have waited.

    Of a sweep: `no_more`, why clusters give it no more nodes now; `told`, why it was not admitted yet; `faults`, which
    policies failed for it; `launchers`, those of which something is left.
    """

    job: Job
    clusters: tuple[str, ...]
    troubles: Mapping[str, Reason]
    lacks: tuple[Lack, ...] = ()
    fits: bool = False
    ahead: int = 0
    first: JobId | None = None
    gives_back_at: Instant | None = None
    holding: int = 0
    held: int = 0
    no_more: Mapping[str, str] = field(default_factory=dict)
    told: str = ""
    faults: tuple[str, ...] = ()
    launchers: tuple[Component, ...] = ()


def explain(engine: Engine, now: Instant, job: Job, placement: PlacementPolicy) -> Explanation:
    views = engine.views(now)
    clusters = tuple(view.name for view in views)
    troubles = {view.name: view.trouble for view in views if view.trouble}
    if job.runner is not None:
        scavenger = engine.scavenger
        no_more = scavenger.why_no_more(now, job) if job.state is JobState.RUNNING else {}
        told, faults = scavenger.told(job.id), scavenger.faults(job.id)
        launchers = tuple(_launchers_of(engine, job))
        return Explanation(job, clusters, troubles, no_more=no_more, told=told, faults=faults, launchers=launchers)
    if job.state is JobState.CLAIMING:
        waits = [each for each in job.present if each.state is ComponentState.AT_BARRIER]
        return Explanation(
            job,
            clusters,
            troubles,
            gives_back_at=engine.gives_back_at(job),
            holding=sum(each.processors for each in waits),
            held=account_held(job, now).held - job.held,
        )
    if job.state is not JobState.WAITING:
        return Explanation(job, clusters, troubles)
    without = excluded(now, job)
    lacks = [lack for lack in engine.explain(now, job.id) if lack.cluster not in without]
    waiting = [each.id for each in in_order(engine.records.jobs.values())]
    return Explanation(
        job,
        clusters,
        troubles,
        lacks=tuple(_left_out(now, job) + lacks),
        fits=isinstance(place(job.request, views, placement, without), tuple),
        ahead=waiting.index(job.id) if job.id in waiting else 0,
        first=waiting[0] if waiting else None,
    )


def what_all_wait_for(engine: Engine) -> list[str]:
    """After a start, and after the store was restored from a backup, in sentences."""
    if missing := engine.first_contact.missing:
        return [f"Waiting jobs go on once {', '.join(missing)} has answered or is seen to be out of reach."]
    jobs, unheard = doubtful(engine.records), engine.unheard
    if not jobs:
        return []
    known = counted_as(len(jobs), "older job is", "older jobs are")
    said = [f"The store was restored from a backup: {known} looked for on the clusters before anything is run again."]
    if unheard:
        said.append(f"Those that wait go on once {', '.join(unheard)} can say whether they ran there since.")
    return [" ".join(said)]


def ids_used(counters: Counters) -> list[str]:
    """A sentence for each kind of ids of which 90 % or more are used up."""
    kinds = (
        ("jobs", counters.next_job, 1, FIRST_LAUNCHER),
        ("Launchers", counters.next_launcher, FIRST_LAUNCHER, MAX_JOBS),
    )
    return [
        f"The ids of {kind} are nearly used up: {end - following:,} of {end - first:,} are left. {NEW_STORE}"
        for kind, following, first, end in kinds
        if 10 * (end - following) <= end - first
    ]


def refuse_without_ids(counters: Counters, jobs: int) -> None:
    """Raises RequestError `ids_exhausted` if there are no ids left for so many more jobs."""
    left = FIRST_LAUNCHER - counters.next_job
    if jobs > left:
        message = f"The ids of jobs are used up: {max(0, left):,} are left in this store, and {jobs:,} are needed."
        raise RequestError("ids_exhausted", message, NEW_STORE)


NEW_STORE = "When nothing runs any more, begin a new store: see docs/store.md, `When the ids are used up`."


def _launchers_of(engine: Engine, sweep: Job) -> Iterator[Component]:
    for job in engine.records.jobs.values():
        if job.glide is not None and job.glide.sweep == sweep.id:
            yield from job.live


def _left_out(now: Instant, job: Job) -> list[Lack]:
    """Clusters at fault are left out for the job for a while (DESIGN, promise 3)."""
    return [
        Lack(cluster, each.index, _why_left_out(job, cluster, Duration(until - now)))
        for cluster, until in job.excluded
        if now < until
        for each in job.components
        if each.request.cluster in (None, cluster)
    ]


def _why_left_out(job: Job, cluster: str, left: Duration) -> Reason:
    said = job.reason if job.reason and job.reason.message.startswith(f"{cluster}: ") else None
    why = f": {said.message.removeprefix(f'{cluster}: ')}" if said else "."
    message = f"it is left out for this job for another {format_duration(Duration(left - left % SECOND))}{why}"
    advice = f"{said.advice if said else ''} The job goes elsewhere meanwhile, or waits.".lstrip()
    return Reason("left_out", "site", message, advice)
