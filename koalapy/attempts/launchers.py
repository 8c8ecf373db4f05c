"""Launchers, whoever owns them: they are claimed, released alone, stopped and let go. Their owners react to facts."""

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


def claim(core: Core, now: Instant, launcher: Attempt) -> Attempt:
    """Add a Launcher with a new id, and return its row. The caller orders its submission (`submission.submit`)."""
    row = core.records.add_launcher(launcher)
    core.records.note_attempt(now, row.id, row.cluster, HistoryKind.LAUNCHER_CLAIMED)
    return row


def stop(
    core: Core, now: Instant, launcher: Attempt, stop_reason: str, reason: Reason, *, failed: bool = False,
    force: bool = False,
) -> None:  # fmt: skip
    """Order the cluster to end the Launcher. Nothing happens if it is let go, or if it is ending and `force` is false.

    `stop_reason`: see LauncherFields; the first one counts. `failed`: the reason counts as the Launcher's failure.
    `force`: nobody waits until its program has ended.
    """
    fields = launcher.launcher
    if fields is None or launcher.let_go or (launcher.cancelling and not force):
        return
    failure = fields.failure or (reason if failed else None)
    core.records.change_launcher(
        launcher, stop_reason=fields.stop_reason or stop_reason, failure=failure, forced=fields.forced or force
    )
    core.records.note_attempt(
        now,
        launcher.id,
        launcher.cluster,
        HistoryKind.LAUNCHER_STOPPING,
        code=reason.code,
        message=str(reason),
        output=reason.words,
    )
    cancel(core, launcher, force)


def on_came_to_barrier(core: Core, now: Instant, event: CameToBarrier) -> None:
    """Note that the Launcher is at its barrier in the present session, so that the next step releases it."""
    launcher = core.records.attempt(event.attempt)
    if launcher is not None and launcher.state is AttemptState.AT_BARRIER:
        core.at_barrier.add(launcher.id, launcher.cluster)
        core.launchers.mark_dirty(launcher.id)


def on_refused(core: Core, now: Instant, event: Refused) -> None:
    """Stop a Launcher whose batch job will never start: that is its failure."""
    launcher = core.records.attempt(event.attempt)
    if launcher is not None and not launcher.state.released:
        stop(core, now, launcher, event.reason.code, event.reason.on(launcher.cluster), failed=True)


def failure_of(launcher: Attempt) -> Reason | None:
    """Return why the Launcher failed; None if it has not: it goes on, ended well, or was stopped."""
    if launcher.launcher is not None and launcher.launcher.failure is not None:
        return launcher.launcher.failure
    return launcher.reason if launcher.ending is Ending.FAILED else None


# ---- the step


def step(core: Core, now: Instant) -> bool:
    """Stop the Launchers that are late at their barriers, release those that are there, and detach what cannot be
    ended.

    Only Launchers that changed are examined, and those with a running timer. It is due in each batch while there is a
    timer.
    """
    for launcher in list(core.launchers.timed.values()):
        if (late_at := barrier_ends(launcher, core.settings)) is not None and now >= late_at:
            stop(core, now, launcher, "barrier_timeout", _too_late(core.settings), failed=True)
    dirty = sorted(core.launchers.dirty)
    core.launchers.dirty.clear()
    for identity in dirty:
        if (found := core.records.launchers.get(identity)) is not None and not found.let_go:
            _examine(core, now, found)
    return bool(core.launchers.timed)


def _examine(core: Core, now: Instant, launcher: Attempt) -> None:
    if launcher.cancelling:
        nobody_waits = failure_of(launcher) is not None or (launcher.launcher is not None and launcher.launcher.forced)
        if not can_be_cancelled(launcher, core.information.reachable) and (nobody_waits or not may_run(launcher)):
            detach(core, now, launcher)
            core.mark_dirty()
    elif launcher.state is AttemptState.AT_BARRIER and launcher.id in core.at_barrier:
        _release(core, now, launcher)


def _release(core: Core, now: Instant, launcher: Attempt) -> None:
    hosts = tuple([(launcher.id.component, node.address, node.processes) for node in launcher.nodes])
    core.records.command(ReleaseAttempt(cluster=launcher.cluster, attempt=launcher.id, first_rank=0, hosts=hosts))
    core.records.change_attempt(launcher, state=AttemptState.RELEASED, released_at=now)
    core.records.note_attempt(now, launcher.id, launcher.cluster, HistoryKind.LAUNCHER_RELEASED)


def wakeup(core: Core) -> Instant | None:
    """Return the instant at which time alone changes something for a Launcher; None if there is no such instant."""
    if not core.launchers.timed:
        return None
    moments = [barrier_ends(launcher, core.settings) for launcher in core.launchers.timed.values()]
    moments += [
        lost_at(launcher, core.settings)
        for launcher in core.launchers.timed.values()
        if core.information.is_connected(launcher.cluster)
    ]
    return min([moment for moment in moments if moment is not None], default=None)


def barrier_ends(launcher: Attempt, settings: Settings) -> Instant | None:
    """Return when the Launcher is too late at its barrier, or in leaving it; None if that timer does not run.

    The timer starts with its batch job. How long a batch job may wait is for the owner to decide.
    """
    since = launcher.at_barrier_at or launcher.allocated_at
    if since is None or launcher.cancelling or launcher.state.released or launcher.state.ended:
        return None
    return Instant(since + settings.barrier_timeout)


def _too_late(settings: Settings) -> Reason:
    message = f"After {format_duration(settings.barrier_timeout)} it was not at its barrier."
    return Reason("barrier_timeout", "transient", message, "`barrier` in the grid file sets this time.")
