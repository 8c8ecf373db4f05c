"""The barrier: nobody starts before everybody has come, and nobody waits for ever (DCS, section 3.5)."""

from koalapy.coallocation.claim import BARRIER_MARGIN
from koalapy.coallocation.retries import leave_out
from koalapy.coallocation.stop import account_held, stop_job
from koalapy.core.core import Core
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.errors import Reason
from koalapy.model.facts import CameToBarrier, Started
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Duration, Instant, format_duration

_MOST_JITTER = BARRIER_MARGIN * 2 // 3
_LEAD = BARRIER_MARGIN - _MOST_JITTER  # between koalad's deadline and the first wrapper that leaves its barrier


def on_came_to_barrier(core: Core, now: Instant, event: CameToBarrier) -> None:
    """Note that the attempt is there in the present session: its job may be waiting for no more than that."""
    component = core.records.attempt(event.attempt)
    if component is None or component.state is not ComponentState.AT_BARRIER or component.cluster is None:
        return
    core.at_barrier.add(event.attempt, component.cluster)
    core.run_list.mark_dirty(event.attempt.job)


def on_started(core: Core, now: Instant, event: Started) -> None:
    """Note when the job has started: when the last of its components has."""
    job = core.records.jobs.get(event.attempt.job)
    if job is None or job.started_at is not None or job.state is not JobState.RUNNING:
        return
    starts = [component.started_at for component in job.present]
    known = [start for start in starts if start is not None]
    if len(known) == len(starts):
        core.records.put(job.replace(started_at=max(known)))


def end_session(core: Core, cluster: str) -> None:
    """Forget which attempts of the cluster are at their barriers: they have to report it again."""
    core.at_barrier.end_session(cluster)
    core.mark_cluster_dirty(cluster)


def release_if_whole(core: Core, now: Instant, job: Job) -> None:
    """Release the job once every component of this try is known to be at its barrier, and so can be told."""
    if job.state is JobState.CLAIMING and job.present and not _not_come(core, job):
        _release(core, now, job)


def _release(core: Core, now: Instant, job: Job) -> None:
    hosts = tuple(
        (component.index, node.address, node.processes) for component in job.present for node in component.nodes
    )
    first_rank = 0
    for component in job.present:
        assert component.cluster is not None
        core.records.command(
            ReleaseAttempt(
                cluster=component.cluster, attempt=job.attempt_of(component), first_rank=first_rank, hosts=hosts
            )
        )
        first_rank += sum(node.processes for node in component.nodes)
    released = {"state": ComponentState.RELEASED, "released_at": now}
    components = tuple([each if each.missing else each.replace(**released) for each in job.components])
    core.records.put(account_held(job, now).transition(JobState.RUNNING, components=components))
    core.records.note(now, job.id, "job_released", processes=first_rank)


def deadline(job: Job, settings: Settings) -> Instant | None:
    """When the job's claim or barrier runs out; None where neither is running."""
    if job.state is not JobState.CLAIMING:
        return None
    ends = [end for end in (_claim_ends(job, settings), _barrier_ends(job, settings)) if end is not None]
    return min(ends, default=None)


def time_out(core: Core, now: Instant, job: Job) -> None:
    """The time is up: go without the optional components if only they are late, else give everything back."""
    barrier_ends = _barrier_ends(job, core.settings)
    barrier_over = barrier_ends is not None and now >= barrier_ends
    late = _not_come(core, job) if barrier_over else _missing(job)
    in_time = barrier_ends is None or now < barrier_ends + _LEAD
    if in_time and late and len(late) < len(job.present) and all(each.request.optional for each in late):
        return _go_without(core, now, job, late)
    settings = core.settings
    code, limit = (
        ("barrier_timeout", settings.barrier_timeout) if barrier_over else ("claim_timeout", settings.claim_timeout)
    )
    stop_job(core, now, job, Outcome.SUBMISSION_FAILURE, _too_late(code, late, limit))


def _go_without(core: Core, now: Instant, job: Job, late: list[Component]) -> None:
    for component in late:
        reason = _too_late("left_out", [component], Duration(now - (job.claimed_at or now)))
        leave_out(core, now, job.attempt_of(component), reason, code=reason.code, message=str(reason))


def _claim_ends(job: Job, settings: Settings) -> Instant | None:
    """The claim's time counts until the last batch job has started. A Launcher's is its sweep's to count."""
    if job.claimed_at is None or job.patient or job.pilot is not None or not _missing(job):
        return None
    return Instant(job.claimed_at + settings.claim_timeout + _jitter(job, settings.claim_timeout))


def _barrier_ends(job: Job, settings: Settings) -> Instant | None:
    """The barrier's time counts from the first component at it; before that, from the start of the last batch job."""
    came = [each.at_barrier_at for each in job.present if each.at_barrier_at is not None]
    waited_for = bool(came) or bool(_missing(job))
    started = [] if waited_for else [each.allocated_at for each in job.present if each.allocated_at is not None]
    if not came and not started:
        return None
    since = min(came) if came else max(started)
    return Instant(since + settings.barrier_timeout + _jitter(job, settings.barrier_timeout))


def _missing(job: Job) -> list[Component]:
    """Components whose batch job has not started."""
    return [component for component in job.present if component.allocated_at is None and not component.state.final]


def _not_come(core: Core, job: Job) -> list[Component]:
    """Return the components that have not reported from their barriers since their cluster was connected last."""
    return [
        component
        for component in job.present
        if component.state is not ComponentState.AT_BARRIER or job.attempt_of(component) not in core.at_barrier
    ]


def _too_late(code: str, late: list[Component], limit: Duration) -> Reason:
    absent = [component for component in late if component.state is not ComponentState.AT_BARRIER]
    where = ", ".join(
        f"component {component.index} on {component.cluster}"
        + (f" ({component.pending_reason})" if component.pending_reason else "")
        for component in absent or late
    )
    what = "was not at its barrier" if code == "barrier_timeout" else "had not started"
    if not absent:
        where, what = where or "its clusters", "could not be told that everybody had come"
    return Reason(
        code,
        "transient",
        f"After {format_duration(limit)} {where} {what}.",
        "It is tried again; `claim` and `barrier` in the grid file say how long is waited.",
    )


def _jitter(job: Job, limit: Duration) -> int:
    """Up to a tenth of the limit, another for every job and try, the same whenever it is asked.

    It keeps several koalad from claiming and giving back in step.
    """
    attempts = sum(component.attempt for component in job.components)
    most = min(limit // 10, _MOST_JITTER)
    return (job.id * 2_654_435_761 + attempts * 40_503) % 1_000 * most // 1_000
