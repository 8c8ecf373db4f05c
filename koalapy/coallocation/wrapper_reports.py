"""What a wrapper tells of its component, step by step or long after, and how it ended."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from koalapy.coallocation import barrier
from koalapy.coallocation.attempt_end import attempt_ended, look_at, update_component, with_started_at
from koalapy.coallocation.restored_store import released_before
from koalapy.core.core import Core
from koalapy.model.cluster import Node
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason, Whose
from koalapy.model.events import WrapperReported
from koalapy.model.job import Component, Job
from koalapy.model.request import ComponentRequest, Launch
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant

_PROCESS_FAILED = "process_failed"  # the wrapper says which, and how: wrapper.reasons
_S = ComponentState
_BEFORE_BARRIER = (_S.SUBMITTING, _S.QUEUED)
_UNRELEASED = (*_BEFORE_BARRIER, _S.AT_BARRIER)


def on_reported(core: Core, now: Instant, event: WrapperReported) -> None:
    """The wrapper's word. It may tell again what it told before, and skip steps that it told nobody."""
    if event.phase == "ended":
        core.mark_dirty()
    found = core.records.component(event.attempt)
    if found is None or found[1].cleaned_up or found[1].state.final:
        return None
    job, component = found
    job = released_before(core, now, job, event)
    component = job.components[component.index]
    if event.nodes and not _is_division(component.request, event.nodes):
        if job.state is JobState.CLAIMING and component.state in _UNRELEASED and event.phase != "ended":
            return _misdivided(core, now, job, component, event)
        event = replace(event, nodes=())
    if event.phase == "ended":
        return _ended(core, now, job, component, event)
    changes = _progress(now, component, event)
    if job.state is JobState.STOPPING:
        changes.pop("state", None)
    job = update_component(core, now, job, component, changes)
    started = with_started_at(job)
    if started is not job:
        core.records.put(started)
    if event.phase == "at_barrier":
        barrier.came(core, event.attempt)


def _is_division(request: ComponentRequest, nodes: Sequence[Node]) -> bool:
    """Whether these are the processes that the component starts; see koalapy_adapters.wrapper.process_layout."""
    counts = [node.processes for node in nodes]
    if request.launch is Launch.PER_NODE and set(counts) != {1}:
        return False
    return sum(counts) == request.processes(len(counts))


def _misdivided(core: Core, now: Instant, job: Job, component: Component, event: WrapperReported) -> None:
    """Ranks and hosts of all components would be wrong by it: the attempt is ended, and that cluster left out."""
    count = sum(node.processes for node in event.nodes)
    found = f"{counted_as(count, 'process', 'processes')} on {counted_as(len(event.nodes), 'node')}"
    message = f"Its wrapper reported {found}, which is not what was asked for."
    reason = Reason("wrong_processes", "cluster", message, "Look for what runs as the KCM on its head node.")
    changes = _progress(now, component, replace(event, nodes=(), phase="started"))
    attempt_ended(core, now, job, component, changes | {"ended_at": now}, reason)


def _progress(now: Instant, component: Component, event: WrapperReported) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "allocated_at": component.allocated_at or now,
        "batch_id": event.batch_id or component.batch_id,
        "pending_reason": "",
        "unknown_since": None,
        "silent_since": None,
    }
    if component.queued_at is None:
        changes["queued_at"] = now
    if event.nodes:
        changes["nodes"] = event.nodes
    changes |= _instants(component, event)
    state = _state_after(component.state, event.phase)
    return changes | ({"state": state} if state else {})


def _instants(component: Component, event: WrapperReported) -> dict[str, Instant]:
    """As the wrapper's clock has them; but nothing that follows our release can have happened before it."""
    told: dict[str, Instant] = {}
    if event.began_at is not None:
        told["began_at"] = event.began_at
    released_at = component.released_at or Instant(0)
    if event.at_barrier_at is not None:
        told["at_barrier_at"] = event.at_barrier_at
    if event.released_at is not None:
        told["released_at"] = max(event.released_at, released_at)
    if event.started_at is not None:
        told["started_at"] = max(event.started_at, released_at)
    return told


def _state_after(state: ComponentState, phase: str) -> ComponentState | None:
    """None: the report changes nothing, or comes before what is known already."""
    if phase == "running":
        return _S.RUNNING if state in (_S.RELEASED, _S.UNKNOWN) else None
    if phase == "released":
        return _S.RELEASED if state is _S.UNKNOWN else None
    if phase == "at_barrier":
        return _S.AT_BARRIER if state in _BEFORE_BARRIER else _S.RELEASED if state is _S.UNKNOWN else None
    return _S.QUEUED if state is _S.SUBMITTING else None


def _ended(core: Core, now: Instant, job: Job, component: Component, event: WrapperReported) -> None:
    changes = _progress(now, component, event)
    started_at = changes.get("started_at", component.started_at) or Instant(0)
    changes |= {"ended_at": max(event.ended_at or now, started_at), "exit_status": event.exit_status}
    reason = None if event.ending == "exited" and event.exit_status == 0 else _failure(job, component, event)
    attempt_ended(core, now, job, component, changes, reason)


def _failure(job: Job, component: Component, event: WrapperReported) -> Reason:
    index = component.index
    if event.reason is not None and event.reason.code != _PROCESS_FAILED:
        return _as_counted(event.reason, event.ending)
    if event.ending in _OF_PROGRAM:
        return _of_program(job, index, event)
    if event.ending == "walltime":
        return Reason(
            "walltime_exceeded", "request", f"component {index} ran longer than its walltime.", "Ask for more walltime."
        )
    told = {
        "left_barrier": "left its barrier: nobody released it in time.",
        "revoked": "came too late and was turned away.",
        "restarted": "was restarted by the batch system; its program was not run again.",
        "cancelled": "was cancelled.",
    }
    return Reason(event.ending or "lost", "transient", f"component {index} {told.get(event.ending, 'was lost.')}", "")


def _of_program(job: Job, index: int, event: WrapperReported) -> Reason:
    """Of one that failed: which process of it was the first, and the end of its standard error, if they are known."""
    how = f"exit status {event.exit_status}."
    speaker = words = ""
    if event.reason is not None:
        how, speaker, words = event.reason.message, event.reason.command, event.reason.words
    code, whose, ended = _OF_PROGRAM[event.ending]
    message = f"component {index} {ended} {how}"
    return Reason(code, whose, message, look_at(job.id, index), speaker, event.exit_status, words)


_OF_PROGRAM: dict[str, tuple[str, Whose, str]] = {
    "exited": ("exit_status", "request", "ended with"),
    "killed": ("killed", "transient", "was killed:"),
}


def _as_counted(reason: Reason, ending: str) -> Reason:
    """The wrapper says why; what counts is how it ended: an attempt killed or lost, in whichever way, is retried."""
    if ending == "killed":
        return replace(reason, code="killed", whose="transient")
    return replace(reason, whose="transient") if ending in ("left_barrier", "revoked", "restarted") else reason
