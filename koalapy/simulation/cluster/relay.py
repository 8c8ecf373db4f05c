"""The relay of a simulated KCM: wrappers knock, are let in by the real door, and are heard and told."""

from collections.abc import Callable
from typing import Any

from koalapy_adapters import messages
from koalapy_adapters.kcm import actions as do
from koalapy_adapters.kcm.door import Admitted, Door, outcome
from koalapy_adapters.kcm.relay import BEAT, KNOCK, SILENCE

from koalapy.model.units import SECOND, Duration
from koalapy.simulation.cluster.surroundings import Surroundings
from koalapy.simulation.network import End, Json
from koalapy.simulation.processes import Process

_BEAT, _SILENCE, _KNOCK = (Duration(round(each * SECOND)) for each in (BEAT, SILENCE, KNOCK))
_FIRST_PORT = 20_000


class SimRelay:
    """Listens on a port of the head node until it is closed."""

    def __init__(
        self,
        kcm: Process,
        around: Surroundings,
        door: Door,
        tell_machine: Callable[[Any], None],
    ) -> None:
        self._kcm, self._around, self._door, self._tell_machine = kcm, around, door, tell_machine
        self._guests: dict[str, tuple[End, Admitted]] = {}
        self._ends: dict[End, None] = {}
        self.port = max(around.ports, default=_FIRST_PORT) + 1
        around.ports[self.port] = self

    def accept(self, end: End) -> None:
        visit = _Visit(self, end)
        self._ends[end] = None
        end.on_message = lambda data: self._kcm.run(lambda: visit.hear(data))
        end.on_closed = lambda: self._kcm.run(lambda: self.part(visit, closed=True))
        self._kcm.after(_KNOCK, visit.grow_impatient)

    def tell(self, tag: str, message: Any) -> None:
        """Send to the wrapper of this tag, if it is connected."""
        if tag in self._guests:
            end, admitted = self._guests[tag]
            end.send(messages.to_json(admitted.told(message)))

    def close(self) -> None:
        self._around.ports.pop(self.port, None)
        for end in list(self._ends):
            end.close()

    def knocked(self, visit: "_Visit", message: Any) -> str:
        """The tag of one that may come in, else none: that one learns nothing. Another of this tag is thrown out."""
        admitted = self._door.admit(message)
        if admitted is None:
            return ""
        before, _ = self._guests.get(admitted.tag, (None, None))
        self._guests[admitted.tag] = visit.end, admitted
        if before is not None:
            before.close()
            self._ends.pop(before, None)
        self._tell_machine(do.WrapperEntered(admitted.tag, admitted.clock))
        self._kcm.after(_BEAT, lambda: self._beat(visit))
        return admitted.tag

    def heard(self, tag: str, message: Any) -> None:
        if isinstance(message, (messages.Say, messages.FromLauncher)):
            self._tell_machine(outcome(tag, message))

    def part(self, visit: "_Visit", closed: bool = False) -> None:
        """`closed`: by the wrapper's side."""
        visit.end.close()
        self._ends.pop(visit.end, None)
        if visit.tag in self._guests and self._guests[visit.tag][0] is visit.end:
            del self._guests[visit.tag]
            self._tell_machine(do.WrapperLeft(visit.tag, closed))

    def silent(self, visit: "_Visit") -> bool:
        return self._around.agenda.now - visit.heard_at >= _SILENCE

    def now(self) -> int:
        return self._around.agenda.now

    def _beat(self, visit: "_Visit") -> None:
        if visit.end not in self._ends:
            return
        if self.silent(visit):
            self.part(visit)
            return
        visit.end.send(messages.to_json(messages.Beat()))
        self._kcm.after(_BEAT, lambda: self._beat(visit))


class _Visit:
    """One connection, from its knock on."""

    def __init__(self, relay: SimRelay, end: End) -> None:
        self._relay, self.end = relay, end
        self.tag = ""
        self.heard_at = relay.now()

    def hear(self, data: Json) -> None:
        self.heard_at = self._relay.now()
        message = messages.from_json(data)
        if self.tag:
            self._relay.heard(self.tag, message)
            return
        self.tag = self._relay.knocked(self, message)
        if not self.tag:
            self._relay.part(self)

    def grow_impatient(self) -> None:
        if not self.tag and self.end.open:
            self._relay.part(self)
