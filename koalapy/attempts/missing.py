"""Missing attempts: they are unknown while their cluster is unreachable, and lost after a time-out."""

from koalapy.attempts.attempt_end import end_attempt, update_attempt
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState
from koalapy.model.units import Instant


def step(core: Core, now: Instant) -> bool:
    """End the attempts that have been missing for so long that they are lost: those of changed jobs, and Launchers.

    It is due in each batch while an attempt may be missing.
    """
    run_list, launchers = core.run_list, core.launchers
    for identity in sorted(run_list.missing.keys() & run_list.dirty.keys()):
        for attempt in core.records.jobs[identity].live:
            _end_lost(core, now, attempt)
    for launcher in list(launchers.timed.values()):
        _end_lost(core, now, launcher)
    return bool(run_list.missing or launchers.timed)


def _end_lost(core: Core, now: Instant, attempt: Attempt) -> None:
    """End the attempt if it is missing, is lost by now, and its cluster is connected."""
    at = lost_at(attempt, core.settings)
    if at is not None and now >= at and attempt.cluster in core.information.reachable:
        reason = Reason("lost", "transient", "It was lost: no sign of it was found any more.", "")
        end_attempt(core, now, attempt, {"ended_at": now}, reason)


def lost_at(attempt: Attempt, settings: Settings) -> Instant | None:
    """Return when a missing attempt is lost if no sign of it is found; None while it is not missing."""
    if attempt.unknown_since is None or attempt.state.ended:
        return None
    return Instant(attempt.unknown_since + settings.orphan_timeout + settings.grace)


def out_of_reach(core: Core, now: Instant, cluster: str) -> None:
    """Mark released attempts on a cluster without connection as unknown until it answers."""
    asked_anew(core, now, cluster)
    for attempt in core.records.live(cluster):
        if attempt.state.released and not attempt.cancelling:
            changes = {"state": AttemptState.UNKNOWN, "silent_since": attempt.silent_since or now}
            update_attempt(core, now, attempt, changes)


def asked_anew(core: Core, now: Instant, cluster: str) -> None:
    """Count no attempt on the cluster as missing until the KCM of the next session reports it as missing."""
    for attempt in core.records.live(cluster):
        if not attempt.state.ended:
            update_attempt(core, now, attempt, {"unknown_since": None})
