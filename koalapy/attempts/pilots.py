"""Pilots, whoever owns them: they are claimed, released alone, stopped, and let go. Their owners react to the facts."""

from koalapy.attempts.cancel import can_be_cancelled, cancel, detach, may_run
from koalapy.attempts.missing import lost_at
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import ReleaseAttempt
from koalapy.model.errors import Reason
from koalapy.model.facts import CameToBarrier, Refused
from koalapy.model.history import HistoryKind
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, Ending
from koalapy.model.units import Instant, format_duration


def claim(core: Core, now: Instant, pilot: Attempt) -> Attempt:
    """Add a pilot with a new id, and return its row. The caller orders its submission (`submission.submit`)."""
    row = core.records.add_pilot(pilot)
    core.records.note_attempt(now, row.id, row.cluster, HistoryKind.PILOT_CLAIMED)
    return row


def stop(
    core: Core, now: Instant, pilot: Attempt, stop_reason: str, reason: Reason, *, failed: bool = False,
    force: bool = False,
) -> None:  # fmt: skip
    """Order the cluster to end the pilot. Nothing happens if it is let go, or if it is ending and `force` is false.

    `stop_reason`: see SweepPilot; the first one counts. `failed`: the reason counts as the pilot's failure. `force`:
    nobody waits until its program has ended.
    """
    fields = pilot.pilot
    if fields is None or pilot.let_go or (pilot.cancelling and not force):
        return
    failure = fields.failure or (reason if failed else None)
    core.records.change_pilot(
        pilot, stop_reason=fields.stop_reason or stop_reason, failure=failure, forced=fields.forced or force
    )
    core.records.note_attempt(
        now,
        pilot.id,
        pilot.cluster,
        HistoryKind.PILOT_STOPPING,
        code=reason.code,
        message=str(reason),
        output=reason.words,
    )
    cancel(core, pilot, force)


def on_came_to_barrier(core: Core, now: Instant, event: CameToBarrier) -> None:
    """Note that the pilot is at its barrier in the present session, so that the next step releases it."""
    pilot = core.records.attempt(event.attempt)
    if pilot is not None and pilot.state is AttemptState.AT_BARRIER:
        core.at_barrier.add(pilot.id, pilot.cluster)
        core.launchers.mark_dirty(pilot.id)


def on_refused(core: Core, now: Instant, event: Refused) -> None:
    """Stop a pilot whose batch job will never start: that is its failure."""
    pilot = core.records.attempt(event.attempt)
    if pilot is not None and not pilot.state.released:
        stop(core, now, pilot, event.reason.code, event.reason.on(pilot.cluster), failed=True)


def failure_of(pilot: Attempt) -> Reason | None:
    """Return why the pilot failed; None if it has not: it goes on, ended well, or was stopped."""
    if pilot.pilot is not None and pilot.pilot.failure is not None:
        return pilot.pilot.failure
    return pilot.reason if pilot.ending is Ending.FAILED else None


# ---- the step


def step(core: Core, now: Instant) -> bool:
    """Stop the pilots that are late at their barriers, release those that are there, and detach what cannot be ended.

    Only pilots that changed are examined, and those with a running timer. It is due in each batch while there is a
    timer.
    """
    for pilot in list(core.launchers.timed.values()):
        if (late_at := barrier_ends(pilot, core.settings)) is not None and now >= late_at:
            stop(core, now, pilot, "barrier_timeout", _too_late(core.settings), failed=True)
    dirty = sorted(core.launchers.dirty)
    core.launchers.dirty.clear()
    for identity in dirty:
        if (found := core.records.launchers.get(identity)) is not None and not found.let_go:
            _examine(core, now, found)
    return bool(core.launchers.timed)


def _examine(core: Core, now: Instant, pilot: Attempt) -> None:
    if pilot.cancelling:
        nobody_waits = failure_of(pilot) is not None or (pilot.pilot is not None and pilot.pilot.forced)
        if not can_be_cancelled(pilot, core.information.reachable) and (nobody_waits or not may_run(pilot)):
            detach(core, now, pilot)
            core.mark_dirty()
    elif pilot.state is AttemptState.AT_BARRIER and pilot.id in core.at_barrier:
        _release(core, now, pilot)


def _release(core: Core, now: Instant, pilot: Attempt) -> None:
    hosts = tuple([(pilot.id.component, node.address, node.processes) for node in pilot.nodes])
    core.records.command(ReleaseAttempt(cluster=pilot.cluster, attempt=pilot.id, first_rank=0, hosts=hosts))
    core.records.change_attempt(pilot, state=AttemptState.RELEASED, released_at=now)
    core.records.note_attempt(now, pilot.id, pilot.cluster, HistoryKind.PILOT_RELEASED)


def wakeup(core: Core) -> Instant | None:
    """Return the instant at which time alone changes something for a pilot; None if there is no such instant."""
    if not core.launchers.timed:
        return None
    moments = [barrier_ends(pilot, core.settings) for pilot in core.launchers.timed.values()]
    moments += [
        lost_at(pilot, core.settings)
        for pilot in core.launchers.timed.values()
        if core.information.is_connected(pilot.cluster)
    ]
    return min([moment for moment in moments if moment is not None], default=None)


def barrier_ends(pilot: Attempt, settings: Settings) -> Instant | None:
    """Return when the pilot is too late at its barrier, or in leaving it; None if that timer does not run.

    The timer starts with its batch job. How long a batch job may wait is for the owner to decide.
    """
    since = pilot.at_barrier_at or pilot.allocated_at
    if since is None or pilot.cancelling or pilot.state.released or pilot.state.ended:
        return None
    return Instant(since + settings.barrier_timeout)


def _too_late(settings: Settings) -> Reason:
    message = f"After {format_duration(settings.barrier_timeout)} it was not at its barrier."
    return Reason("barrier_timeout", "transient", message, "`barrier` in the grid file sets this time.")
