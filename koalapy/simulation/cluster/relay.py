"""The relay of a simulated KCM: wrappers knock, are let in by their token, and are heard and told."""

from collections.abc import Callable
from typing import Any

from koalapy_adapters import messages
from koalapy_adapters.kcm import actions as do
from koalapy_adapters.kcm.door import admits, is_knock, outcome
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
        token_of: Callable[[str], bytes | None],
        tell_machine: Callable[[Any], None],
    ) -> None:
        self._kcm, self._around, self._token_of, self._tell_machine = kcm, around, token_of, tell_machine
        self._guests: dict[str, End] = {}
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
        end = self._guests.get(tag)
        if end is not None:
            end.send(messages.to_json(message))

    def close(self) -> None:
        self._around.ports.pop(self.port, None)
        for end in list(self._ends):
            end.close()

    def knocked(self, visit: "_Visit", knock: messages.Knock) -> bool:
        """Whether it may come in: who is not let in learns nothing. Another of the same tag is thrown out."""
        if not admits(self._token_of(knock.tag), knock):
            return False
        before = self._guests.get(knock.tag)
        self._guests[knock.tag] = visit.end
        if before is not None:
            before.close()
            self._ends.pop(before, None)
        self._tell_machine(do.WrapperEntered(knock.tag, knock.clock))
        self._kcm.after(_BEAT, lambda: self._beat(visit))
        return True

    def heard(self, tag: str, message: Any) -> None:
        if isinstance(message, (messages.Say, messages.FromLauncher)):
            self._tell_machine(outcome(tag, message))

    def part(self, visit: "_Visit", closed: bool = False) -> None:
        """`closed`: by the wrapper's side."""
        visit.end.close()
        self._ends.pop(visit.end, None)
        if self._guests.get(visit.tag) is visit.end:
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
        if is_knock(message) and self._relay.knocked(self, message):
            self.tag = message.tag
        else:
            self._relay.part(self)

    def grow_impatient(self) -> None:
        if not self.tag and self.end.open:
            self._relay.part(self)
