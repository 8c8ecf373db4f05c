"""The KCM's events: numbered from 1, kept until koalad has committed them, and sent again unless it has."""

from collections import OrderedDict
from typing import Any, List, Optional

from koalapy_adapters.frames import FrameError, as_payload
from koalapy_adapters.kcm.state.actions import SECOND, Send
from koalapy_adapters.messages import is_sound, to_json
from koalapy_adapters.messages.kcm import Event, Failure, Measured, MeasureFailed

_BAD_MEASUREMENT = Failure(
    "bad_measurement",
    "ours",
    "The numbers that were read from the batch system are impossible.",
    "Its adapter misreads it: report this, with the output of the batch system's status command.",
)
PATIENCE = 30 * SECOND  # an event that long unacknowledged is sent again


class EventQueue:
    """Unconfirmed events. Only one measurement is on the way; of those that wait behind it only the newest is kept."""

    def __init__(self) -> None:
        self._events: "OrderedDict[int, Event]" = OrderedDict()
        self._last = 0
        self._measurement = 0  # the number of the one that is on the way
        self._waiting: Optional[Any] = None
        self._quiet_since = 0

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._last

    def put(self, now: int, body: Any) -> List[Any]:
        """Number this message as an event and send it. One that koalad would not understand is passed over.

        So is one that no frame has room for: koalad would wait for its number, and accept nothing that comes after it.
        """
        event = Event(self._last + 1, to_json(body))
        if not is_sound(body) or not _fits(event):
            if not isinstance(body, Measured):
                return []
            event = Event(self._last + 1, to_json(MeasureFailed(body.measured_at, dict(_BAD_MEASUREMENT._asdict()))))
        self._last += 1
        if not self._events:
            self._quiet_since = now
        self._events[self._last] = event
        return [Send(event)]

    def put_measurement(self, now: int, body: Any) -> List[Any]:
        if self._measurement in self._events:
            self._waiting = body
            return []
        actions = self.put(now, body)
        self._measurement, self._waiting = self._last, None
        return actions

    def acknowledge(self, now: int, number: int) -> List[Any]:
        """All up to this number are committed."""
        while self._events and next(iter(self._events)) <= number:
            self._events.popitem(last=False)
        self._quiet_since = now
        if self._waiting is not None and self._measurement not in self._events:
            return self.put_measurement(now, self._waiting)
        return []

    def wakeup(self) -> Optional[int]:
        return self._quiet_since + PATIENCE if self._events else None

    def tick(self, now: int) -> List[Any]:
        """Send again what koalad has been silent about."""
        due = self.wakeup()
        if due is None or now < due:
            return []
        self._quiet_since = now
        return [Send(event) for event in self._events.values()]


def _fits(event: Event) -> bool:
    try:
        as_payload(to_json(event))
    except FrameError:
        return False
    return True
