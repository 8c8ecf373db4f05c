"""A simulated wrapper's connection to the relay: found by its file, let in by a knock, sought anew when it breaks."""

from typing import Any, Protocol

from koalapy_adapters import messages
from koalapy_adapters.wrapper import events, relay

from koalapy.model.units import MILLISECOND, Duration, Instant
from koalapy.simulation.agenda import Entry
from koalapy.simulation.dice import between
from koalapy.simulation.network import End, Json, Pipe
from koalapy.simulation.nodes import SimNode
from koalapy.simulation.processes import Process
from koalapy.simulation.surroundings import Surroundings

_LATENCY = Duration(MILLISECOND // 2), Duration(50 * MILLISECOND)


class Host(Protocol):
    """The wrapper whose connection it is."""

    node: SimNode
    name: str

    def clock(self) -> int: ...

    def handle(self, event: Any) -> None: ...

    def entered(self, offset: int) -> None: ...

    def seek_relay(self) -> None: ...


class Guest:
    """At most one connection that is let in."""

    def __init__(self, around: Surroundings, wrapper: Any, tag: str, token: str) -> None:
        self._around, self._wrapper, self._tag, self._token = around, wrapper, tag, token
        self._host: Host = wrapper
        self._process: Process = wrapper
        self._dice = around.dice(f"guest/{self._host.name}")
        self._end: End | None = None
        self._pipe: Pipe | None = None
        self.is_in = False
        self._closed = False
        self._knocked_at = 0
        self._heard_at = Instant(0)
        self._retry = relay.FIRST_RETRY
        self._deadline: Entry | None = None

    def found(self, place: Any) -> None:
        """What the relay's file says; see shared.RelayFound."""
        if self._end is not None or self._closed:
            return
        if not place.addresses:
            self._again()
            return
        self._set_deadline()
        if self._connected():
            self._process.after(self._latency(), lambda: self._dial(place.port))

    def send(self, message: Any) -> None:
        """Dropped where there is no connection: all is said again after the next one."""
        if self.is_in and self._end is not None:
            self._end.send(messages.to_json(message))

    def close(self) -> None:
        """What was sent is read before the other side hears of it."""
        self._closed = True
        self.cut()

    def cut(self) -> None:
        """The process is gone, or leaves: its side of the connection is closed."""
        self._around.agenda.cancel(self._deadline)
        end, self._end, self.is_in = self._end, None, False
        if end is not None:
            end.close()

    def stall(self, duration: Duration) -> None:
        """Nothing passes for so long; each side gives up by itself, or not."""
        if self._pipe is not None:
            self._pipe.stall(duration)

    def _connected(self) -> bool:
        return self._around.reaches_relay and self._host.node.reachable

    def _latency(self) -> Duration:
        return between(self._dice, *_LATENCY)

    def _dial(self, port: int) -> None:
        listener = self._around.ports.get(port)
        if listener is None or self._end is not None or self._closed:
            self._again()
            return
        pipe = self._pipe = Pipe(self._around.agenda, self._latency)
        self._host.node.keep(pipe)
        self._around.head.keep(pipe)
        end = self._end = pipe.near
        end.on_message = lambda message: self._process.run(lambda: self._hear(end, message))
        end.on_closed = lambda: self._process.run(lambda: self._lost(end))
        listener.accept(pipe.far)
        self._knocked_at = self._host.clock()
        self._set_deadline()
        end.send(messages.to_json(messages.Knock(messages.PROTOCOL, self._tag, self._token, self._knocked_at)))

    def _hear(self, end: End, data: Json) -> None:
        if end is not self._end:
            return
        self._heard_at = self._around.agenda.now
        message = messages.from_json(data)
        if isinstance(message, messages.Enter) and not self.is_in:
            self.is_in, self._retry = True, relay.FIRST_RETRY
            self._around.agenda.cancel(self._deadline)
            self._process.after(Duration(relay.BEAT), lambda: self._beat(end))
            self._host.entered(message.clock - (self._knocked_at + self._host.clock()) // 2)
        elif self.is_in and isinstance(message, messages.Release):
            self._host.handle(events.ReleaseHeard(message.first_rank, message.hosts))
        elif self.is_in and isinstance(message, messages.Stop):
            self._host.handle(events.StopHeard(message.force))

    def _beat(self, end: End) -> None:
        if end is not self._end:
            return
        if self._around.agenda.now - self._heard_at >= relay.SILENCE:
            self._lost(end)
            return
        end.send(messages.to_json(messages.Beat()))
        self._process.after(Duration(relay.BEAT), lambda: self._beat(end))

    def _lost(self, end: End) -> None:
        if end is not self._end:
            return
        was_in = self.is_in
        self.cut()
        self._again()
        if was_in:
            self._host.handle(events.RelayLost())

    def _again(self) -> None:
        """Exponentially later, with jitter."""
        self._around.agenda.cancel(self._deadline)
        if self._closed or self._end is not None:
            return
        wait = Duration(int(self._retry * (0.5 + self._dice.random())))
        self._retry = min(relay.LAST_RETRY, 2 * self._retry)
        self._deadline = self._process.after(wait, self._host.seek_relay)

    def _set_deadline(self) -> None:
        self._around.agenda.cancel(self._deadline)
        self._deadline = self._process.after(Duration(relay.ANSWER_WITHIN), self._give_up)

    def _give_up(self) -> None:
        self.cut()
        self._again()
