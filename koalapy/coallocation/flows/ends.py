"""The progress of flows: each end of a job is counted, and the last one ends the flow."""

from koalapy.coallocation.stop import cancel_work, code_and_message
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.request import Flow, OnFailure, replace_flow
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep, Work
from koalapy.model.units import Instant


def jobs_of(core: Core, work: Work) -> list[Work]:
    """Return the jobs and sweeps of a flow that are not final, in order; any other job, or a sweep, itself."""
    if isinstance(work, Sweep) or work.flow is None:
        return [work]
    found = [core.records.work(JobId(each)) for each in work.flow.jobs_of(work.id)]
    return [each for each in found if each is not None and not each.state.final]


def stop_flow(core: Core, now: Instant, flow: Job, outcome: Outcome, reason: Reason, force: bool = False) -> None:
    """Cancel all jobs of the flow that are left. It ends with this outcome once the last of them has ended."""
    if flow.state is not JobState.STOPPING:
        core.records.change(flow, state=JobState.STOPPING, outcome=outcome, reason=reason)
        core.records.note(
            now, flow.id, HistoryKind.WORK_STOPPING, outcome=str(outcome), flow=True, **code_and_message(reason)
        )
    for each in jobs_of(core, flow):
        cancel_work(core, now, each, reason, force)
    if not core.prerequisites.left[flow.id] and flow.flow is not None:  # a repair of the store dropped the rest
        _end(core, now, flow, flow.flow)


def count_end(core: Core, now: Instant, ended: Work) -> None:
    """Count the end of a job or sweep in its flow. The first failure may stop the flow, and the last end ends it."""
    flow = core.records.jobs.get(ended.part_of) if ended.part_of is not None else None
    if flow is None or flow.flow is None or flow.state.final:
        return
    core.prerequisites.left[flow.id] -= 1
    counted = str(ended.state)
    core.records.change(flow, flow=replace_flow(flow.flow, {counted: getattr(flow.flow, counted) + 1}))
    if ended.state is JobState.FAILED and flow.reason is None:
        reason = _first_failure(ended)
        core.records.change(flow, reason=reason)
        if flow.flow.on_failure is OnFailure.STOP and core.prerequisites.left[flow.id]:
            stop_flow(core, now, flow, Outcome.FAILED, reason)
    if not core.prerequisites.left[flow.id]:
        _end(core, now, flow, flow.flow)


def _first_failure(failed: Work) -> Reason:
    why = f": {failed.reason.message}" if failed.reason else "."
    message = f"Job {failed.id} ({failed.request.name}) of the flow failed{why}"
    return Reason("flow_failed", "request", message, failed.reason.advice if failed.reason else "")


def _end(core: Core, now: Instant, flow: Job, progress: Flow) -> None:
    """End the flow: as done if all its jobs are, else as it was stopped, as failed if one failed, or as cancelled."""
    if progress.done == progress.count:
        outcome = Outcome.DONE
    elif flow.outcome is not None:
        outcome = flow.outcome
    else:
        outcome = Outcome.FAILED if progress.failed else Outcome.CANCELLED
    if flow.state is not JobState.STOPPING:
        core.records.change(flow, state=JobState.STOPPING, outcome=outcome)
    core.records.change(flow, state=JobState(str(outcome)), finished_at=now, reason=flow.reason or _CANCELLED[outcome])
    counts = {"done": progress.done, "failed": progress.failed, "cancelled": progress.cancelled}
    core.records.note(now, flow.id, HistoryKind(f"work_{outcome}"), **counts, **code_and_message(flow.reason))


_CANCELLED = {
    Outcome.DONE: None,
    Outcome.FAILED: None,
    Outcome.CANCELLED: Reason("cancelled", "request", "Jobs of it were cancelled by their user.", ""),
}
