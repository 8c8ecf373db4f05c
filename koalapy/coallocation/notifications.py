"""Notifications about jobs and sweeps: each change once for each recipient, by tries that are committed before.

A try is committed before it is made, and never made again if its outcome is unknown: koalapy rather sends no
notification than two. A try that the recipient certainly did not take is followed by others, up to a bound.
"""

from koalapy.core.core import Core
from koalapy.model.commands import AnnounceNotification, SendNotification
from koalapy.model.errors import Reason
from koalapy.model.events import NotificationDue, NotificationTried
from koalapy.model.history import HistoryKind
from koalapy.model.notification import JobKind, Notification, NotificationId, Notify, NotifyOn, Outcome, retry_after
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.work import Flow, Work

_NO_REASON = Reason("not_sent", "ours", "The outcome of the try has no reason.", "Report this, with koalad's log.")


def announce_changes(core: Core, now: Instant) -> None:
    """Command a notification for each recipient of each change in this step."""
    changes, core.notifications.changes = core.notifications.changes, []
    for work, on in changes:
        for place, notify in enumerate(work.request.notify or ()):
            if on in notify.on:
                notification = _notification(now, work, on, place, notify)
                core.records.command(AnnounceNotification(notification=notification, due_at=now))


def _notification(now: Instant, work: Work, on: NotifyOn, place: int, notify: Notify) -> Notification:
    return Notification(
        id=NotificationId(work.id, on, place),
        to=notify.to,
        name=work.request.name,
        owner=work.owner,
        kind=_kind(work),
        at=now,
        submitted_at=work.submitted_at,
        started_at=work.started_at,
        reason=work.reason if on in (NotifyOn.FAILED, NotifyOn.CANCELLED) else None,
    )


def _kind(work: Work) -> JobKind:
    match work:
        case Sweep():
            return JobKind.SWEEP
        case Flow():
            return JobKind.FLOW
    return JobKind.JOB if work.request.pilot is None else JobKind.PILOT


def on_notification_due(core: Core, now: Instant, event: NotificationDue) -> None:
    """Let the sender make the try, which is committed from now on, unless it was committed before."""
    unsettled = core.notifications.unsettled.get(event.notification)
    if unsettled is None or unsettled.due_at is None or unsettled.number != event.number:
        return
    core.records.command(SendNotification(notification=unsettled.notification, number=event.number))


def on_notification_tried(core: Core, now: Instant, event: NotificationTried) -> None:
    """Record the outcome of the committed try. If the recipient did not take it, try again after a while."""
    unsettled = core.notifications.unsettled.get(event.notification)
    if unsettled is None or unsettled.due_at is not None or unsettled.number != event.number:
        return
    notification, job = unsettled.notification, event.notification.job
    what = {
        "on": str(event.notification.on),
        "recipient": event.notification.recipient,
        "to": str(notification.to),
        "number": event.number,
    }
    if event.outcome is Outcome.SENT:
        core.notifications.settle(event.notification, None)
        return core.records.note(now, job, HistoryKind.NOTIFICATION_SENT, **what)
    reason = event.reason or _NO_REASON
    what |= {"code": reason.code, "message": str(reason)}
    wait = retry_after(event.number) if event.outcome is Outcome.NOT_TAKEN else None
    if wait is not None:
        due_at = Instant(now + wait)
        again = AnnounceNotification(notification=notification, number=event.number + 1, due_at=due_at, failure=reason)
        core.records.command(again)
        return core.records.note(now, job, HistoryKind.NOTIFICATION_NOT_TAKEN, **what, due_at=due_at)
    core.notifications.settle(event.notification, reason)
    kind = HistoryKind.NOTIFICATION_UNKNOWN if event.outcome is Outcome.UNKNOWN else HistoryKind.NOTIFICATION_GIVEN_UP
    return core.records.note(now, job, kind, **what)
