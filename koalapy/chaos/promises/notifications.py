"""Promises about notifications: each arrives once at most, and its recorded outcome is true."""

from collections.abc import Iterable, Mapping

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.commands import SendNotification
from koalapy.model.history import HistoryKind
from koalapy.model.identity import JobId
from koalapy.model.notification import NotificationId, NotifyOn
from koalapy.model.states import JobState
from koalapy.model.work import Work

_SETTLED = (HistoryKind.NOTIFICATION_SENT, HistoryKind.NOTIFICATION_GIVEN_UP, HistoryKind.NOTIFICATION_UNKNOWN)
_ENDS = {
    JobState.DONE: NotifyOn.DONE,
    JobState.FAILED: NotifyOn.FAILED,
    JobState.CANCELLED: NotifyOn.CANCELLED,
}


class Notifications:
    """The checker of notifications. `committed` is called after every commit, `notified` when one arrives."""

    def __init__(self) -> None:
        self._arrived: set[NotificationId] = set()
        self._committed: set[NotificationId] = set()  # those of which a try was committed
        self._settled: dict[NotificationId, str] = {}

    def notified(self, notification: NotificationId) -> None:
        """A recipient gets a notification: check that it has not got it before, and that the try is committed."""
        promise(notification not in self._arrived, Promise.NOTIFIED, "notification", notification, "arrives twice")
        promise(notification in self._committed, Promise.COMMITTED, "notification", notification, "arrives before")
        self._arrived.add(notification)

    def committed(self, change: Change, work: Mapping[JobId, Work]) -> None:
        """Check the tries and outcomes of a commit. `work`: all jobs and sweeps, as they are after it."""
        for line in change.history:
            if line.kind in _SETTLED:
                details = line.details
                settled = NotificationId(line.job, NotifyOn(details["on"]), details["recipient"])
                promise(settled not in self._settled, Promise.NOTIFIED, "notification", settled, "is settled twice")
                self._settled[settled] = line.kind
        for entry in change.sent:
            if isinstance(entry.command, SendNotification):
                found = entry.command.notification.id
                promise(found not in self._settled, Promise.NOTIFIED, "notification", found, "is sent once settled")
                end, is_end = _ENDS.get(work[found.job].state), found.on is not NotifyOn.STARTED
                promise(not is_end or end is found.on, Promise.NOTIFIED, "notification", found, "is of no such end")
                self._committed.add(found)

    def quiescent(self, work: Iterable[Work]) -> None:
        """Check that each wanted notification of what is final has an outcome, and that the outcome is true."""
        for each in work:
            for place, notify in enumerate(each.request.notify or ()):
                if (end := _ENDS.get(each.state)) in notify.on and end is not None:
                    wanted = NotificationId(each.id, end, place)
                    promise(wanted in self._settled, Promise.NOTIFIED, "notification", wanted, "has no outcome")
        for settled, kind in self._settled.items():
            arrived = settled in self._arrived
            is_false = (kind == HistoryKind.NOTIFICATION_SENT and not arrived) or (
                kind == HistoryKind.NOTIFICATION_GIVEN_UP and arrived
            )
            promise(not is_false, Promise.NOTIFIED, settled, "is recorded as", kind, "but arrived" if arrived else "")
