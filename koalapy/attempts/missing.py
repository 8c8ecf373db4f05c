"""Missing attempts: unknown while their cluster is out of reach, lost after long enough in reach."""

from koalapy.attempts.attempt_end import end_attempt, update_attempt
from koalapy.core.core import Core
from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId
from koalapy.model.job import Component
from koalapy.model.settings import Settings
from koalapy.model.states import ComponentState
from koalapy.model.units import Instant


def end_lost(core: Core, now: Instant, attempt: AttemptId, component: Component) -> None:
    """End an attempt that was missing for so long, on a cluster in reach all the time (DESIGN, promise 1)."""
    at = None if component.cleaned_up else lost_at(component, core.settings)
    if at is not None and now >= at and component.cluster in core.information.reachable:
        reason = Reason("lost", "transient", "It was lost: no sign of it was found any more.", "")
        end_attempt(core, now, attempt, component, {"ended_at": now}, reason)


def lost_at(component: Component, settings: Settings) -> Instant | None:
    """Return when a missing attempt is lost if no sign of it is found; None while it is not missing."""
    if component.unknown_since is None or component.state.final:
        return None
    return Instant(component.unknown_since + settings.orphan_timeout + settings.grace)


def out_of_reach(core: Core, now: Instant, cluster: str) -> None:
    """Mark released attempts on a cluster without connection as unknown until it answers."""
    asked_anew(core, now, cluster)
    for job, component in list(core.records.live(cluster)):
        if component.is_released and not component.cancelling:
            changes = {"state": ComponentState.UNKNOWN, "silent_since": component.silent_since or now}
            update_attempt(core, now, job.attempt_of(component), component, changes)


def asked_anew(core: Core, now: Instant, cluster: str) -> None:
    """Count no attempt there as missing until its next KCM reports it so: only a KCM that looks can miss one."""
    for job, component in list(core.records.live(cluster)):
        if not component.state.final:
            update_attempt(core, now, job.attempt_of(component), component, {"unknown_since": None})
