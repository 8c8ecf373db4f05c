"""The neighbours of this site, and which of them are connected."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from koalapy.model.events import NeighbourEvent, NeighbourJoined, NeighbourMessage
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import Instant


class Neighbours:
    """The records of the neighbours by name, in the order of their joining.

    `connected`: those with a session now. `report_at`: when this site may report its idle processors again.
    """

    def __init__(self, records: Iterable[Neighbour], note: Callable[[Neighbour], None]) -> None:
        """`note` is called with every record that has changed."""
        self.records = {each.name: each for each in records}
        self.connected: dict[str, None] = {}
        self.report_at: Instant | None = None
        self._note = note

    def inherit(self, before: "Neighbours") -> None:
        """Take over the sessions of the engine that this one replaces."""
        self.connected = {name: None for name in before.connected if name in self.records}
        self.report_at = before.report_at

    def put(self, neighbour: Neighbour) -> None:
        self.records[neighbour.name] = neighbour
        self._note(neighbour)

    def change(self, name: str, **changes: Any) -> None:
        self.put(replace(self.records[name], **changes))

    def remove(self, name: str) -> None:
        self._note(replace(self.records.pop(name), gone=True))
        self.connected.pop(name, None)

    def takes(self, event: NeighbourEvent) -> bool:
        """Return whether the event is of a neighbour, and new. A message is counted, and is not new again."""
        if isinstance(event, NeighbourJoined):
            return True
        record = self.records.get(event.neighbour)
        if record is None:
            return False
        if not isinstance(event, NeighbourMessage):
            return True
        if event.instance == record.instance and event.number <= record.received:
            return False
        self.change(event.neighbour, instance=event.instance, received=event.number)
        return True
