"""The run list: what is known of a component changes, its attempt is over, and what that means for its job."""

from typing import Any

from koalapy.coallocation.claim import give_up, reason_details
from koalapy.coallocation.stopping import account_held, cancel_attempt, stop_job
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.job import Component, Job, Outcome
from koalapy.model.request import RetryOn
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant

_S = ComponentState
_INSTANTS = ("at_barrier_at", "released_at", "started_at", "ended_at")


def update_component(core: Core, now: Instant, job: Job, component: Component, changes: dict[str, Any]) -> Job:
    """Put what differs, and tell a change of state."""
    different = {name: value for name, value in changes.items() if getattr(component, name) != value}
    if not different:
        return job
    job = core.records.put(job.change_component(component.index, **different))
    state = different.get("state")
    component, before = job.components[component.index], component
    if before.allocated_at is None and component.allocated_at is not None:
        core.records.note_component(now, job, component, "component_allocated", batch_id=component.batch_id)
    if state is not None:
        core.records.note_component(now, job, component, f"component_{state}", **_known_instants(component))
    return job


def with_started_at(job: Job) -> Job:
    """The job has started when its last component has."""
    if job.started_at is not None or job.state is not JobState.RUNNING:
        return job
    starts = [component.started_at for component in job.present]
    known = [start for start in starts if start is not None]
    return job.replace(started_at=max(known)) if len(known) == len(starts) else job


def look_at(job: JobId, component: int) -> str:
    """What to do about a program that ended badly."""
    return f"Look at its standard error with `koala logs {job} -c {component} -e`."


def attempt_ended(
    core: Core, now: Instant, job: Job, component: Component, changes: dict[str, Any], reason: Reason | None
) -> None:
    """An attempt is over: `reason` None means that its program ended well."""
    released = component.is_released
    state = _S.FAILED if reason else _S.DONE
    if job.state is JobState.STOPPING and reason is not None and reason.code in ("cancelled", "void", "killed"):
        state, reason = _S.CANCELLED, None  # as it was told to
    job = account_held(job, changes["ended_at"], component)
    changes = changes | {"state": state, "reason": reason}
    job = with_started_at(job.change_component(component.index, **changes))
    component = job.components[component.index]
    core.records.note_component(
        now, job, component, "component_ended",
        state=str(state), batch_id=component.batch_id, exit_status=component.exit_status,
        **_known_instants(component), **(reason_details(reason) if reason else {}),
    )  # fmt: skip
    job = core.records.put(cancel_attempt(core, job, component))
    if reason is None or job.state is JobState.STOPPING:
        return None
    if job.state is JobState.CLAIMING or not released:
        return give_up(core, now, job, component, reason)
    if not component.request.optional:
        stop_job(core, now, job, _outcome(job, reason), reason.on(component.cluster or ""))


def _outcome(job: Job, reason: Reason) -> Outcome:
    """What counts as a completion failure is the job's `retry_on`; all else is the program's answer and final."""
    kind = {"exit_status": RetryOn.EXIT, "killed": RetryOn.KILLED}.get(reason.code)
    if kind is None:
        kind = RetryOn.LOST if reason.whose == "transient" else None
    return Outcome.COMPLETION_FAILURE if kind in job.request.retry_on else Outcome.FAILED


def _known_instants(component: Component) -> dict[str, Instant]:
    """As history keeps them."""
    return {name: at for name in _INSTANTS if (at := getattr(component, name)) is not None}
