"""Reactions to wrapper reports, which give an attempt's phase, and how it ended."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from koalapy.attempts.attempt_end import end_attempt, look_at, update_attempt
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.cluster import Node
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason, Whose
from koalapy.model.events import WrapperReported
from koalapy.model.facts import CameToBarrier
from koalapy.model.identity import AttemptId
from koalapy.model.request import ComponentRequest, Launch
from koalapy.model.states import AttemptState, ReportedEnding, WrapperPhase
from koalapy.model.units import Instant

_PROCESS_FAILED = "process_failed"  # the report names the process and its end: wrapper.reasons
_S, _P, _E = AttemptState, WrapperPhase, ReportedEnding
_BEFORE_BARRIER = (_S.SUBMITTING, _S.QUEUED, _S.ALLOCATED)


def on_reported(core: Core, now: Instant, event: WrapperReported) -> None:
    """Record the attempt's phase, nodes and instants. A report may repeat known phases, and skip others."""
    ended = event.phase is _P.ENDED
    if ended:
        core.mark_dirty()
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state.ended:
        return None
    changes = _progress(now, attempt, event)
    if "nodes" in changes and not _is_division(attempt.request, event.nodes):
        if not attempt.cancelling and not attempt.state.released and not ended:
            return _misdivided(core, now, attempt, event)
        del changes["nodes"]
    if ended:
        return _ended(core, now, attempt, event, changes)
    if attempt.cancelling:
        changes.pop("state", None)
    update_attempt(core, now, attempt, changes)
    if event.phase is _P.AT_BARRIER:
        core.derive(CameToBarrier(attempt=attempt.id, owner=attempt.owner_kind))


def _is_division(request: ComponentRequest, nodes: Sequence[Node]) -> bool:
    """Return whether the nodes have the processes that the component starts.

    The wrapper divides them in koalapy_adapters.wrapper.process_layout.
    """
    counts = [node.processes for node in nodes]
    if request.launch is Launch.PER_NODE and set(counts) != {1}:
        return False
    return sum(counts) == request.processes(len(counts))


def _misdivided(core: Core, now: Instant, attempt: Attempt, event: WrapperReported) -> None:
    """End an attempt whose processes are not those requested: with them, all ranks and hosts would be wrong."""
    count = sum(node.processes for node in event.nodes)
    found = f"{counted_as(count, 'process', 'processes')} on {counted_as(len(event.nodes), 'node')}"
    message = f"Its wrapper reported {found}, which is not what was asked for."
    reason = Reason("wrong_processes", "cluster", message, "Find the program that runs as the KCM on its head node.")
    changes = _progress(now, attempt, replace(event, nodes=(), phase=_P.STARTED))
    end_attempt(core, now, attempt, changes | {"ended_at": now}, reason)


def _progress(now: Instant, attempt: Attempt, event: WrapperReported) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if attempt.allocated_at is None:
        changes["allocated_at"] = now
    if event.batch_id:
        changes["batch_id"] = event.batch_id
    if attempt.pending_reason:
        changes["pending_reason"] = ""
    if attempt.unknown_since is not None:
        changes["unknown_since"] = None
    if attempt.silent_since is not None:
        changes["silent_since"] = None
    if attempt.queued_at is None:
        changes["queued_at"] = now
    if event.nodes and event.nodes != attempt.nodes:
        changes["nodes"] = event.nodes
    if event.began_at is not None:  # the instants are by the wrapper's clock; none after the release precedes it
        changes["began_at"] = event.began_at
    released_at = attempt.released_at or Instant(0)
    if event.at_barrier_at is not None:
        changes["at_barrier_at"] = event.at_barrier_at
    if event.released_at is not None:
        changes["released_at"] = max(event.released_at, released_at)
    if event.started_at is not None:
        changes["started_at"] = max(event.started_at, released_at)
    state = _state_after(attempt.state, event.phase)
    if state is not None:
        changes["state"] = state
    return changes


def _state_after(state: AttemptState, phase: WrapperPhase) -> AttemptState | None:
    """Return the state after the report; None if the report does not change it."""
    if state in _BEFORE_BARRIER:
        return _S.AT_BARRIER if phase is _P.AT_BARRIER else None if state is _S.ALLOCATED else _S.ALLOCATED
    if phase is _P.RUNNING:
        return _S.RUNNING if state in (_S.RELEASED, _S.UNKNOWN) else None
    return _S.RELEASED if state is _S.UNKNOWN and phase in (_P.RELEASED, _P.AT_BARRIER) else None


def _ended(core: Core, now: Instant, attempt: Attempt, event: WrapperReported, changes: dict[str, Any]) -> None:
    started_at = changes.get("started_at", attempt.started_at) or Instant(0)
    changes |= {"ended_at": max(event.ended_at or now, started_at), "exit_status": event.exit_status}
    reason = None if event.ending is _E.EXITED and event.exit_status == 0 else _failure(event)
    if reason is not None and reason.code == "shut_out":
        reason = _as_shut_out(core, attempt, reason)
    end_attempt(core, now, attempt, changes, reason)


def _as_shut_out(core: Core, attempt: Attempt, reason: Reason) -> Reason:
    """Return the reason, as transient if other wrappers of the cluster have come to its relay in this session.

    Then the network lets nodes connect, and the head node or this node was too busy.
    """
    if all(each == attempt.id for each in core.at_barrier.on(attempt.cluster)):
        return reason
    message = f"{reason.message} Other nodes are connected meanwhile."
    advice = "Look at the load of the head node, and at the network of this node."
    return replace(reason, whose="transient", message=message, advice=advice)


def _failure(event: WrapperReported) -> Reason:
    index = event.attempt.component
    if event.reason is not None and event.reason.code != _PROCESS_FAILED:
        return _as_counted(event.reason, event.ending)
    if event.ending in _OF_PROGRAM:
        return _of_program(event.attempt, event)
    if event.ending is _E.WALLTIME:
        return Reason(
            "walltime_exceeded", "request", f"component {index} ran longer than its walltime.", "Ask for more walltime."
        )
    texts = {
        _E.LEFT_BARRIER: "left its barrier: nobody released it in time.",
        _E.VOID: "came too late and was turned away.",
        _E.RESTARTED: "was restarted by the batch system; its program was not run again.",
        _E.CANCELLED: "was cancelled.",
    }
    return Reason(
        str(event.ending) or "lost", "transient", f"component {index} {texts.get(event.ending, 'was lost.')}", ""
    )


def _of_program(attempt: AttemptId, event: WrapperReported) -> Reason:
    """Return why a program failed, with its first failed process and the end of its standard error if known."""
    how = f"exit status {event.exit_status}."
    speaker = words = ""
    if event.reason is not None:
        how, speaker, words = event.reason.message, event.reason.command, event.reason.words
    code, whose, ended = _OF_PROGRAM[event.ending]
    message = f"component {attempt.component} {ended} {how}"
    return Reason(code, whose, message, look_at(attempt), speaker, event.exit_status, words)


_OF_PROGRAM: dict[ReportedEnding, tuple[str, Whose, str]] = {
    _E.EXITED: ("exit_status", "request", "ended with"),
    _E.KILLED: ("killed", "transient", "was killed:"),
}


def _as_counted(reason: Reason, ending: ReportedEnding) -> Reason:
    """Return the wrapper's reason, as transient if the attempt was killed, left its barrier, was void or restarted."""
    if ending is _E.KILLED:
        return replace(reason, code="killed", whose="transient")
    return replace(reason, whose="transient") if ending in (_E.LEFT_BARRIER, _E.VOID, _E.RESTARTED) else reason
