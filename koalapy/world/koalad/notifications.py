"""Notifications of a simulated koalad: its real queue of them, and recipients that refuse, or lose their answers."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from koalapy.driver.driver import Delivery
from koalapy.link.notifications import NotificationQueue
from koalapy.model.commands import AnnounceNotification, NotificationCommand, SendNotification
from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.notification import NotificationId, Outcome
from koalapy.model.units import MILLISECOND, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.random_streams import between

_ON_ITS_WAY = (Duration(MILLISECOND), Duration(3 * SECOND))  # to the recipient, and its answer back
_MOST_AT_ONCE = 3
_FAILED = Reason("webhook_failed", "transient", "The recipient did not take it.", "")
_OUTCOMES = (*[Outcome.SENT] * 14, *[Outcome.NOT_TAKEN] * 4, Outcome.REFUSED, Outcome.UNKNOWN)


class NotificationObserver(Protocol):
    """An observer of what recipients get."""

    def notified(self, notification: NotificationId) -> None:
        """A recipient has got this notification."""
        ...


class Recipients:
    """All recipients of one world. They outlive koalad, and get what was on its way when koalad was killed."""

    def __init__(self, agenda: Agenda, rng: Random) -> None:
        self.agenda, self._rng = agenda, rng
        self.healthy = False  # they take everything

    def outcome(self) -> Outcome:
        """Draw the outcome of a try."""
        return Outcome.SENT if self.healthy else self._rng.choice(_OUTCOMES)

    def delay(self) -> Duration:
        return between(self._rng, *_ON_ITS_WAY)

    def arrives(self, outcome: Outcome) -> bool:
        """Return whether a recipient gets the notification of a try with this outcome."""
        return outcome is Outcome.SENT or (outcome is Outcome.UNKNOWN and self._rng.random() < 0.5)


class SimSender:
    """The sender of one process of koalad. `deliver` and `after` are the process's own, and end with it."""

    def __init__(
        self,
        recipients: Recipients,
        observer: Callable[[], NotificationObserver],
        known: Callable[[JobId], bool],
        now: Callable[[], Instant],
        deliver: Callable[[Delivery], None],
        after: Callable[[Duration, Callable[[], None]], ScheduledCall],
    ) -> None:
        self._recipients, self._observer = recipients, observer
        self._now, self._deliver, self._after = now, deliver, after
        self._queue = NotificationQueue(known, _MOST_AT_ONCE)
        self._look_at: Instant | None = None

    def send(self, number: int, command: NotificationCommand, doubt: bool) -> None:
        """Carry out a command."""
        if isinstance(command, AnnounceNotification):
            self._queue.add(number, command)
            self._after(Duration(0), self._look)
        elif (delivery := self._queue.begin(number, command, doubt)) is not None:
            self._deliver(delivery)
        else:
            self._make(number, command)

    def _make(self, number: int, command: SendNotification) -> None:
        recipients, identity = self._recipients, command.notification.id
        outcome = recipients.outcome()
        there, back = recipients.delay(), recipients.delay()
        if recipients.arrives(outcome):  # also if koalad is killed meanwhile
            recipients.agenda.after(there, lambda: self._observer().notified(identity))
        reason = None if outcome is Outcome.SENT else _FAILED

        def answered() -> None:
            self._deliver(self._queue.tried(number, command, outcome, reason))
            self._look()

        self._after(Duration(there + back), answered)

    def _look(self) -> None:
        for delivery in self._queue.ready(self._now()):
            self._deliver(delivery)
        at = self._queue.next_at()
        if at is not None and at != self._look_at:
            self._look_at = at
            self._after(Duration(max(at - self._now(), MILLISECOND)), self._look)
