"""Reactions to requests of users: submit, cancel, hold and unhold."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from koalapy.coallocation.flows.ends import jobs_of, stop_flow
from koalapy.coallocation.flows.prerequisites import may_begin
from koalapy.coallocation.stop import cancel_work, stop_job, stop_sweep
from koalapy.core.core import Core
from koalapy.model.commands import ChangeSentJob
from koalapy.model.errors import Reason
from koalapy.model.events import CancelRequested, HoldRequested, ReleaseRequested, WorkSubmitted
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, JobId
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.sent import SentChange, SentJob
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.work import Flow

MOST_NAMED = 20  # prerequisites in a line of history


def on_work_submitted(core: Core, now: Instant, event: WorkSubmitted) -> None:
    """Add new work, a flow with all its jobs. A flow that another site runs is one sent job here.

    Nothing is added if its owner has used the key before, or if ids are used up. Nor is it if a prerequisite is final,
    and not known to be done.
    """
    if event.key and core.records.has_key(event.owner, event.key):
        return
    request = event.request
    unmet = [each for each in request.after if each not in event.done]
    waited_for = [core.records.work(each) for each in unmet]
    if any(found is None or found.state.final for found in waited_for):
        return
    if core.records.counters.next_job + len(request.jobs) >= FIRST_LAUNCHER:
        return
    core.mark_dirty()
    if not request.jobs or request.site is not None:
        _add(core, now, event, request, unmet)
        return
    flow = _add(core, now, event, replace(request, jobs=()), (), count=len(request.jobs))
    for each in request.jobs:
        within = tuple([JobId(flow + 1 + place) for place in each.after])
        job = replace(each.request, after=within or request.after)
        _add(core, now, event, job, within or unmet, part_of=flow)


def _add(
    core: Core,
    now: Instant,
    event: WorkSubmitted,
    request: Request,
    unmet: Collection[JobId],
    count: int = 0,
    part_of: JobId | None = None,
) -> JobId:
    """Add work of the kind that its request makes it. Returns its id.

    It is blocked if it waits for others, or if its `begin` has not come.

    `unmet`: those that are not final. `count`: the number of jobs of a flow.
    """
    place = core.records.new_place()
    assert place is not None, "ids were counted before"
    identity, position = place
    begin = None if request.begin is None else Instant(request.begin.of(now) - (request.claim_before or 0))
    common: dict[str, Any] = {
        "id": identity,
        "owner": event.owner,
        "request": request,
        "state": JobState.BLOCKED if unmet or (begin is not None and now < begin) else JobState.WAITING,
        "position": position,
        "submitted_at": now,
        "waiting_since": now,
        "key": event.key if part_of is None else "",
        "part_of": part_of,
    }
    details: dict[str, object]
    if count:
        details = {"type": "flow", "jobs": count}
        core.records.add(Flow(count=count, started_at=now, **common | {"state": JobState.RUNNING}))
    elif request.parameters is not None:
        details = {"type": "sweep"}
        core.records.add(Sweep(count=request.parameters.count, **common))
    else:
        details = {"type": str(request.type)}
        core.records.add(Job(**common) if request.site is None else SentJob(**common))
    core.prerequisites.enter(identity, unmet)
    if part_of is not None:
        details["flow"] = part_of
    if request.after:
        details["after"] = list(request.after[:MOST_NAMED])
    if begin is not None and now < begin:
        details["begins_at"] = begin
    core.records.note(now, identity, HistoryKind.WORK_SUBMITTED, owner=event.owner, **details)
    return identity


def on_cancel_requested(core: Core, now: Instant, event: CancelRequested) -> None:
    """Stop a job or sweep that has begun, or all jobs of a flow; cancel any other at once."""
    work = core.records.work(event.work)
    if work is None or work.state.final:
        return
    if isinstance(work, Flow):
        core.records.note(now, work.id, HistoryKind.CANCEL_REQUESTED, force=event.force)
        stop_flow(core, now, work, Outcome.CANCELLED, event.reason or _CANCELLED, event.force)
    else:
        cancel_work(core, now, work, event.reason or _CANCELLED, event.force)


def on_hold_requested(core: Core, now: Instant, event: HoldRequested) -> None:
    """Hold a job or sweep that is queued or blocked; a claiming job gives back first, and a running sweep its nodes.

    A running job is not held. Of a flow, all jobs are held that can be.
    """
    work = core.records.work(event.work)
    for each in jobs_of(core, work) if work is not None else ():
        if each.state.queued or each.state is JobState.BLOCKED:
            core.records.change_work(each, state=JobState.HELD)
            core.records.note(now, each.id, HistoryKind.WORK_HELD)
        elif isinstance(each, SentJob):
            _change_sent(core, now, each, SentChange.HOLD)
        elif isinstance(each, Job) and each.state is JobState.CLAIMING:
            stop_job(core, now, each, Outcome.HOLD)
        elif isinstance(each, Sweep) and each.state is JobState.RUNNING and not each.collecting:
            stop_sweep(core, now, each, Outcome.HOLD)
        elif each.outcome in (Outcome.GIVE_BACK, Outcome.VACATED):
            core.records.change_work(each, outcome=Outcome.HOLD)
            core.records.note(now, each.id, HistoryKind.WORK_HELD)
        core.mark_dirty()


def on_release_requested(core: Core, now: Instant, event: ReleaseRequested) -> None:
    """Unhold the job or sweep, or all held jobs of a flow. One that still gives back, to be held, waits again after."""
    work = core.records.work(event.work)
    for each in jobs_of(core, work) if work is not None else ():
        if each.state is JobState.HELD:
            state = JobState.WAITING if may_begin(core, now, each) else JobState.BLOCKED
            core.records.change_work(each, state=state, waiting_since=now)
        elif isinstance(each, SentJob):
            _change_sent(core, now, each, SentChange.RELEASE)
            continue
        elif each.outcome is Outcome.HOLD:
            core.records.change_work(each, outcome=Outcome.GIVE_BACK)
        else:
            continue
        blocked = {"state": "blocked"} if each.state is JobState.BLOCKED else {}
        core.records.note(now, each.id, HistoryKind.WORK_UNHELD, **blocked)
        core.mark_dirty()


def _change_sent(core: Core, now: Instant, job: SentJob, change: SentChange) -> None:
    """Let the site that runs a job hold or release it. Of a flow there, all jobs are held that have not started."""
    if job.state.claiming or job.state.running:
        core.records.command(ChangeSentJob(neighbour=job.site, job=job.id, change=change))
        core.records.note(now, job.id, HistoryKind.CHANGE_SENT, site=job.site, change=str(change))


_CANCELLED = Reason("cancelled", "request", "It was cancelled by its user.", "")
