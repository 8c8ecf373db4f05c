"""Cancelling one attempt: ordered once, confirmed when nothing of it is left, or stuck in its batch system."""

from koalapy.core.core import Core
from koalapy.model.commands import CancelAttempt, ForgetAttempt
from koalapy.model.events import AttemptCleanedUp, AttemptStuck
from koalapy.model.identity import AttemptId
from koalapy.model.job import Component
from koalapy.model.units import Instant


def cancel(core: Core, attempt: AttemptId, force: bool = False) -> None:
    """Void and cancel the attempt, once (again with `force`); AttemptCleanedUp reports that nothing of it is left."""
    component = core.records.attempt(attempt)
    if component is None or component.cleaned_up or (component.cancelling and not force):
        return
    assert component.cluster is not None
    core.records.command(
        CancelAttempt(cluster=component.cluster, attempt=attempt, batch_id=component.batch_id, force=force)
    )
    core.records.put_attempt(attempt, component.replace(cancelling=True))


def can_be_cancelled(component: Component, reachable: frozenset[str]) -> bool:
    """Return whether its cluster is in reach, and its batch system is not known to be unable to end it."""
    return component.cluster in reachable and component.stuck is None


def on_cleaned_up(core: Core, now: Instant, event: AttemptCleanedUp) -> None:
    """Record that nothing of the attempt is left on its cluster: processors may have come free."""
    core.mark_dirty()
    debt = core.records.settle(event.attempt)
    if debt is not None:
        core.records.note_attempt(now, event.attempt, debt.cluster, "debt_settled", batch_id=debt.batch_id)
    if debt is not None and debt.past:
        core.records.command(ForgetAttempt(cluster=debt.cluster, attempt=debt.attempt))
    component = core.records.attempt(event.attempt)
    if component is None or component.cleaned_up:
        return
    core.records.put_attempt(event.attempt, component.clean_up(now))
    core.records.note_attempt(now, event.attempt, component.cluster, "component_gone")


def on_cancel_stuck(core: Core, now: Instant, event: AttemptStuck) -> None:
    """Record that its batch system cannot end it; its owner need not wait for it any more."""
    component = core.records.attempt(event.attempt)
    if component is not None and not component.cleaned_up:
        core.records.put_attempt(event.attempt, component.replace(stuck=event.reason))
