"""What the batch system tells of a component, where its wrapper cannot: waiting, stuck, suspended, killed, vanished."""

from typing import Any

from koalapy.coallocation.attempt_end import attempt_ended, look_at, update_component
from koalapy.coallocation.claim import give_up
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.events import BatchStatusSeen
from koalapy.model.job import Component, Job
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant

_S = ComponentState


def on_seen(core: Core, now: Instant, event: BatchStatusSeen) -> None:
    """The batch system's word, for what the wrapper cannot tell: waiting, stuck, suspended, killed, vanished."""
    found = core.records.component(event.attempt)
    if found is None or found[1].cleaned_up or found[1].state.final:
        return None
    job, component = found
    if event.state == "ended":
        return _ended_unheard(core, now, job, component, event)
    changes: dict[str, Any] = {
        "batch_id": event.batch_id or component.batch_id,
        "unknown_since": None,
        "silent_since": event.silent_since,
    }
    changes |= _SEEN.get(event.state, _nothing)(now, component, event)
    if job.state is JobState.STOPPING:
        changes.pop("state", None)
    job = update_component(core, now, job, component, changes)
    if event.stuck and job.state is JobState.CLAIMING:
        give_up(core, now, job, component, _stuck(event))


def _pending(now: Instant, component: Component, event: BatchStatusSeen) -> dict[str, Any]:
    return {"pending_reason": event.words}


def _running(now: Instant, component: Component, event: BatchStatusSeen) -> dict[str, Any]:
    changes: dict[str, Any] = {"allocated_at": component.allocated_at or now, "pending_reason": ""}
    if component.state is _S.UNKNOWN:
        changes["state"] = _S.RELEASED if component.started_at is None else _S.RUNNING
    elif component.state is _S.SUSPENDED:
        changes["state"] = _S.RUNNING
    return changes


def _suspended(now: Instant, component: Component, event: BatchStatusSeen) -> dict[str, Any]:
    return {"state": _S.SUSPENDED} if component.is_released else {}


def _missing(now: Instant, component: Component, event: BatchStatusSeen) -> dict[str, Any]:
    """Forgotten is not finished: unknown until a record, the accounting or `orphan_timeout` says more."""
    silent_since = event.silent_since or component.silent_since or now
    changes: dict[str, Any] = {"unknown_since": component.unknown_since or now, "silent_since": silent_since}
    return changes | ({"state": _S.UNKNOWN} if component.is_released else {})


def _nothing(now: Instant, component: Component, event: BatchStatusSeen) -> dict[str, Any]:
    return {}


_SEEN = {"queued": _pending, "held": _pending, "running": _running, "suspended": _suspended, "missing": _missing}


def _stuck(event: BatchStatusSeen) -> Reason:
    return Reason(
        event.stuck,
        "request",
        f"The batch system will never start it: {event.words or event.stuck}.",
        "Change what the component asks for, or the cluster's queue or account in the grid file.",
        command="status",
        words=event.words,
    )


def _ended_unheard(core: Core, now: Instant, job: Job, component: Component, event: BatchStatusSeen) -> None:
    """The batch job is over and its wrapper left no record: what the accounting says, else it was lost.

    A batch system may have ended by itself one that it could never start, which is then the reason.
    """
    told = {
        "walltime": Reason(
            "walltime_exceeded", "request", "The batch system ended it at its walltime.", "Ask for more."
        ),
        "memory": Reason(
            "memory_exceeded", "request", "It used more memory than it asked for.", "Ask for more memory."
        ),
        "killed": Reason("killed", "transient", "It was killed.", look_at(job.id, component.index)),
        "cancelled": Reason("killed", "transient", "It was cancelled in the batch system by somebody else.", ""),
    }
    lost = Reason("lost", "transient", "It was lost: its batch job ended and left no record.", "")
    reason = _stuck(event) if event.stuck else told.get(event.ending, lost)
    changes = {
        "ended_at": now,
        "exit_status": event.exit_status,
        "batch_id": event.batch_id or component.batch_id,
        "unknown_since": None,
        "silent_since": None,
    }
    attempt_ended(core, now, job, component, changes, reason)
