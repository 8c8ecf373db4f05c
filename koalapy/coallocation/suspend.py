"""Jobs that pause for one of higher priority, on clusters that give the processors of a suspended job to others.

The job's own record states for whom it is suspended. What its clusters are to do follows from that: it is sent as a
hint, and derived anew from the record after every connect.
"""

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt, OwnerKind
from koalapy.model.commands import SetSuspended
from koalapy.model.events import BatchStatusSeen, ClusterConnected
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.units import Instant


def suspend(core: Core, now: Instant, job: Job, victim: JobId) -> None:
    """Suspend a running job for one that is claimed in the same step, and note it in its history."""
    found = core.records.jobs[victim]
    core.records.change(found, suspended_for=job.id, suspensions=found.suspensions + 1)
    core.records.note(now, victim, HistoryKind.JOB_SUSPENDED, by=job.id, priority=job.request.priority)
    _order(core, found)


def commit_processors(core: Core) -> None:
    """Keep the processors of suspended jobs committed, but those that the jobs have for which they are suspended."""
    found: dict[str, dict[JobId, tuple[list[AttemptId], list[AttemptId]]]] = {}
    for identity in core.suspended.jobs:
        job = core.records.jobs[identity]
        assert job.suspended_for is not None
        for attempt in job.live:
            pair = found.setdefault(attempt.cluster, {}).setdefault(job.suspended_for, ([], []))
            pair[0].append(attempt.id)
    for cluster, pairs in found.items():
        for other, (_, attempts) in pairs.items():
            preempting = core.records.jobs.get(other)
            attempts += [each.id for each in preempting.live if each.cluster == cluster] if preempting else []
    core.information.commitments.pair({cluster: list(pairs.values()) for cluster, pairs in found.items()})


def step(core: Core, now: Instant) -> bool:
    """Resume each job whose preempting job has given its processors up. A job that is stopped is not resumed.

    It is due in each batch while jobs are suspended.
    """
    for identity in list(core.suspended.jobs):
        job = core.records.jobs[identity]
        assert job.suspended_for is not None
        if job.state is not JobState.RUNNING:
            core.records.change(job, suspended_for=None)
        elif not _holds_processors(core, job.suspended_for):
            by = job.suspended_for
            core.records.change(job, suspended_for=None)
            core.records.note(now, identity, HistoryKind.JOB_RESUMED, by=by)
            _order(core, job)
    commit_processors(core)
    return bool(core.suspended.jobs)


def on_connected(core: Core, now: Instant, event: ClusterConnected) -> None:
    """Send the orders for suspended jobs again: a KCM that ended may have lost them."""
    for attempt in core.records.live(event.cluster):
        if attempt.owner_kind is OwnerKind.JOB and attempt.id.job in core.suspended.jobs:
            _order_attempt(core, attempt, suspended=True)


def on_seen(core: Core, now: Instant, event: BatchStatusSeen) -> None:
    """Resume an attempt that is still suspended although its job is not."""
    attempt = core.records.attempt(event.attempt)
    if event.state != "suspended" or attempt is None or attempt.owner_kind is not OwnerKind.JOB:
        return
    if attempt.id.job not in core.suspended.jobs:
        _order_attempt(core, attempt, suspended=False)


def _order(core: Core, job: Job) -> None:
    for attempt in job.live:
        _order_attempt(core, attempt, suspended=job.suspended_for is not None)


def _order_attempt(core: Core, attempt: Attempt, suspended: bool) -> None:
    known = core.information.clusters.get(attempt.cluster)
    if known is not None and known.settings.frees_when_suspended and not attempt.cancelling:
        core.records.hint(SetSuspended(cluster=attempt.cluster, attempt=attempt.id, suspended=suspended))


def _holds_processors(core: Core, job: JobId) -> bool:
    """Return whether the job has a claim, or its programs run; else it waits again, or nothing of it is left."""
    found = core.records.jobs.get(job)
    return found is not None and found.state.active
