"""The run list: what wrappers and batch systems tell of every component, and what it means for its job."""

from dataclasses import replace
from typing import Any

from koalapy.coallocation.claim import give_up, told
from koalapy.coallocation.stopping import account_held, end, stop
from koalapy.coallocation.whereabouts import released_before
from koalapy.information.kis import Information
from koalapy.model.commands import CollectOutput
from koalapy.model.errors import Reason
from koalapy.model.events import ComponentReported, ComponentSeen, OutputCollected
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.records import Records
from koalapy.model.request import RetryOn
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant

_S = ComponentState
_INSTANTS = ("at_barrier_at", "released_at", "started_at", "ended_at")
_BEFORE_BARRIER = (_S.SUBMITTING, _S.QUEUED)


def reported(records: Records, now: Instant, event: ComponentReported, clusters: Information) -> None:
    """The wrapper's word. It may tell again what it told before, and skip steps that it told nobody."""
    found = records.component(event.attempt)
    if found is None or found[1].gone or found[1].state.final:
        return None
    job, component = found
    job = released_before(records, now, job, event)
    component = job.components[component.index]
    if event.phase == "ended":
        return _ended(records, now, job, component, event, clusters)
    changes = _progress(now, component, event)
    if job.state is JobState.STOPPING:
        changes.pop("state", None)
    job = _update(records, now, job, component, changes)
    started = _with_start(job)
    if started is not job:
        records.put(started)


def _progress(now: Instant, component: Component, event: ComponentReported) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "allocated_at": component.allocated_at or now,
        "batch_id": event.batch_id or component.batch_id,
        "pending_reason": "",
        "unknown_since": None,
    }
    if component.queued_at is None:
        changes["queued_at"] = now
    if event.nodes:
        changes["nodes"] = event.nodes
    changes |= _instants(component, event)
    state = _state_after(component.state, event.phase)
    return changes | ({"state": state} if state else {})


def _instants(component: Component, event: ComponentReported) -> dict[str, Instant]:
    """As the wrapper's clock has them; but nothing that follows our release can have happened before it."""
    told: dict[str, Instant] = {}
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


def _update(records: Records, now: Instant, job: Job, component: Component, changes: dict[str, Any]) -> Job:
    """Put what differs, and tell a change of state."""
    different = {name: value for name, value in changes.items() if getattr(component, name) != value}
    if not different:
        return job
    job = records.put(job.with_component(component.index, **different))
    state = different.get("state")
    component, before = job.components[component.index], component
    if before.allocated_at is None and component.allocated_at is not None:
        records.note_component(now, job, component, "component_allocated", batch_id=component.batch_id)
    if state is not None:
        records.note_component(now, job, component, f"component_{state}", **_known_instants(component))
    return job


def _known_instants(component: Component) -> dict[str, Instant]:
    """As history keeps them."""
    return {name: at for name in _INSTANTS if (at := getattr(component, name)) is not None}


def _with_start(job: Job) -> Job:
    """The job has started when its last component has."""
    if job.started_at is not None or job.state is not JobState.RUNNING:
        return job
    starts = [component.started_at for component in job.present]
    known = [start for start in starts if start is not None]
    return job.but(started_at=max(known)) if len(known) == len(starts) else job


def _ended(
    records: Records, now: Instant, job: Job, component: Component, event: ComponentReported, clusters: Information
) -> None:
    changes = _progress(now, component, event)
    started_at = changes.get("started_at", component.started_at) or Instant(0)
    changes |= {"ended_at": max(event.ended_at or now, started_at), "exit_status": event.exit_status}
    reason = None if event.ending == "exited" and event.exit_status == 0 else _failure(component, event)
    over(records, now, job, component, changes, reason, clusters)


