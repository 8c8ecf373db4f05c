"""Connections of the simulated world: ordered streams of messages between two ends, which can stall and break."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from koalapy.model.units import Duration, Instant
from koalapy.world.agenda import Agenda

Json = dict[str, Any]


class End:
    """One side of a pipe. Its owner sets `on_message` and `on_closed`; after `on_closed` nothing comes."""

    def __init__(self) -> None:
        self.on_message: Callable[[Json], None] = lambda message: None
        self.on_closed: Callable[[], None] = lambda: None
        self.open = True
        self._send: Callable[[Json], None]
        self._close: Callable[[], None]

    def send(self, message: Json) -> None:
        """Send a message. It is lost if the pipe is broken."""
        if self.open:
            self._send(message)

    def close(self) -> None:
        """Close this side; the other notices after all earlier messages."""
        if self.open:
            self.open = False
            self._close()


class Pipe:
    """A connection of `near` and `far`. Each message has its own `latency`; messages stay in order unless disturbed."""

    def __init__(self, agenda: Agenda, latency: Callable[[], Duration]) -> None:
        self._agenda, self._latency = agenda, latency
        self.near, self.far = End(), End()
        self._numbers = numbers = _Numbers()
        self._ways = (
            _Way(self, self.near, self.far, numbers.to_far),
            _Way(self, self.far, self.near, numbers.to_near),
        )

    @property
    def stands(self) -> bool:
        """Return whether both ends are open."""
        return self.near.open and self.far.open

    def cut(self, near_notices: Duration = Duration(0), far_notices: Duration = Duration(0)) -> None:
        """Break the pipe: messages under way are lost, and each side notices after a delay of its own."""
        for way in self._ways:
            way.broken = True
        self._agenda.after(near_notices, lambda: _closed(self.near))
        self._agenda.after(far_notices, lambda: _closed(self.far))

    def stall(self, duration: Duration) -> None:
        """Let nothing arrive for a while in either direction; nothing is lost."""
        for way in self._ways:
            way.held_until = Instant(max(way.held_until, self._agenda.now + duration))

    def disturb_next_event(self, how: str) -> None:
        """Let the next event to the near end be `repeated`, `dropped`, or `late`: after the one that follows it."""
        self._ways[1].disturbance = how

    @property
    def next_number(self) -> int:
        """The number of the KCM's next event, as the near end counts."""
        return self._numbers.next

    def slip_in(self, message: Json) -> None:
        """Deliver a message to the near end at once, as if the far end had sent it, unless the pipe is broken.

        After an event with the `next_number` the KCM's own have higher ones.
        """
        if not self._ways[1].broken and self.near.open:
            self._numbers.slip_in(message)
            self.near.on_message(message)

    def arrival(self, way: "_Way") -> Instant:
        return Instant(max(self._agenda.now + self._latency(), way.last_at, way.held_until))

    def enter(self, when: Instant, call: Callable[[], None]) -> None:
        self._agenda.at(when, call)


class _Numbers:
    """The numbers of a KCM's events. The near end also counts those that were inserted between them."""

    def __init__(self) -> None:
        self._newest = 0  # of the KCM's events that arrived in order
        self._after: list[int] = []  # of each that was slipped in: which of the KCM's events came before it

    @property
    def next(self) -> int:
        return self._newest + len(self._after) + 1

    def slip_in(self, message: Json) -> None:
        if message.get("type") == "event" and message.get("number") == self.next:
            self._after.append(self._newest)

    def to_near(self, message: Json) -> Json:
        if message["type"] != "event":
            return message
        number = message["number"]
        if number == self._newest + 1:
            self._newest = number
        return message | {"number": number + bisect_left(self._after, number)} if self._after else message

    def to_far(self, message: Json) -> Json | None:
        """Return the message for the KCM; None for an acknowledgement that concerns inserted events only."""
        if message["type"] != "acknowledge" or not self._after:
            return message
        number = message["number"]
        own = number - sum(after + index <= number for index, after in enumerate(self._after, 1))
        return message | {"number": own} if own else None


class _Way:
    """One direction of a pipe."""

    def __init__(self, pipe: Pipe, sender: End, receiver: End, numbered: Callable[[Json], Json | None]) -> None:
        self._pipe, self._receiver, self._numbered = pipe, receiver, numbered
        self.broken = False
        self.last_at = self.held_until = Instant(0)
        self.disturbance = ""
        self._late: list[Json] = []
        sender._send, sender._close = self._send, self._close

    def _send(self, message: Json) -> None:
        how = ""
        if self.disturbance and message["type"] == "event":
            how, self.disturbance = self.disturbance, ""
        if how == "late":
            self._late.append(message)
            return
        copies = {"dropped": 0, "repeated": 2}.get(how, 1)
        for each in [message] * copies + self._late:
            self._enter(lambda each=each: self._hand_over(each))  # type: ignore[misc]
        self._late.clear()

    def _hand_over(self, message: Json) -> None:
        numbered = self._numbered(message)
        if numbered is not None:
            self._receiver.on_message(numbered)

    def _close(self) -> None:
        self._enter(lambda: _closed(self._receiver))

    def _enter(self, call: Callable[[], None]) -> None:
        self.last_at = self._pipe.arrival(self)
        self._pipe.enter(self.last_at, lambda: self._arrive(call))

    def _arrive(self, call: Callable[[], None]) -> None:
        if not self.broken and self._receiver.open:
            call()


def _closed(end: End) -> None:
    if end.open:
        end.open = False
        end.on_closed()
