"""Cancels of one attempt. A cancel is complete when nothing of the attempt is left; an attempt may be stuck."""

from typing import Any

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import CancelAttempt, ForgetAttempt
from koalapy.model.events import AttemptCleanedUp, AttemptStuck
from koalapy.model.facts import LetGo
from koalapy.model.history import HistoryKind
from koalapy.model.units import Instant


def cancel(core: Core, attempt: Attempt, force: bool = False) -> None:
    """Order the cluster to make the attempt void and end it.

    The order is given once, or again with `force`. AttemptCleanedUp reports that nothing of the attempt is left.
    """
    if attempt.let_go or (attempt.cancelling and not force):
        return
    order_cancel(core, attempt, force)
    if not attempt.cancelling:
        core.records.change_attempt(attempt, cancelling=True)


def order_cancel(core: Core, attempt: Attempt, force: bool = False) -> None:
    """Order the cluster to cancel the attempt. The caller notes with the same change that it is cancelling."""
    core.records.command(
        CancelAttempt(cluster=attempt.cluster, attempt=attempt.id, batch_id=attempt.batch_id, force=force)
    )


def clean_up(core: Core, now: Instant, attempt: Attempt) -> None:
    """Record that nothing of the attempt is left."""
    core.records.clean_up(attempt, now)
    _note_let_go(core, attempt)


def detach(core: Core, now: Instant, attempt: Attempt) -> None:
    """Make the attempt a pending cancel, for which its owner does not wait."""
    why = attempt.stuck if attempt.cluster in core.information.reachable else None
    details: dict[str, Any] = {"code": why.code, "message": str(why)} if why else {}
    core.records.note_attempt(
        now, attempt.id, attempt.cluster, HistoryKind.CANCEL_PENDING, batch_id=attempt.batch_id, **details
    )
    core.records.detach(attempt, now)
    _note_let_go(core, attempt)


def _note_let_go(core: Core, attempt: Attempt) -> None:
    if attempt.launcher is not None:
        kind, number = attempt.launcher.owner
        core.derive(LetGo(attempt=attempt.id, owner=kind, owner_id=number))


def may_run(attempt: Attempt) -> bool:
    """Return whether the attempt's program may be running; that of an attempt that counts as lost may run too."""
    taken_for_lost = attempt.released_at is not None and attempt.unknown_since is not None
    return attempt.state.released or taken_for_lost


def can_be_cancelled(attempt: Attempt, reachable: frozenset[str]) -> bool:
    """Return whether the attempt's cluster is connected, and the attempt is not stuck."""
    return attempt.cluster in reachable and attempt.stuck is None


def on_cleaned_up(core: Core, now: Instant, event: AttemptCleanedUp) -> None:
    """Record that nothing of the attempt is left on its cluster; its processors may be idle now."""
    core.mark_dirty()
    attempt = core.records.attempt_or_pending_cancel(event.attempt)
    if attempt is None or attempt.cleaned_up:
        return
    where = now, attempt.id, attempt.cluster
    if attempt.is_pending_cancel:
        if attempt.id not in core.records.jobless:
            core.records.note_attempt(*where, HistoryKind.CANCEL_COMPLETED, batch_id=attempt.batch_id)
        if attempt.superseded:
            core.records.command(ForgetAttempt(cluster=attempt.cluster, attempt=attempt.id))
        return core.records.clean_up(attempt, now)
    clean_up(core, now, attempt)
    core.records.note_attempt(*where, HistoryKind.ATTEMPT_CLEANED_UP)


def on_cancel_stuck(core: Core, now: Instant, event: AttemptStuck) -> None:
    """Record that the attempt is stuck; its owner need not wait for it any longer."""
    attempt = core.records.attempt_or_pending_cancel(event.attempt)
    if attempt is not None and not attempt.cleaned_up:
        core.records.change_attempt(attempt, stuck=event.reason)
