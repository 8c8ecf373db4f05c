"""Cancelling one attempt: ordered once, confirmed when nothing of it is left, or stuck in its batch system."""

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import CancelAttempt, ForgetAttempt
from koalapy.model.events import AttemptCleanedUp, AttemptStuck
from koalapy.model.units import Instant


def cancel(core: Core, attempt: Attempt, force: bool = False) -> None:
    """Void and cancel the attempt, once (again with `force`); AttemptCleanedUp reports that nothing of it is left."""
    if attempt.cleaned_up or (attempt.cancelling and not force):
        return
    order_cancel(core, attempt, force)
    if not attempt.cancelling:
        core.records.change_attempt(attempt, cancelling=True)


def order_cancel(core: Core, attempt: Attempt, force: bool = False) -> None:
    """Order the cluster to void and cancel the attempt, which is noted as cancelling with the same change."""
    core.records.command(
        CancelAttempt(cluster=attempt.cluster, attempt=attempt.id, batch_id=attempt.batch_id, force=force)
    )


def can_be_cancelled(attempt: Attempt, reachable: frozenset[str]) -> bool:
    """Return whether its cluster is in reach, and its batch system is not known to be unable to end it."""
    return attempt.cluster in reachable and attempt.stuck is None


def on_cleaned_up(core: Core, now: Instant, event: AttemptCleanedUp) -> None:
    """Record that nothing of the attempt is left on its cluster: processors may have come free."""
    core.mark_dirty()
    debt = core.records.settle(event.attempt)
    if debt is not None:
        core.records.note_attempt(now, event.attempt, debt.cluster, "debt_settled", batch_id=debt.batch_id)
    if debt is not None and debt.past:
        core.records.command(ForgetAttempt(cluster=debt.cluster, attempt=debt.attempt))
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.cleaned_up:
        return
    core.records.clean_up(attempt, now)
    core.records.note_attempt(now, attempt.id, attempt.cluster, "component_gone")


def on_cancel_stuck(core: Core, now: Instant, event: AttemptStuck) -> None:
    """Record that its batch system cannot end it; its owner need not wait for it any more."""
    attempt = core.records.attempt(event.attempt)
    if attempt is not None and not attempt.cleaned_up:
        core.records.change_attempt(attempt, stuck=event.reason)
