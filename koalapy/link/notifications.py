"""When notifications are sent: each at its time, few at once, each try once. Pure: its caller makes the tries."""

import heapq
from collections.abc import Callable

from koalapy.driver.driver import Delivery
from koalapy.model.commands import AnnounceNotification, SendNotification
from koalapy.model.errors import Reason
from koalapy.model.events import NotificationDue, NotificationTried
from koalapy.model.identity import JobId
from koalapy.model.notification import NotificationId, Outcome
from koalapy.model.records import Step
from koalapy.model.units import Instant

MOST_AT_ONCE = 8  # so many can be in doubt after koalad was killed
_IN_DOUBT = Reason(
    "notification_in_doubt",
    "transient",
    "koalad ended while the notification was being sent, so it may have arrived.",
    "It is not sent again.",
)


class NotificationQueue:
    """The notifications of one koalad that are not settled. Each method's deliveries go to the driver, in order.

    `known`: whether the store has the job's record. A notification of a job without one is dropped.
    """

    def __init__(self, known: Callable[[JobId], bool], most_at_once: int = MOST_AT_ONCE) -> None:
        self._known, self._most = known, most_at_once
        self._waiting: list[tuple[Instant, int, AnnounceNotification]] = []
        self._busy: dict[NotificationId, None] = {}  # those with a try that is due or under way

    def add(self, number: int, command: AnnounceNotification) -> None:
        """Add a notification that waits for its time. `number`: the command's in the outbox."""
        heapq.heappush(self._waiting, (command.due_at, number, command))

    def ready(self, now: Instant) -> list[Delivery]:
        """Return a delivery for each notification whose time has come, as many as can be sent at once.

        Raises what `known` raises; then the notifications wait on.
        """
        found: list[Delivery] = []
        while self._waiting and self._waiting[0][0] <= now and len(self._busy) < self._most:
            _, number, command = self._waiting[0]
            identity = command.notification.id
            known = self._known(identity.job)
            heapq.heappop(self._waiting)
            if known:
                self._busy[identity] = None
            found.append(self._due(identity, number, command) if known else Delivery(confirmed=(number,)))
        return found

    def next_at(self) -> Instant | None:
        """Return the instant at which `ready` has something to return; None while nothing can be sent."""
        return self._waiting[0][0] if self._waiting and len(self._busy) < self._most else None

    def begin(self, number: int, command: SendNotification, doubt: bool) -> Delivery | None:
        """Return None if the try is to be made now. In doubt it is not made, and the delivery reports that.

        Raises what `known` raises; then nothing has begun.
        """
        identity = command.notification.id
        if not self._known(identity.job):
            return Delivery(confirmed=(number,))
        if doubt:
            return self.tried(number, command, Outcome.UNKNOWN, _IN_DOUBT)
        self._busy[identity] = None
        return None

    def tried(self, number: int, command: SendNotification, outcome: Outcome, reason: Reason | None) -> Delivery:
        """Return the delivery that reports the outcome of a try."""
        identity = command.notification.id
        self._busy.pop(identity, None)
        event = NotificationTried(notification=identity, number=command.number, outcome=outcome, reason=reason)
        return Delivery(events=(event,), confirmed=(number,))

    def _due(self, identity: NotificationId, number: int, command: AnnounceNotification) -> Delivery:
        def committed(step: Step) -> None:
            sent = [each for each in step.commands if isinstance(each, SendNotification)]
            if identity not in [each.notification.id for each in sent]:
                self._busy.pop(identity, None)

        return Delivery(
            events=(NotificationDue(notification=identity, number=command.number),),
            confirmed=(number,),
            after=committed,
            refused=lambda reason: self._busy.pop(identity, None) and None,
        )
