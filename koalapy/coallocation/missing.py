"""Components that nothing is heard of: unknown while their cluster is out of reach, lost after long enough in reach."""

from koalapy.coallocation.attempt_end import attempt_ended, update_component
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.job import Component, Job
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState, JobState
from koalapy.model.units import Instant


def lost(core: Core, now: Instant, job: Job) -> None:
    """Attempts unknown for so long, on clusters in reach all the time, that they are over (DESIGN, promise 1)."""
    for component in job.components:
        at = None if component.cleaned_up else lost_at(component, core.settings)
        if at is not None and now >= at and component.cluster in core.information.reachable:
            reason = Reason("lost", "transient", "It was lost: no sign of it was found any more.", "")
            attempt_ended(core, now, core.records.jobs[job.id], component, {"ended_at": now}, reason)


def lost_at(component: Component, settings: Settings) -> Instant | None:
    """When it is over if nothing more is heard of it; None while it is not missing."""
    if component.unknown_since is None or component.state.final:
        return None
    return Instant(component.unknown_since + settings.orphan_timeout + settings.grace)


def out_of_reach(core: Core, now: Instant, cluster: str) -> None:
    """Its connection is gone: what has been released there is unknown until it answers."""
    asked_anew(core, now, cluster)
    for job, component in list(core.records.live(cluster)):
        if job.state is JobState.RUNNING and component.is_released:
            silent = {"silent_since": component.silent_since or now}
            update_component(
                core, now, core.records.jobs[job.id], component, {"state": ComponentState.UNKNOWN} | silent
            )


def asked_anew(core: Core, now: Instant, cluster: str) -> None:
    """Nothing there counts as missing until its next KCM says so: only what it could see all the time is lost."""
    for job, component in list(core.records.live(cluster)):
        if not component.state.final:
            update_component(core, now, core.records.jobs[job.id], component, {"unknown_since": None})