def over(
    records: Records,
    now: Instant,
    job: Job,
    component: Component,
    changes: dict[str, Any],
    reason: Reason | None,
    clusters: Information,
) -> None:
    """An attempt is over: `reason` None means that its program ended well."""
    released = component.state.facts.released
    state = _S.FAILED if reason else _S.DONE
    if job.state is JobState.STOPPING and reason is not None and reason.code in ("cancelled", "revoked", "killed"):
        state, reason = _S.CANCELLED, None  # as it was told to
    job = account_held(job, changes["ended_at"], component)
    changes = changes | {"state": state, "reason": reason}
    job = _with_start(job.with_component(component.index, **changes))
    component = job.components[component.index]
    records.note_component(
        now, job, component, "component_ended",
        state=str(state), batch_id=component.batch_id, exit_status=component.exit_status,
        **_known_instants(component), **(told(reason) if reason else {}),
    )  # fmt: skip
    job = records.put(end(records, job, component))
    if reason is None or job.state is JobState.STOPPING:
        return None
    if job.state is JobState.CLAIMING or not released:
        return give_up(records, now, job, component, reason, clusters)
    if not component.request.optional:
        stop(records, now, job, _outcome(job, reason), reason.on(component.cluster or ""))


def _failure(component: Component, event: ComponentReported) -> Reason:
    index, status = component.index, event.exit_status
    if event.reason is not None:
        return _as_counted(event.reason, event.ending)
    if event.ending == "exited":
        return Reason("exit_status", "request", f"component {index} ended with exit status {status}.", _LOOK)
    if event.ending == "walltime":
        return Reason(
            "walltime_exceeded", "request", f"component {index} ran longer than its walltime.", "Ask for more walltime."
        )
    if event.ending == "killed":
        return Reason("killed", "transient", f"component {index} was killed (exit status {status}).", _LOOK)
    told = {
        "left_barrier": "left its barrier: nobody released it in time.",
        "revoked": "came too late and was turned away.",
        "restarted": "was restarted by the batch system; its program was not run again.",
        "cancelled": "was cancelled.",
    }
    return Reason(event.ending or "lost", "transient", f"component {index} {told.get(event.ending, 'was lost.')}", "")


def _as_counted(reason: Reason, ending: str) -> Reason:
    """The wrapper says why; what counts is how it ended: an attempt killed or lost, in whichever way, is retried."""
    if ending == "killed":
        return replace(reason, code="killed", whose="transient")
    return replace(reason, whose="transient") if ending in ("left_barrier", "revoked", "restarted") else reason


_LOOK = "Look at its output with `koala logs`."


def _outcome(job: Job, reason: Reason) -> Outcome:
    """What counts as a completion failure is the job's `retry_on`; all else is the program's answer and final."""
    kind = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED}.get(reason.code)
    if kind is None:
        kind = RetryOn.LOST if reason.whose == "transient" else None
    return Outcome.COMPLETION_FAILURE if kind in job.request.retry_on else Outcome.FAILED


def seen(records: Records, now: Instant, event: ComponentSeen, clusters: Information) -> None:
    """The batch system's word, for what the wrapper cannot tell: waiting, stuck, suspended, killed, vanished."""
    found = records.component(event.attempt)
    if found is None or found[1].gone or found[1].state.final:
        return None
    job, component = found
    if event.state == "ended":
        return _ended_unheard(records, now, job, component, event, clusters)
    changes: dict[str, Any] = {"batch_id": event.batch_id or component.batch_id, "unknown_since": None}
    changes |= _SEEN.get(event.state, _nothing)(now, component, event)
    if job.state is JobState.STOPPING:
        changes.pop("state", None)
    job = _update(records, now, job, component, changes)
    if event.stuck and job.state is JobState.CLAIMING:
        give_up(records, now, job, component, _stuck(event), clusters)


def _pending(now: Instant, component: Component, event: ComponentSeen) -> dict[str, Any]:
    return {"pending_reason": event.words}


def _running(now: Instant, component: Component, event: ComponentSeen) -> dict[str, Any]:
    changes: dict[str, Any] = {"allocated_at": component.allocated_at or now, "pending_reason": ""}
    if component.state is _S.UNKNOWN:
        changes["state"] = _S.RELEASED if component.started_at is None else _S.RUNNING
    elif component.state is _S.SUSPENDED:
        changes["state"] = _S.RUNNING
    return changes


def _suspended(now: Instant, component: Component, event: ComponentSeen) -> dict[str, Any]:
    return {"state": _S.SUSPENDED} if component.state.facts.released else {}


