"""The sender: a job or subtree that names a site is sent there once its turn has come, and ends as that site reports.

A job that is sent is claiming until the site has answered, and then running. It is sent only while there is a session,
so that one whose link is down waits here, where it can be cancelled at once.
"""

from dataclasses import replace

from koalapy.coallocation.stop import code_and_message
from koalapy.core.core import Core
from koalapy.model.commands import ReportReceivedJob, SendJob
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.sent import MOST_SENT, Sent, SentJob
from koalapy.model.states import JobState
from koalapy.model.units import Instant

_REMOVED = Reason("site_removed", "request", "The site that ran it is no neighbour any more.", "Ask its people.")
_FORGOTTEN = Reason(
    "site_forgot", "cluster", "The site that ran it has a new store, and knows nothing of it.", "Ask its people."
)


def on_reported(core: Core, now: Instant, event: ReportReceivedJob) -> None:
    """Note what the site reports of a job that it runs, and end the job if it has ended there."""
    job = core.records.sent_jobs.get(event.job)
    if job is None or job.sent is None or job.site != event.neighbour:
        return
    if job.sent != event.sent:
        core.records.change_work(job, sent=event.sent)
    if event.sent.state.final:
        _end(core, now, job, event.sent.state, event.reason)
    elif job.state is JobState.CLAIMING:
        core.records.change_work(job, state=JobState.RUNNING, started_at=now)
        core.records.note(now, job.id, HistoryKind.JOB_TAKEN, site=event.neighbour, there=event.sent.job)


def _end(core: Core, now: Instant, job: SentJob, state: JobState, reason: Reason | None) -> None:
    """End the job in this state. What was cancelled there, and not by its user, has failed."""
    why = None if reason is None else reason.on(job.site)
    if state is JobState.CANCELLED and job.outcome is not Outcome.CANCELLED:
        state = JobState.FAILED
    if state is not JobState.DONE and job.outcome is Outcome.CANCELLED:
        state, why = JobState.CANCELLED, job.reason
    core.records.change_work(job, state=state, finished_at=now, reason=None if state is JobState.DONE else why)
    core.records.note(now, job.id, HistoryKind(f"work_{state}"), **code_and_message(job.reason))
    core.mark_dirty()


def on_site_left(core: Core, now: Instant, neighbour: str, has_forgotten: bool) -> None:
    """End the jobs that a site runs which is no neighbour any more, or has a new store: it reports nothing of them."""
    reason = _FORGOTTEN if has_forgotten else _REMOVED
    for each in list(core.sent_jobs.away.get(neighbour, ())):
        _end(core, now, core.records.sent_jobs[each], JobState.FAILED, reason)


def step(core: Core, now: Instant) -> None:
    """Send the jobs that wait to the sites that they name, in the order of their submission."""
    for identity in sorted(core.sent_jobs.waiting):
        job = core.records.sent_jobs[identity]
        site = job.site
        if site in core.neighbours.connected and len(core.sent_jobs.away.get(site, ())) < MOST_SENT:
            request = replace(job.request, site=None, after=(), notify=None)
            core.records.command(SendJob(neighbour=site, job=identity, request=request))
            core.records.change_work(job, state=JobState.CLAIMING, sent=Sent())
            core.records.note(now, identity, HistoryKind.JOB_SENT, site=site)
