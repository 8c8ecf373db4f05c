"""Index of the notifications that are not settled, and of the changes that somebody is to be notified of."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from koalapy.core.due import NOTIFICATIONS, DueSteps
from koalapy.model.commands import AnnounceNotification, Command, SendNotification
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.notification import Notification, NotificationId, NotifyOn
from koalapy.model.sent import SentJob
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.model.work import Flow, Work

_CHANGES = {
    JobState.RUNNING: NotifyOn.STARTED,
    JobState.DONE: NotifyOn.DONE,
    JobState.FAILED: NotifyOn.FAILED,
    JobState.CANCELLED: NotifyOn.CANCELLED,
}
_GIVEN_UP = 20  # of those that were given up, the newest are remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """A notification on its way. `number`: of its try; `due_at`: when that is made, None once it may have been made.

    `failure`: why the try before was not taken.
    """

    notification: Notification
    number: int
    due_at: Instant | None
    failure: Reason | None = None


class Notifications(Index):
    """The notifications that are not settled, by id, and the `changes` of work in this step.

    `given_up`: since koalad started, the newest of those that were not sent, or perhaps not, each with the reason.
    """

    kinds = (Job, Sweep, Flow, SentJob)

    def __init__(self, due: DueSteps) -> None:
        self._due = due
        self.unsettled: dict[NotificationId, Unsettled] = {}
        self.changes: list[tuple[Work, NotifyOn]] = []
        self.given_up: list[tuple[Notification, Reason]] = []
        self._of_jobs: dict[JobId, int] = {}

    # ---- an index of work

    def follows(self, work: Work) -> bool:
        return bool(work.request.notify)

    def changed(self, work: Work, before: JobState, names: Collection[str]) -> None:
        """Note the end or first start of the work, however often it is tried; `note_change` notes that of a sweep."""
        if work.state is before:
            return
        on = _CHANGES.get(work.state)
        if on is NotifyOn.STARTED:
            again = before is JobState.STOPPING or (isinstance(work, Job) and work.released_before)
            on = None if again or isinstance(work, Sweep) else on
        if on is not None:
            self.note_change(work, on)

    def note_change(self, work: Work, on: NotifyOn) -> None:
        """Note a change in this step, of which the recipients of a job or sweep are notified."""
        self.changes.append((work, on))
        self._due.wake(NOTIFICATIONS)

    # ---- notifications on their way

    def note_commands(self, commands: Iterable[Command]) -> None:
        """Note those of the commands that belong here (see `Core.note_commands`)."""
        for each in commands:
            if isinstance(each, AnnounceNotification):
                self._note(Unsettled(
                    notification=each.notification, number=each.number, due_at=each.due_at, failure=each.failure
                ))  # fmt: skip
            elif isinstance(each, SendNotification):
                self._note(Unsettled(notification=each.notification, number=each.number, due_at=None))

    def _note(self, unsettled: Unsettled) -> None:
        identity = unsettled.notification.id
        if identity not in self.unsettled:
            self._of_jobs[identity.job] = self._of_jobs.get(identity.job, 0) + 1
        self.unsettled[identity] = unsettled

    def settle(self, notification: NotificationId, reason: Reason | None) -> None:
        """Forget a notification. `reason`: why it was given up, or may not have arrived; None if it was sent."""
        settled = self.unsettled.pop(notification)
        self._of_jobs[notification.job] -= 1
        if not self._of_jobs[notification.job]:
            del self._of_jobs[notification.job]
        if reason is not None:
            self.given_up = [*self.given_up[1 - _GIVEN_UP :], (settled.notification, reason)]

    def has_unsettled(self, job: JobId) -> bool:
        """Return whether a notification about the job is on its way."""
        return job in self._of_jobs