def _missing(now: Instant, component: Component, event: ComponentSeen) -> dict[str, Any]:
    """Forgotten is not finished: unknown until a record, the accounting or `orphan_timeout` says more."""
    changes: dict[str, Any] = {"unknown_since": component.unknown_since or now}
    return changes | ({"state": _S.UNKNOWN} if component.state.facts.released else {})


def _nothing(now: Instant, component: Component, event: ComponentSeen) -> dict[str, Any]:
    return {}


_SEEN = {"queued": _pending, "held": _pending, "running": _running, "suspended": _suspended, "missing": _missing}


def _stuck(event: ComponentSeen) -> Reason:
    return Reason(
        event.stuck,
        "request",
        f"The batch system will never start it: {event.words or event.stuck}.",
        "Change what the component asks for, or the cluster's queue or account in the grid file.",
        command="status",
        words=event.words,
    )


def _ended_unheard(
    records: Records, now: Instant, job: Job, component: Component, event: ComponentSeen, clusters: Information
) -> None:
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
        "killed": Reason("killed", "transient", "It was killed.", _LOOK),
        "cancelled": Reason("killed", "transient", "It was cancelled in the batch system by somebody else.", ""),
    }
    lost = Reason("lost", "transient", "It was lost: its batch job ended and left no record.", "")
    reason = _stuck(event) if event.stuck else told.get(event.ending, lost)
    changes = {
        "ended_at": now,
        "exit_status": event.exit_status,
        "batch_id": event.batch_id or component.batch_id,
        "unknown_since": None,
    }
    over(records, now, job, component, changes, reason, clusters)


def lost(
    records: Records, settings: Settings, now: Instant, job: Job, reachable: frozenset[str], clusters: Information
) -> None:
    """Attempts unknown for so long, on clusters in reach all the time, that they are over (DESIGN, promise 1)."""
    for component in job.components:
        at = None if component.gone else lost_at(component, settings)
        if at is not None and now >= at and component.cluster in reachable:
            reason = Reason("lost", "transient", "It was lost: no sign of it was found any more.", "")
            over(records, now, records.jobs[job.id], component, {"ended_at": now}, reason, clusters)


def lost_at(component: Component, settings: Settings) -> Instant | None:
    """When it is over if nothing more is heard of it; None while it is not missing."""
    if component.unknown_since is None or component.state.final:
        return None
    return Instant(component.unknown_since + settings.orphan_timeout + settings.grace)


def out_of_reach(records: Records, now: Instant, cluster: str) -> None:
    """Its connection is gone: what has been released there is unknown until it answers."""
    asked_anew(records, now, cluster)
    for job, component in list(records.live(cluster)):
        if job.state is JobState.RUNNING and component.state.facts.released and not component.state.final:
            _update(records, now, records.jobs[job.id], component, {"state": _S.UNKNOWN})


def asked_anew(records: Records, now: Instant, cluster: str) -> None:
    """Nothing there counts as missing until its next KCM says so: only what it could see all the time is lost."""
    for job, component in list(records.live(cluster)):
        if not component.state.final:
            _update(records, now, records.jobs[job.id], component, {"unknown_since": None})


def finish_if_over(records: Records, now: Instant, job: Job) -> None:
    """All components ended well: bring the output, then the job is done."""
    if job.state is not JobState.RUNNING or job.collecting:
        return None
    present = job.present
    if not all(each.state.final for each in present):
        return None
    if not job.request.stage_out:
        return stop(records, now, job, Outcome.DONE)
    job = records.put(job.but(collecting=True))
    sources = tuple((each.cluster, job.attempt_of(each)) for each in present if each.cluster is not None)
    request = job.request
    records.command(
        CollectOutput(
            job=job.id, sources=sources, paths=request.stage_out, directory=request.directory, to=request.stage_out_to
        )
    )
    return None


def collected(records: Records, now: Instant, event: OutputCollected) -> None:
    job = records.jobs.get(event.job)
    if job is None or not job.collecting or job.state is not JobState.RUNNING:
        return
    told = {"files": event.files, "size": event.size, "notes": list(event.notes)} if event.files or event.notes else {}
    message = {"message": str(event.reason)} if event.reason else {}
    records.note(now, job.id, "output_collected", **message, **told)
    stop(records, now, job, Outcome.FAILED if event.reason else Outcome.DONE, event.reason)
