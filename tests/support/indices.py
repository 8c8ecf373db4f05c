"""Each index of the engine beside a search through all its jobs, and each pass beside one that remembers nothing."""

from collections import Counter

from koalapy.broker.availability import Availability
from koalapy.broker.placement_cache import PlacementCache
from koalapy.broker.suitability import EVERY_CLUSTER
from koalapy.core.due import ALL
from koalapy.core.wait_queue import WaitQueue, in_order
from koalapy.engine import Engine
from koalapy.information.commitments import processors_taken
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.identity import tag_of
from koalapy.model.records import Records
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.scheduler.blocked_ahead import Overtaken
from koalapy.scheduler.schedule import Policies, schedule


def check(engine: Engine, policies: Policies, now: Instant) -> None:
    """Check every index. `now`: the instant of the engine's last batch. Raises AssertionError for one that is wrong."""
    _keys(engine.records)
    _live(engine)
    _commitments(engine)
    _queue(engine)
    _run_list(engine)
    _pass(engine, policies, now)
    wakeup = engine.next_wakeup()
    assert wakeup is None or wakeup > now, ("the engine is woken for what it has done", wakeup, now)
    engine._set_timers(ALL)
    assert engine.next_wakeup() == wakeup, ("a timer has changed without a step that it wakes", wakeup, now)


def _keys(records: Records) -> None:
    for job in records.jobs.values():
        assert not job.key or records.has_key(job.owner, job.key), ("a key is not known", job.id)


def _live(engine: Engine) -> None:
    records = engine.records
    jobs = sorted(records.jobs.values(), key=lambda job: job.id)
    pilots = sorted((each for each in records.launchers.values() if not each.let_go), key=lambda each: each.id)
    attempts: list[Attempt] = [*(each for job in jobs for each in job.live), *pilots]
    for cluster in engine.settings.clusters:
        found = {each.id for each in records.live(cluster.name)}
        assert found == {each.id for each in attempts if each.cluster == cluster.name}, cluster.name


def _commitments(engine: Engine) -> None:
    """Check the commitments of the clusters on which no attempt is suspended for another job's."""
    records, commitments = engine.records, engine.core.information.commitments
    paired = {each.cluster for job in records.jobs.values() if job.suspended_for is not None for each in job.live}
    for name, known in engine.core.information.clusters.items():
        committed = backlog = 0
        held: Counter[int] = Counter()
        for attempt in records.live(name):
            tag, job = tag_of(records.instance, attempt.id), records.jobs.get(attempt.id.job)
            taken = processors_taken(attempt.request, known.settings)
            unseen = known.state is None or tag not in known.state.allocated
            if attempt.owner_kind is OwnerKind.SWEEP:
                held[taken] += 0 if unseen else 1
                continue
            committed += taken if unseen else 0
            pending = known.state is not None and tag in known.state.pending
            backlog += taken if pending or (unseen and (job is None or job.patient)) else 0
        if name not in paired:
            assert commitments.on(name) == (committed, backlog), name
        assert commitments.scavenged_on(name).held == tuple(sorted((+held).items())), name


def _queue(engine: Engine) -> None:
    waiting = in_order(engine.records.jobs.values())
    queue = engine.core.queue
    assert [position.job for position in queue.order] == [job.id for job in waiting]
    assert [queue.at(position).job for position in queue.order] == waiting


def _run_list(engine: Engine) -> None:
    claiming = [job for job in engine.records.jobs.values() if job.state is JobState.CLAIMING]
    claimed: dict[str, int] = {}
    for job in claiming:
        for attempt in job.live if not job.patient else ():
            claimed[attempt.cluster] = claimed.get(attempt.cluster, 0) + 1
    assert engine.core.run_list.claimed_on == claimed
    leads = {job.id: [each for each in job.live if not each.candidate] for job in claiming}
    split = {job for job, live in leads.items() if len({each.allocated_at is None for each in live}) == 2}
    assert set(engine.core.run_list.split) == split


def _pass(engine: Engine, policies: Policies, now: Instant) -> None:
    """Check that a pass which remembers nothing of the last one would decide nothing more."""
    core = engine.core
    queue = WaitQueue()
    for job in engine.records.jobs.values():
        queue.added(job)
    suitability = core.matching.at(now) if core.queue.ads else EVERY_CLUSTER
    found = schedule(
        now, queue, Availability(engine.summaries(now)), PlacementCache(policies.placement), engine.settings,
        policies.queueing, newest=engine.newest_before, suitability=suitability, gate=core.startup_gate,
    )  # fmt: skip
    more = [each for each in found.decisions if not isinstance(each, Overtaken)]
    assert not more, ("a pass left something to be decided", more)
