"""Every index of the engine equals the result of a search through all its jobs."""

from collections import Counter

from koalapy.attempts import missing
from koalapy.broker.availability import Availability
from koalapy.broker.placement_cache import PlacementCache
from koalapy.broker.shape import minimum_demand, shape_of
from koalapy.broker.wait_deadlines import may_queue_from
from koalapy.coallocation import barrier
from koalapy.core.wait_queue import WaitQueue, in_order
from koalapy.engine import Engine
from koalapy.information.commitments import processors_taken
from koalapy.model.identity import AttemptId, tag_of
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.scheduler.schedule import Policies, schedule

from .cluster import promise


def check(engine: Engine, settings: Settings, policies: Policies, now: Instant) -> None:
    """Check every index. `now` is the instant of the engine's last batch."""
    _keys(engine.records)
    _live(engine.records, settings)
    _commitments(engine)
    _summaries(engine, now)
    _queue(engine)
    _passes(engine, settings, policies, now)
    _run_list(engine)
    expected, found = _wakeup(engine, settings, now), engine.next_wakeup()
    promise(found == expected, "the next wake-up is the earliest of all", (found, expected))


def _keys(records: Records) -> None:
    for job in records.jobs.values():
        promise(not job.key or records.has_key(job.owner, job.key), "keys are known", job.id)
    promise(not records.has_key("me", "nobody's"), "unknown keys are not")


def _live(records: Records, settings: Settings) -> None:
    for cluster in settings.clusters:
        found = [attempt.id for attempt in records.live(cluster.name)]
        walked = _attempts_on(records, cluster.name)
        promise(found == walked, "the live attempts of a cluster are those of all jobs", (cluster.name, found, walked))


def _attempts_on(records: Records, cluster: str) -> list[AttemptId]:
    jobs = sorted(records.jobs.values(), key=lambda job: job.id)
    of_jobs = [each.id for job in jobs for each in job.live if each.cluster == cluster]
    return of_jobs + sorted(each.id for each in records.pilots.values() if not each.let_go and each.cluster == cluster)


def _commitments(engine: Engine) -> None:
    records = engine.records
    for name, known in engine.core.information.clusters.items():
        committed = backlog = coming = 0
        held: Counter[int] = Counter()
        for attempt in records.live(name):
            tag, job = tag_of(records.instance, attempt.id), records.jobs.get(attempt.id.job)
            taken = processors_taken(attempt.request, known.settings)
            unseen = known.state is None or tag not in known.state.allocated
            if job is None:
                coming += taken if unseen else 0
                held[taken] += 0 if unseen else 1
                continue
            committed += taken if unseen else 0
            pending = known.state is not None and tag in known.state.pending
            backlog += taken if pending or (unseen and job.patient) else 0
        found = engine.core.information.commitments.on(name)
        promise(found == (committed, backlog), "commitments are those of all live attempts", (name, found))
        pilots = engine.core.information.commitments.scavenged_on(name)
        nodes = tuple(sorted((+held).items()))
        promise(
            (pilots.coming, pilots.held) == (coming, nodes), "sweeps' nodes are those of all pilots", (name, pilots)
        )


def _summaries(engine: Engine, now: Instant) -> None:
    for summary, known in zip(engine.summaries(now), engine.core.information.clusters.values(), strict=True):
        state = known.state
        stale = state is not None and now - state.measured_at > known.settings.max_age
        free = known.trouble is None and not stale and not known.settings.draining and now >= known.refused.until
        promise((summary.trouble is None) == free, "summaries show trouble", summary)
        usable = state is not None and summary.trouble is None
        idle = (
            max(0, state.idle - engine.core.information.commitments.on(summary.name)[0])
            if usable and state is not None
            else 0
        )
        promise(summary.idle == idle, "summaries show idle processors", (summary, idle))
        promise(summary.total == (state.total if state is not None else 0), "summaries show sizes", summary)
        promise(
            (summary.committed, summary.backlog) == engine.core.information.commitments.on(summary.name),
            "summaries show commitments",
            summary,
        )


def _queue(engine: Engine) -> None:
    waiting = in_order(engine.records.jobs.values())
    queue = engine.core.queue
    promise(
        [position.job for position in queue.order] == [job.id for job in waiting], "the queue is in order", queue.order
    )
    promise([queue.at(position).job for position in queue.order] == waiting, "the queue has the jobs as they are")
    for idle in range(9):
        looked_at = [each.job.id for each in queue.candidates(idle, -1)]
        fitting = [job.id for job in waiting if minimum_demand(shape_of(job.request)).largest <= idle]
        to_recheck = {position.job for position in queue.to_recheck}
        expected = [job.id for job in waiting if job.id in fitting or job.id in to_recheck]
        promise(looked_at == expected, "every job that may fit is a candidate", (idle, looked_at, expected))


def _passes(engine: Engine, settings: Settings, policies: Policies, now: Instant) -> None:
    """Check that a scheduling pass without any remembered state would decide nothing more."""
    queue, availability = WaitQueue(), Availability(engine.summaries(now))
    for job in engine.records.jobs.values():
        queue.added(job)
    cache, newest = PlacementCache(policies.placement), engine.newest_before
    found = schedule(
        now, queue, availability, cache, settings, policies.queueing, newest=newest, gate=engine.core.startup_gate
    )
    promise(not found.decisions, "a pass leaves nothing to be decided", found.decisions)


def _run_list(engine: Engine) -> None:
    claiming = [job for job in engine.records.jobs.values() if job.state is JobState.CLAIMING]
    claimed: dict[str, int] = {}
    for job in claiming:
        for attempt in job.live if not job.patient else ():
            claimed[attempt.cluster] = claimed.get(attempt.cluster, 0) + 1
    run_list = engine.core.run_list
    promise(run_list.claimed_on == claimed, "claims are counted by cluster", (run_list.claimed_on, claimed))
    split = {job.id for job in claiming if len({each.allocated_at is None for each in job.live}) == 2}
    promise(
        set(run_list.split) == split, "jobs that hold only some of their components are known", (run_list.split, split)
    )


def _wakeup(engine: Engine, settings: Settings, now: Instant) -> Instant | None:
    jobs = engine.records.jobs.values()
    moments = [moment for job in jobs for moment in _moments(engine, settings, now, job)]
    until = engine.core.startup_gate.wakeup()
    if any(job.state.queued for job in jobs):
        moments += [moment for moment in _expiries(engine) if moment > now]
    return min(moments if until is None else [*moments, until], default=None)


def _expiries(engine: Engine) -> list[Instant]:
    """The instants at which the last measurement of each usable cluster becomes too old, or it may be used again."""
    usable = [each for each in engine.core.information.clusters.values() if each.trouble is None and each.state]
    stale = [Instant(each.state.measured_at + each.settings.max_age + 1) for each in usable if each.state]
    return [*stale, *(each.refused.until for each in usable)]


def _moments(engine: Engine, settings: Settings, now: Instant, job: Job) -> list[Instant]:
    if job.state.queued:
        since = may_queue_from(job, settings)
        moments = [until for _, until in job.excluded] + ([since] if since is not None else [])
        return [moment for moment in moments if moment > now]
    ends = [barrier.deadline(job, settings)]
    ends += [missing.lost_at(each, settings) for each in job.live if engine.core.information.is_connected(each.cluster)]
    return [moment for moment in ends if moment is not None]
