"""The progress of flows: each end of a job is counted, and the last one ends the flow."""

from koalapy.coallocation.stop import cancel_work, code_and_message
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.request import OnFailure
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.model.work import Flow, Work


def jobs_of(core: Core, work: Work) -> list[Work]:
    """Return the jobs and sweeps of a flow that are not final, in order; any other work itself."""
    if not isinstance(work, Flow):
        return [work]
    found = [core.records.work(each) for each in work.jobs]
    return [each for each in found if each is not None and not each.state.final]


def stop_flow(core: Core, now: Instant, flow: Flow, outcome: Outcome, reason: Reason, force: bool = False) -> None:
    """Cancel all jobs of the flow that are left. It ends with this outcome once the last of them has ended."""
    if flow.state is not JobState.STOPPING:
        core.records.change_work(flow, state=JobState.STOPPING, outcome=outcome, reason=reason)
        core.records.note(
            now, flow.id, HistoryKind.WORK_STOPPING, outcome=str(outcome), flow=True, **code_and_message(reason)
        )
    for each in jobs_of(core, flow):
        cancel_work(core, now, each, reason, force)
    if not core.prerequisites.left[flow.id]:  # a repair of the store dropped the rest
        _end(core, now, flow)


def count_end(core: Core, now: Instant, ended: Work) -> None:
    """Count the end of a job or sweep in its flow. The first failure may stop the flow, and the last end ends it."""
    flow = core.records.flows.get(ended.part_of) if ended.part_of is not None else None
    if flow is None or flow.state.final:
        return
    core.prerequisites.left[flow.id] -= 1
    counted = str(ended.state)
    core.records.change_work(flow, **{counted: getattr(flow, counted) + 1})
    if ended.state is JobState.FAILED and flow.reason is None:
        reason = _first_failure(ended)
        core.records.change_work(flow, reason=reason)
        if flow.request.on_failure is OnFailure.STOP and core.prerequisites.left[flow.id]:
            stop_flow(core, now, flow, Outcome.FAILED, reason)
    if not core.prerequisites.left[flow.id]:
        _end(core, now, flow)


def _first_failure(failed: Work) -> Reason:
    why = f": {failed.reason.message}" if failed.reason else "."
    message = f"Job {failed.id} ({failed.request.name}) of the flow failed{why}"
    return Reason("flow_failed", "request", message, failed.reason.advice if failed.reason else "")


def _end(core: Core, now: Instant, flow: Flow) -> None:
    """End the flow: as done if all its jobs are, else as it was stopped, as failed if one failed, or as cancelled."""
    if flow.done == flow.count:
        outcome = Outcome.DONE
    elif flow.outcome is not None:
        outcome = flow.outcome
    else:
        outcome = Outcome.FAILED if flow.failed else Outcome.CANCELLED
    reason = flow.reason or _CANCELLED[outcome]
    core.records.change_work(flow, state=JobState(str(outcome)), finished_at=now, reason=reason)
    counts = {"done": flow.done, "failed": flow.failed, "cancelled": flow.cancelled}
    core.records.note(now, flow.id, HistoryKind(f"work_{outcome}"), **counts, **code_and_message(flow.reason))


_CANCELLED = {
    Outcome.DONE: None,
    Outcome.FAILED: None,
    Outcome.CANCELLED: Reason("cancelled", "request", "Jobs of it were cancelled by their user.", ""),
}
