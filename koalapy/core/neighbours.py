"""The neighbours of this site, and which of them are connected."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from koalapy.model.events import NeighbourEvent, NeighbourJoined, NeighbourMessage
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import Instant


class Neighbours:
    """The records of the neighbours by name, in the order of their joining.

    `connected`: those with a session now. `report_at`: when this site may report its idle processors again. `changed`:
    the records that have changed in this step, by name.
    """

    def __init__(self, neighbours: Iterable[Neighbour]) -> None:
        self.records = {each.name: each for each in neighbours}
        self.changed: dict[str, Neighbour] = {}
        self.connected: dict[str, None] = {}
        self.report_at: Instant | None = None

    def inherit(self, before: "Neighbours") -> None:
        """Take over the sessions of the engine that this one replaces."""
        self.connected = {name: None for name in before.connected if name in self.records}
        self.report_at = before.report_at

    def put(self, neighbour: Neighbour) -> None:
        self.records[neighbour.name] = neighbour
        self.changed[neighbour.name] = neighbour

    def change(self, name: str, **changes: Any) -> None:
        self.put(replace(self.records[name], **changes))

    def remove(self, name: str) -> None:
        self.changed[name] = replace(self.records.pop(name), gone=True)
        self.connected.pop(name, None)

    def take_changed(self) -> dict[str, Neighbour]:
        """Return the records that have changed since the last call."""
        changed, self.changed = self.changed, {}
        return changed

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
