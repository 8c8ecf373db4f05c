"""The other end of `sending`: neighbours' jobs are submitted as this site's own, within its limits, and reported to
them.

A received job belongs to the site that has sent it. Its key is its id there, so that it is submitted once.
"""

from dataclasses import replace

from koalapy.coallocation.user_requests import (
    on_cancel_requested,
    on_hold_requested,
    on_release_requested,
    on_work_submitted,
)
from koalapy.core.core import Core
from koalapy.core.site_jobs import key_of_received, received_key
from koalapy.model.commands import ChangeSentJob, ReportReceivedJob, SendJob
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, HoldRequested, JobUnreadable, ReleaseRequested, WorkSubmitted
from koalapy.model.identity import JobId, origin_of_site
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.sent import Sent, SentChange, why_not_run
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.model.work import Flow

REPORT_EVERY = Duration(10 * SECOND)  # at most, of one job's progress
_CANCELLED_THERE = Reason("cancelled", "request", "Its sender has cancelled it.", "")
_CANCELLED_HERE = Reason("cancelled_there", "request", "It was cancelled by the people of that site.", "Ask them.")


def on_received(core: Core, now: Instant, event: SendJob) -> None:
    """Submit the job, or report why it is not run."""
    owner, key = origin_of_site(event.neighbour), key_of_received(_instance(core, event.neighbour), event.job)
    if core.records.has_key(owner, key):
        return
    running = sum(each.count if isinstance(each, Flow) else 1 for each in core.received_jobs.jobs.values())
    reason = why_not_run(core.settings.run, event.neighbour, event.request, running)
    if reason is None and core.settings.run is not None:
        request = _limited(event.request, core.settings.run.priority)
        on_work_submitted(core, now, WorkSubmitted(request=request, owner=owner, key=key))
        if core.records.has_key(owner, key):
            return
        reason = Reason("no_ids", "cluster", "It has no ids for jobs left.", "")
    _report_not_run(core, event.neighbour, event.job, reason)


def on_unreadable(core: Core, now: Instant, event: JobUnreadable) -> None:
    """Report why the job is not run, unless it was submitted before."""
    key = key_of_received(_instance(core, event.neighbour), event.job)
    if not core.records.has_key(origin_of_site(event.neighbour), key):
        _report_not_run(core, event.neighbour, event.job, event.reason)


def _report_not_run(core: Core, neighbour: str, job: JobId, reason: Reason | None) -> None:
    sent = Sent(state=JobState.FAILED)
    core.records.command(ReportReceivedJob(neighbour=neighbour, job=job, sent=sent, reason=reason))


def _instance(core: Core, neighbour: str) -> str:
    """Return the instance of the neighbour's store, which has sent the present message."""
    return core.neighbours.records[neighbour].instance


def _limited(request: Request, priority: int) -> Request:
    """Return the request as it is run here.

    Nobody here is notified, it waits no longer at a barrier than a job of this site, and it goes before none of them.
    """
    jobs = tuple([replace(each, request=_limited(each.request, priority)) for each in request.jobs])
    return replace(
        request,
        jobs=jobs,
        notify=(),
        barrier_wait=None,
        held_limit=None,
        race=None,
        fill=None,
        priority=max(request.priority, priority),
    )


def on_changed(core: Core, now: Instant, event: ChangeSentJob) -> None:
    """Cancel, hold or release the job. One that has ended was reported as such."""
    job = core.received_jobs.jobs.get((event.neighbour, _instance(core, event.neighbour), event.job))
    if job is None:
        return
    if event.change is SentChange.CANCEL:
        on_cancel_requested(core, now, CancelRequested(job.id, reason=_CANCELLED_THERE))
    elif event.change is SentChange.HOLD:
        on_hold_requested(core, now, HoldRequested(job.id))
    else:
        on_release_requested(core, now, ReleaseRequested(job.id))


def cancel_all(core: Core, now: Instant, neighbour: str, reason: Reason) -> None:
    """Cancel the jobs of a neighbour that knows nothing of them any more."""
    for job in core.received_jobs.of(neighbour):
        on_cancel_requested(core, now, CancelRequested(job.id, reason=reason))


def step(core: Core, now: Instant) -> None:
    """Report the ends of received jobs, and their progress now and then."""
    received = core.received_jobs
    for job in received.ended:
        reason = _CANCELLED_HERE if job.state is JobState.CANCELLED else job.reason
        _report(core, job, reason)
    received.ended.clear()
    for identity in list(received.dirty):
        job = core.records.jobs.get(identity) or core.records.flows[identity]
        last = received.reported.get(identity)
        sent = _as_sent(job)
        if last is not None and last[0] != sent and now < last[1] + REPORT_EVERY:
            continue
        del received.dirty[identity]
        if last is None or last[0] != sent:
            received.reported[identity] = sent, now
            _report(core, job)


def wakeup(core: Core) -> Instant | None:
    """Return when progress may be reported next; None if there is none that was not reported."""
    received = core.received_jobs
    moments = [received.reported[each][1] + REPORT_EVERY for each in received.dirty if each in received.reported]
    return Instant(min(moments)) if moments else None


def _report(core: Core, job: Job | Flow, reason: Reason | None = None) -> None:
    """Report to the sender, unless it has a new store since, which knows nothing of the job."""
    key = received_key(job)
    assert key is not None, "only received jobs are reported"
    site, instance, number = key
    record = core.neighbours.records.get(site)
    if record is not None and record.instance == instance:
        core.records.command(ReportReceivedJob(neighbour=site, job=number, sent=_as_sent(job), reason=reason))


def _as_sent(job: Job | Flow) -> Sent:
    if isinstance(job, Flow):
        return Sent(job=job.id, state=job.state, done=job.done, count=job.count)
    return Sent(job=job.id, state=job.state, done=1 if job.state is JobState.DONE else 0)
